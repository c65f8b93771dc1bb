package prometheus_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	prom "github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/retryplane/retryplane/pkg/client"
	clientmetrics "github.com/retryplane/retryplane/pkg/client/prometheus"
	"github.com/retryplane/retryplane/pkg/policy"
	"github.com/retryplane/retryplane/pkg/wire"
)

// plane is a control plane in memory: it grants every retry and opens what is called "down".
type plane struct{ http.RoundTripper }

func (plane) RoundTrip(r *http.Request) (*http.Response, error) {
	var asked wire.SyncRequest
	if err := json.NewDecoder(r.Body).Decode(&asked); err != nil {
		return nil, err
	}
	r.Body.Close()
	told := wire.SyncResponse{Seq: asked.Seq, NextSyncMS: 1000}
	for _, report := range asked.Dependencies {
		d := wire.Decision{Name: report.Name, Epoch: "e", Generation: 1, State: wire.Closed, Granted: report.Want, GrantTTLMS: 3000}
		if report.Name == "down" {
			d.State, d.RemainingMS = wire.Open, 60_000
		}
		told.Dependencies = append(told.Dependencies, d)
	}
	answer, err := json.Marshal(told)
	if err != nil {
		return nil, err
	}
	return &http.Response{StatusCode: http.StatusOK, Header: http.Header{}, Body: io.NopCloser(bytes.NewReader(answer)), Request: r}, nil
}

func setup(t *testing.T, base http.RoundTripper) *client.Client {
	t.Helper()
	p := policy.Default()
	p.Retry.Base, p.Breaker.LocalFailures = 0, 0
	c, err := client.New("http://plane.test", client.WithHTTPClient(&http.Client{Transport: base}), client.WithPolicy(p), client.WithoutBackground())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_ = c.Close(ctx)
	})
	return c
}

func TestCollector(t *testing.T) {
	t.Parallel()
	c := setup(t, plane{})
	collector := clientmetrics.NewCollector(c)
	crm := c.Dependency("crm")
	for _, fails := range []int{0, 0, 1, 3} {
		calls := 0
		_ = crm.Do(t.Context(), func(context.Context) error {
			if calls++; calls <= fails {
				return errors.New("down")
			}
			return nil
		})
	}
	down := c.Dependency("down")
	for range 2 {
		_ = down.Do(t.Context(), func(context.Context) error { return nil })
		if err := c.Flush(t.Context()); err != nil {
			t.Fatal(err)
		}
	}

	want := `
# HELP retryplane_client_attempts_total Attempts sent, retries and net/http's own resends among them, by dependency.
# TYPE retryplane_client_attempts_total counter
retryplane_client_attempts_total{dependency="crm"} 7
retryplane_client_attempts_total{dependency="down"} 1
# HELP retryplane_client_breaker_override 1 for the operator's override in force, 0 for the others.
# TYPE retryplane_client_breaker_override gauge
retryplane_client_breaker_override{dependency="crm",mode="force_closed"} 0
retryplane_client_breaker_override{dependency="crm",mode="force_open"} 0
retryplane_client_breaker_override{dependency="crm",mode="no_retries"} 0
retryplane_client_breaker_override{dependency="down",mode="force_closed"} 0
retryplane_client_breaker_override{dependency="down",mode="force_open"} 0
retryplane_client_breaker_override{dependency="down",mode="no_retries"} 0
# HELP retryplane_client_breaker_state 1 for the state that calls meet here, 0 for the others.
# TYPE retryplane_client_breaker_state gauge
retryplane_client_breaker_state{dependency="crm",state="closed"} 1
retryplane_client_breaker_state{dependency="crm",state="half_open"} 0
retryplane_client_breaker_state{dependency="crm",state="open"} 0
retryplane_client_breaker_state{dependency="down",state="closed"} 0
retryplane_client_breaker_state{dependency="down",state="half_open"} 0
retryplane_client_breaker_state{dependency="down",state="open"} 1
# HELP retryplane_client_degraded 1 while the client is cut off from its control plane, or refused by it.
# TYPE retryplane_client_degraded gauge
retryplane_client_degraded 0
# HELP retryplane_client_dependencies Dependencies in the client's memory.
# TYPE retryplane_client_dependencies gauge
retryplane_client_dependencies 2
# HELP retryplane_client_dependencies_overflowed Of these, those without series of their own.
# TYPE retryplane_client_dependencies_overflowed gauge
retryplane_client_dependencies_overflowed 0
# HELP retryplane_client_outcomes_total Attempts that ended, by outcome.
# TYPE retryplane_client_outcomes_total counter
retryplane_client_outcomes_total{dependency="crm",outcome="failure"} 4
retryplane_client_outcomes_total{dependency="crm",outcome="ignored"} 0
retryplane_client_outcomes_total{dependency="crm",outcome="success"} 3
retryplane_client_outcomes_total{dependency="crm",outcome="throttled"} 0
retryplane_client_outcomes_total{dependency="down",outcome="failure"} 0
retryplane_client_outcomes_total{dependency="down",outcome="ignored"} 0
retryplane_client_outcomes_total{dependency="down",outcome="success"} 1
retryplane_client_outcomes_total{dependency="down",outcome="throttled"} 0
# HELP retryplane_client_rejected_total Calls that the breaker rejected, and retries that the budget refused.
# TYPE retryplane_client_rejected_total counter
retryplane_client_rejected_total{by="breaker",dependency="crm"} 0
retryplane_client_rejected_total{by="breaker",dependency="down"} 1
retryplane_client_rejected_total{by="budget",dependency="crm"} 0
retryplane_client_rejected_total{by="budget",dependency="down"} 0
# HELP retryplane_client_request_attempts_total Calls that are over, by the attempts they took; the last value stands for more, too.
# TYPE retryplane_client_request_attempts_total counter
retryplane_client_request_attempts_total{attempts="1",dependency="crm"} 2
retryplane_client_request_attempts_total{attempts="2",dependency="crm"} 1
retryplane_client_request_attempts_total{attempts="3",dependency="crm"} 1
retryplane_client_request_attempts_total{attempts="4",dependency="crm"} 0
retryplane_client_request_attempts_total{attempts="5",dependency="crm"} 0
retryplane_client_request_attempts_total{attempts="1",dependency="down"} 1
retryplane_client_request_attempts_total{attempts="2",dependency="down"} 0
retryplane_client_request_attempts_total{attempts="3",dependency="down"} 0
retryplane_client_request_attempts_total{attempts="4",dependency="down"} 0
retryplane_client_request_attempts_total{attempts="5",dependency="down"} 0
# HELP retryplane_client_requests_total Calls of the application, by dependency.
# TYPE retryplane_client_requests_total counter
retryplane_client_requests_total{dependency="crm"} 4
retryplane_client_requests_total{dependency="down"} 1
# HELP retryplane_client_slow_attempts_total Attempts slower than the policy's slow_call.
# TYPE retryplane_client_slow_attempts_total counter
retryplane_client_slow_attempts_total{dependency="crm"} 0
retryplane_client_slow_attempts_total{dependency="down"} 0
# HELP retryplane_client_view_stale 1 while that is too old to be acted on: local breaker and budget apply.
# TYPE retryplane_client_view_stale gauge
retryplane_client_view_stale{dependency="crm"} 0
retryplane_client_view_stale{dependency="down"} 0
`
	var names []string
	for line := range strings.Lines(want) {
		if name, ok := strings.CutPrefix(line, "# TYPE "); ok {
			names = append(names, strings.Fields(name)[0])
		}
	}
	if err := testutil.CollectAndCompare(collector, strings.NewReader(want), names...); err != nil {
		t.Error(err)
	}
	// These depend on the clock.
	for name, series := range map[string]int{
		"retryplane_client_attempt_duration_seconds": 2, "retryplane_client_view_age_seconds": 2, "retryplane_client_syncs_total": 2,
	} {
		if n := testutil.CollectAndCount(collector, name); n != series {
			t.Errorf("%d series of %s, want %d", n, name, series)
		}
	}
	problems, err := testutil.CollectAndLint(collector)
	if err != nil || len(problems) > 0 {
		t.Errorf("lint: %v %v", problems, err)
	}
}

