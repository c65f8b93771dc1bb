package wire

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/retryplane/retryplane/pkg/policy"
)

var update = flag.Bool("update", false, "rewrite the golden files; only for additions, never for a changed name")

var at = time.Date(2026, 5, 4, 12, 0, 0, 0, time.UTC)

// samples fill every field, so that the golden files pin every name.
func samples() map[string]any {
	return map[string]any{
		"sync_request": &SyncRequest{
			Instance: "i-1", Service: "checkout", Version: "1.2.3", Seq: 7,
			Dependencies: []Report{{
				Name: "payments", Epoch: "k3j9", Generation: 42, AgeMS: 900, Requests: 10, Attempts: 12, Success: 6, Failure: 3,
				Throttled: 2, Ignored: 1, Slow: 1, RejectedBreaker: 4, RejectedBudget: 5, AttemptsPerRequest: []int64{8, 1, 0, 0, 0},
				LatencySumMS: 120, LatencyCount: 2, FailureRun: 3, Ungranted: 1, Want: 2, WaitedMS: 30, WantProbe: true,
				Probes:  []ProbeResult{{Token: "t-1", Outcome: "success"}},
				Applied: Applied{Generation: 42, OverrideRevision: 1796083200000, PolicyVersion: 3},
			}},
		},
		"sync_response": &SyncResponse{
			Seq: 7, NextSyncMS: 1000, Degraded: true,
			Dependencies: []Decision{{
				Name: "payments", Epoch: "k3j9", Generation: 42, State: HalfOpen, RemainingMS: 1800, AdmitPPM: 100000, FailurePPM: 930000,
				Instances: 40, Override: &Override{Mode: "force_open", Revision: 1796083200000, RemainingMS: 3600000},
				Granted: 2, GrantTTLMS: 3000, HoldMS: 250, Permit: &Permit{Token: "t-2", LeaseMS: 3500}, ProbeHoldMS: 100,
				NotBeforeMS: 30000, PolicyVersion: 3, Policy: &Policy{ViewTTLMS: new(int64(3000))},
			}},
		},
		"dependency": &Dependency{
			Name: "payments",
			Breaker: BreakerStatus{
				Effective: Open,
				Automatic: AutomaticState{State: Open, Reason: "failure_rate", Epoch: "k3j9", Generation: 42, Since: &at, Reopenings: 7, RemainingMS: 1800},
				Override: &OverrideStatus{Mode: "force_open", Reason: "provider maintenance", Actor: "alice", CreatedAt: at,
					ExpiresAt: at.Add(time.Hour), Revision: 1796083200000, AppliedBy: 38, Instances: 40},
			},
			Budget: BudgetStatus{RatioPPM: 100000, Floor: 10, WindowMS: 10000, Requests: 1200, Retries: 40, Allowed: 130, Remaining: 90},
			Window: Window{Requests: 1200, Attempts: 1240, Success: 1190, Failure: 50, RetryRatio: 0.033,
				AttemptsPerRequest: [5]int64{1165, 30, 5, 0, 0}, Instances: 38, FailingInstances: 3},
			Policy: PolicyStatus{Source: "default", Policy: FromPolicy(policy.Default())},
			AsOf:   at,
		},
		"transitions": &TransitionList{Transitions: []Transition{{
			Dependency: "payments", From: Closed, To: Open, Generation: 43, Reason: "failure_rate", Cause: "trip", Actor: "", At: at,
		}}, Next: "cursor"},
		"series": &Series{
			Name: "payments", Start: at, StepMS: 15000, Requests: []int64{10, 20}, Attempts: []int64{11, 22}, Success: []int64{9, 18},
			Failure: []int64{2, 3}, Throttled: []int64{0, 1}, Ignored: []int64{0, 0}, RejectedBreaker: []int64{0, 4},
			RejectedBudget: []int64{1, 2}, AttemptsPerRequest: [5]int64{27, 3, 0, 0, 0},
		},
		"override_request": &OverrideRequest{Mode: "force_open", Reason: "provider maintenance", ExpiresInMS: 3600000},
		"problem": &Problem{Type: "about:blank", Title: "Unprocessable Entity", Status: 422, Code: CodeInvalid, Detail: "a field is out of its bounds",
			Errors: []ProblemField{{Field: "expires_in_ms", Limit: "1 to 604800000"}}},
		"status": &Status{Version: "v1", Ready: true, Degraded: true, Store: "redis", StoreUp: true, StoreError: "x", Dependencies: 1, StreamClients: 2, UptimeMS: 3},
		"whoami": &Whoami{Name: "alice", Roles: []string{"operate"}, Dependencies: []string{"payments*"}},
	}
}

