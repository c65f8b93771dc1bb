package main

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/retryplane/retryplane/pkg/wire"
)

// sick is a dependency with something in every cell.
func sick() *wire.Dependency {
	now := time.Date(2026, 5, 4, 12, 0, 0, 0, time.UTC)
	since := now.Add(-95 * time.Second)
	return &wire.Dependency{
		Name: "payments",
		Breaker: wire.BreakerStatus{
			Effective: wire.Open,
			Automatic: wire.AutomaticState{State: wire.HalfOpen, Reason: "failure_rate", Since: &since, Reopenings: 7, AdmitPPM: 250_000},
			Override: &wire.OverrideStatus{
				Mode: "force_open", Reason: "provider maintenance", Actor: "alice", CreatedAt: now.Add(-time.Hour - time.Minute),
				ExpiresAt: now.Add(59 * time.Minute), Revision: 42, AppliedBy: 38, Instances: 40,
			},
		},
		Budget: wire.BudgetStatus{RatioPPM: 125_000, WindowMS: 10_000, Remaining: -2, Denied: 9},
		Window: wire.Window{
			Requests: 1234, Success: 750, Failure: 250, Throttled: 5, RetryRatio: 0.0333, RejectedBreaker: 11, RejectedBudget: 12,
			Instances: 40, FailingInstances: 30,
		},
		Policy: wire.PolicyStatus{Source: "api", Version: 3},
		AsOf:   now,
	}
}

func table(t *testing.T, rows [][]string) string {
	t.Helper()
	var b bytes.Buffer
	if err := writeTable(&b, rows); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func TestListTable(t *testing.T) {
	t.Parallel()
	well := &wire.Dependency{
		Name: "crm/eu", Breaker: wire.BreakerStatus{Effective: wire.Closed, Automatic: wire.AutomaticState{State: wire.Closed}},
		Budget: wire.BudgetStatus{RatioPPM: 100_000, WindowMS: 10_000},
	}
	until := clock(sick().Breaker.Override.ExpiresAt)
	want := "" +
		"NAME      STATE                         FOR   REQ/S  FAILED  RETRIES        INSTANCES        OVERRIDE\n" +
		"payments  open (calculated: half_open)  1h1m  123.4  25.0%   3.3% of 12.5%  40 (30 failing)  force_open by alice until " + until + " (59m0s left)\n" +
		"crm/eu    closed                        -     0.0    -       - of 10%       0                -\n"
	got := table(t, [][]string{listHeader, listRow(sick()), listRow(well)})
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestDetails(t *testing.T) {
	t.Parallel()
	d := sick()
	want := strings.Join([]string{
		"name          payments",
		"state         open (calculated: half_open)",
		"for           1h1m",
		"why           failure_rate",
		"reopenings    7",
		"admits        25.0% of the calls",
		"requests      123.4/s (1234 in 10s)",
		"failed        25.0% (250 of 1000 attempts)",
		"throttled     5",
		"retries       3.3% of 12.5%, 0 left, 9 denied",
		"rejected      11 by the breaker, 12 by the budget",
		"instances     40 (30 failing)",
		"override      force_open by alice until " + clock(d.Breaker.Override.ExpiresAt) + " (59m0s left)",
		"  reason      provider maintenance",
		"  revision    42",
		"  applied by  38 of 40 instances",
		"policy        api, version 3",
		"as of         " + clock(d.AsOf),
	}, "\n") + "\n"
	if diff := cmp.Diff(want, table(t, details(d))); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestForUnderNoRetries: this override leaves the state alone, so the state is as old as it was.
func TestForUnderNoRetries(t *testing.T) {
	t.Parallel()
	d := sick()
	d.Breaker.Override.Mode = "no_retries"
	if got := forCell(d); got != "1m35s" {
		t.Errorf("got %s", got)
	}
}

func TestRough(t *testing.T) {
	t.Parallel()
	for d, want := range map[time.Duration]string{
		-time.Second: "0s", 0: "0s", 59*time.Second + 999*time.Millisecond: "59s", time.Minute: "1m0s", 59*time.Minute + 59*time.Second: "59m59s",
		time.Hour: "1h0m", 24*time.Hour - 1: "23h59m", 168 * time.Hour: "7d0h",
	} {
		if got := rough(d); got != want {
			t.Errorf("%s: got %s, want %s", d, got, want)
		}
	}
}