// TestCollectorWithoutPlane: a program that was never told anything is what one wants to see on a dashboard.
func TestCollectorWithoutPlane(t *testing.T) {
	t.Parallel()
	c := setup(t, away{})
	_ = c.Dependency("crm").Do(t.Context(), func(context.Context) error { return nil })
	_ = c.Flush(t.Context())
	collector := clientmetrics.NewCollector(c)
	err := testutil.CollectAndCompare(collector, strings.NewReader(`
# HELP retryplane_client_degraded 1 while the client is cut off from its control plane, or refused by it.
# TYPE retryplane_client_degraded gauge
retryplane_client_degraded 1
`), "retryplane_client_degraded", "retryplane_client_view_age_seconds")
	if err != nil {
		t.Error(err)
	}
}

type away struct{}

func (away) RoundTrip(*http.Request) (*http.Response, error) { return nil, errors.New("refused") }

// TestCollectorIsBounded: names made out of input do not become series, and none of their calls gets lost.
func TestCollectorIsBounded(t *testing.T) {
	t.Parallel()
	const many = 3 * clientmetrics.MaxDependencies
	c := setup(t, plane{})
	collector := clientmetrics.NewCollector(c)
	registry := prom.NewPedanticRegistry()
	registry.MustRegister(collector)
	handles := make([]*client.Dependency, many) // held, so that none is forgotten
	for i := range handles {
		handles[i] = c.Dependency(fmt.Sprintf("tenant-%03d", i))
	}
	for range 2 {
		for _, d := range handles {
			if err := d.Do(t.Context(), func(context.Context) error { return nil }); err != nil {
				t.Fatal(err)
			}
		}
		if n := testutil.CollectAndCount(collector, "retryplane_client_requests_total"); n != clientmetrics.MaxDependencies+1 {
			t.Errorf("%d series, want %d", n, clientmetrics.MaxDependencies+1)
		}
	}
	var total, other float64
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() != "retryplane_client_requests_total" {
			continue
		}
		for _, m := range f.GetMetric() {
			total += m.GetCounter().GetValue()
			if m.GetLabel()[0].GetValue() == clientmetrics.Other {
				other = m.GetCounter().GetValue()
			}
		}
	}
	if total != 2*many || other != 2*(many-clientmetrics.MaxDependencies) {
		t.Errorf("%v calls, %v of others", total, other)
	}
}

// TestCollectorAtOnce: scrapes may overlap, with each other and with calls.
func TestCollectorAtOnce(t *testing.T) {
	t.Parallel()
	c := setup(t, plane{})
	collector := clientmetrics.NewCollector(c)
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for range 20 {
				_ = c.Dependency("crm").Do(t.Context(), func(context.Context) error { return nil })
				testutil.CollectAndCount(collector)
			}
		})
	}
	wg.Wait()
	if got := c.Stats().Dependencies["crm"].Requests; got != 80 {
		t.Errorf("%d requests", got)
	}
}