func TestGolden(t *testing.T) {
	t.Parallel()
	for name, sample := range samples() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			file := filepath.Join("testdata", "golden", name+".json")
			got, err := json.MarshalIndent(sample, "", " ")
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, '\n')
			if *update {
				if err := os.WriteFile(file, got, 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(got, want) {
				t.Errorf("the JSON changed (-want +got):\n%s", cmp.Diff(string(want), string(got)))
			}
			back := newLike(sample)
			if err := json.Unmarshal(want, back); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(sample, back); diff != "" {
				t.Errorf("decoding loses something (-want +got):\n%s", diff)
			}
		})
	}
}

func newLike(v any) any {
	switch v.(type) {
	case *SyncRequest:
		return new(SyncRequest)
	case *SyncResponse:
		return new(SyncResponse)
	case *Dependency:
		return new(Dependency)
	case *TransitionList:
		return new(TransitionList)
	case *Series:
		return new(Series)
	case *OverrideRequest:
		return new(OverrideRequest)
	case *Problem:
		return new(Problem)
	case *Status:
		return new(Status)
	}
	return new(Whoami)
}

func TestPolicyRoundTrip(t *testing.T) {
	t.Parallel()
	want := policy.Default()
	want.Breaker.Ramp, want.Retry.Jitter, want.Retry.Retry500 = []policy.PPM{}, policy.JitterEqual, true
	got, err := FromPolicy(want).Over(policy.Policy{})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestPolicyUnsetZeroOutOfRange: unset keeps the default, zero is zero, out of range names the field, all at once.
func TestPolicyUnsetZeroOutOfRange(t *testing.T) {
	t.Parallel()
	got, err := Policy{Breaker: &BreakerPolicy{ConsecutiveFailures: new(int64(0))}}.Over(policy.Default())
	if err != nil {
		t.Fatal(err)
	}
	if got.Breaker.ConsecutiveFailures != 0 || got.Breaker.MinAttempts != policy.Default().Breaker.MinAttempts {
		t.Errorf("got %+v", got.Breaker)
	}
	_, err = Policy{
		Breaker: &BreakerPolicy{MinAttempts: new(int64(0)), OpenForMS: new(int64(1 << 62))},
		Budget:  &BudgetPolicy{RatioPPM: new(int64(-1))},
		Retry:   &RetryPolicy{Jitter: new("some"), Attempts: new(int64(1 << 40))},
	}.Over(policy.Default())
	fields := map[string]bool{}
	joined, ok := err.(interface{ Unwrap() []error })
	if !ok {
		t.Fatalf("got %v, want joined errors", err)
	}
	for _, e := range joined.Unwrap() {
		if fe, ok := errors.AsType[*policy.FieldError](e); ok {
			fields[fe.Field] = true
		}
	}
	for _, want := range []string{"breaker.min_attempts", "breaker.open_for_ms", "budget.ratio_ppm", "retry.jitter", "retry.attempts"} {
		if !fields[want] {
			t.Errorf("no error names %s: %v", want, err)
		}
	}
}

// TestUnknownFields: old servers read new instances' syncs.
func TestUnknownFields(t *testing.T) {
	t.Parallel()
	var r SyncRequest
	if err := json.Unmarshal([]byte(`{"instance":"i","seq":1,"news":true,"dependencies":[{"name":"a","later":{}}]}`), &r); err != nil {
		t.Fatal(err)
	}
	if len(r.Dependencies) != 1 || r.Dependencies[0].Name != "a" {
		t.Errorf("got %+v", r)
	}
}
