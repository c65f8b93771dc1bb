package policy_test

import (
	"testing"
	"time"

	"github.com/retryplane/retryplane/pkg/policy"
)

func TestDecideRPC(t *testing.T) {
	t.Parallel()
	const exhausted, unavailable = 8, 14
	writes := policy.Interactive()
	writes.RetryThrottledWrites = true
	for _, c := range []struct {
		name string
		r    policy.RetryPolicy
		a    policy.RPC
		want policy.Verdict
	}{
		{"ok", policy.Interactive(), policy.RPC{},
			policy.Verdict{Outcome: policy.Success, Reason: policy.StopDone}},
		{"unavailable, declared idempotent", policy.Interactive(), policy.RPC{Code: unavailable, Idempotent: true},
			policy.Verdict{Action: policy.Retry, Outcome: policy.Failure}},
		{"unavailable, not sent", policy.Interactive(), policy.RPC{Code: unavailable, NotSent: true},
			policy.Verdict{Action: policy.Retry, Outcome: policy.Failure}},
		{"unavailable, perhaps carried out", policy.Interactive(), policy.RPC{Code: unavailable},
			policy.Verdict{Outcome: policy.Failure, Reason: policy.StopNotRetryable}},
		{"unavailable, committed", policy.Interactive(), policy.RPC{Code: unavailable, Idempotent: true, Committed: true},
			policy.Verdict{Outcome: policy.Failure, Reason: policy.StopNotRetryable}},
		{"pushback", policy.Interactive(), policy.RPC{Code: unavailable, Idempotent: true, Pushback: []string{"250"}, RetryInfo: time.Second},
			policy.Verdict{Action: policy.Retry, Outcome: policy.Failure, After: ms(250), Hint: policy.HintValid}},
		{"retry info", policy.Interactive(), policy.RPC{Code: unavailable, Idempotent: true, RetryInfo: time.Second},
			policy.Verdict{Action: policy.Retry, Outcome: policy.Failure, After: time.Second, Hint: policy.HintValid}},
		{"negative pushback", policy.Interactive(), policy.RPC{Code: unavailable, Idempotent: true, Pushback: []string{"-1"}},
			policy.Verdict{Outcome: policy.Failure, Reason: policy.StopVeto}},
		{"unreadable pushback", policy.Interactive(), policy.RPC{Code: unavailable, Idempotent: true, Pushback: []string{"soon"}},
			policy.Verdict{Outcome: policy.Failure, Reason: policy.StopVeto}},
		{"two pushbacks", policy.Interactive(), policy.RPC{Code: unavailable, Idempotent: true, Pushback: []string{"1", "2"}},
			policy.Verdict{Outcome: policy.Failure, Reason: policy.StopVeto}},
		{"exhausted, no word when to come back", policy.Interactive(), policy.RPC{Code: exhausted, Idempotent: true},
			policy.Verdict{Outcome: policy.Throttled, Reason: policy.StopNotRetryable}},
		{"exhausted, come back later", policy.Interactive(), policy.RPC{Code: exhausted, Idempotent: true, RetryInfo: time.Second},
			policy.Verdict{Action: policy.Retry, Outcome: policy.Throttled, After: time.Second, Hint: policy.HintValid}},
		{"exhausted write", policy.Interactive(), policy.RPC{Code: exhausted, RetryInfo: time.Second},
			policy.Verdict{Outcome: policy.Throttled, Reason: policy.StopNotRetryable}},
		{"exhausted write, opted in", writes, policy.RPC{Code: exhausted, Pushback: []string{"0"}},
			policy.Verdict{Action: policy.Retry, Outcome: policy.Throttled, Hint: policy.HintValid}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			if got := c.r.DecideRPC(c.a); got != c.want {
				t.Errorf("got %+v, want %+v", got, c.want)
			}
		})
	}
}

func TestRPCOutcomes(t *testing.T) {
	t.Parallel()
	s, f, i, th := policy.Success, policy.Failure, policy.Ignored, policy.Throttled
	want := []policy.Outcome{ // by code, from OK to UNAUTHENTICATED, and one that does not exist
		s, i, f, s, f, s, s, s, th, s, s, s, i, f, f, f, s, f,
	}
	for code, want := range want {
		got := policy.Interactive().DecideRPC(policy.RPC{Code: policy.Code(code)})
		if got.Outcome != want {
			t.Errorf("code %d: %v, want %v", code, got.Outcome, want)
		}
	}
}
