package policy_test

import (
	"math"
	"testing"
	"time"

	"github.com/retryplane/retryplane/pkg/policy"
	"pgregory.net/rapid"
)

// goodCall may be retried: every gate says yes.
func goodCall() policy.Call {
	return policy.Call{
		Now: noon, Deadline: noon.Add(10 * time.Second), MinAttempt: ms(10),
		Attempts: 1, Verdict: policy.Verdict{Action: policy.Retry, Outcome: policy.Failure}, Draw: 0.5,
		Replayable: true, BreakerClosed: true,
	}
}

// TestGateOrder shuts all gates, then opens them one by one from the front: each time the next one must be what stops
// the call.
func TestGateOrder(t *testing.T) {
	t.Parallel()
	r := policy.Interactive()
	c := policy.Call{Now: noon, Deadline: noon, Cancelled: true, Attempts: 3, OuterRetrying: true,
		Verdict: policy.Verdict{Reason: policy.StopVeto}}
	for _, gate := range []struct {
		want policy.StopReason
		open func()
	}{
		{policy.StopCancelled, func() { c.Cancelled = false }},
		{policy.StopDeadline, func() { c.Deadline = noon.Add(time.Second) }},
		{policy.StopAttempts, func() { c.Attempts = 2 }},
		{policy.StopVeto, func() { c.Verdict.Reason = policy.StopNotRetryable }},
		{policy.StopNotRetryable, func() { c.Verdict = policy.Verdict{Action: policy.Retry, After: time.Minute + 1} }},
		{policy.StopBody, func() { c.Replayable = true }},
		{policy.StopRetryAfter, func() { c.Verdict.After = 2 * time.Second }}, // above the cap
		{policy.StopRetryAfter, func() { c.Verdict.After = 0 }},               // within the cap, past the deadline
		{policy.StopLayer, func() { c.OuterRetrying = false }},
		{policy.StopBreaker, func() { c.BreakerClosed = true }},
		{"", func() {}},
	} {
		if _, got := r.Next(c); got != gate.want {
			t.Errorf("stopped by %q, want %q: %+v", got, gate.want, c)
		}
		gate.open()
	}
}

func TestNext(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		change func(*policy.RetryPolicy, *policy.Call)
		wait   time.Duration
		stop   policy.StopReason
	}{
		{"backoff", func(*policy.RetryPolicy, *policy.Call) {}, ms(50), ""},
		{"second backoff", func(_ *policy.RetryPolicy, c *policy.Call) { c.Attempts = 2 }, ms(100), ""},
		{"no wait after the last attempt", func(_ *policy.RetryPolicy, c *policy.Call) { c.Attempts = 3 }, 0, policy.StopAttempts},
		{"retries off", func(r *policy.RetryPolicy, _ *policy.Call) { r.Attempts = 1 }, 0, policy.StopAttempts},
		{"zero policy", func(r *policy.RetryPolicy, _ *policy.Call) { *r = policy.RetryPolicy{} }, 0, policy.StopAttempts},
		{"zero call", func(_ *policy.RetryPolicy, c *policy.Call) { *c = policy.Call{} }, 0, policy.StopNotRetryable},
		{"success of the last attempt", func(_ *policy.RetryPolicy, c *policy.Call) {
			c.Attempts, c.Verdict = 3, policy.Verdict{Outcome: policy.Success, Reason: policy.StopDone}
		}, 0, policy.StopDone},
		{"success although cancelled since", func(_ *policy.RetryPolicy, c *policy.Call) {
			c.Cancelled, c.Verdict = true, policy.Verdict{Outcome: policy.Success, Reason: policy.StopDone}
		}, 0, policy.StopDone},
		{"no deadline", func(_ *policy.RetryPolicy, c *policy.Call) { c.Deadline = time.Time{} }, ms(50), ""},
		{"deadline long past", func(_ *policy.RetryPolicy, c *policy.Call) { c.Now = c.Now.AddDate(5000, 0, 0) }, 0, policy.StopDeadline},
		{"too little time for another attempt", func(_ *policy.RetryPolicy, c *policy.Call) { c.MinAttempt = 11 * time.Second }, 0, policy.StopDeadline},
		{"wait and attempt fit exactly", func(_ *policy.RetryPolicy, c *policy.Call) { c.Deadline = c.Now.Add(ms(60)) }, ms(50), ""},
		{"attempt fits, the wait before it does not", func(_ *policy.RetryPolicy, c *policy.Call) { c.Deadline = c.Now.Add(ms(59)) }, 0, policy.StopDeadline},
		{"nothing left after the wait", func(_ *policy.RetryPolicy, c *policy.Call) { c.Deadline, c.MinAttempt = c.Now.Add(ms(50)), 0 }, 0, policy.StopDeadline},
		{"demand is waited for", func(_ *policy.RetryPolicy, c *policy.Call) { c.Verdict.After = time.Second }, ms(1050), ""},
		{"demand past the deadline", func(_ *policy.RetryPolicy, c *policy.Call) { c.Verdict.After = 30 * time.Second }, 0, policy.StopRetryAfter},
		{"demand that fits only without its jitter", func(_ *policy.RetryPolicy, c *policy.Call) { c.Verdict.After = 10*time.Second - ms(20) }, 0, policy.StopRetryAfter},
		{"demand at the cap", func(r *policy.RetryPolicy, c *policy.Call) {
			c.Deadline, c.Verdict.After = time.Time{}, r.RetryAfterCap
		}, time.Minute + ms(50), ""},
		{"demand above the cap", func(r *policy.RetryPolicy, c *policy.Call) {
			c.Deadline, c.Verdict.After = time.Time{}, r.RetryAfterCap+1
		}, 0, policy.StopRetryAfter},
		{"demand for ever", func(_ *policy.RetryPolicy, c *policy.Call) { c.Verdict.After = math.MaxInt64 }, 0, policy.StopRetryAfter},
		{"cap of 0 does not touch the backoff", func(r *policy.RetryPolicy, _ *policy.Call) { r.RetryAfterCap = 0 }, ms(50), ""},
		{"cap of 0 refuses every demand", func(r *policy.RetryPolicy, c *policy.Call) { r.RetryAfterCap, c.Verdict.After = 0, 1 }, 0, policy.StopRetryAfter},
		{"new connection", func(_ *policy.RetryPolicy, c *policy.Call) { c.Verdict.Action = policy.RetryNewConnection }, ms(50), ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			r, call := policy.Interactive(), goodCall()
			c.change(&r, &call)
			if wait, stop := r.Next(call); wait != c.wait || stop != c.stop {
				t.Errorf("Next = %v, %q, want %v, %q", wait, stop, c.wait, c.stop)
			}
		})
	}
}

// TestNextKeepsItsPromises: whoever is told to wait can afford it, and nobody who is told to stop was told to wait.
func TestNextKeepsItsPromises(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		r := anyRetry(t)
		c := policy.Call{
			Now: noon, MinAttempt: anyDuration().Draw(t, "min"), Cancelled: rapid.Bool().Draw(t, "cancelled"),
			Attempts: rapid.IntRange(-1, 21).Draw(t, "attempts"),
			Verdict: policy.Verdict{
				Action: policy.Action(rapid.Uint8Range(0, 3).Draw(t, "action")), After: anyDuration().Draw(t, "after"),
			},
			Prev: anyDuration().Draw(t, "prev"), Draw: anyDraw().Draw(t, "u"),
			Replayable: rapid.Bool().Draw(t, "replayable"), OuterRetrying: rapid.Bool().Draw(t, "outer"),
			BreakerClosed: rapid.Bool().Draw(t, "closed"),
		}
		if rapid.Bool().Draw(t, "has deadline") {
			c.Deadline = noon.Add(anyDuration().Draw(t, "deadline"))
		}
		wait, stop := r.Next(c)
		if stop != "" {
			if wait != 0 {
				t.Fatalf("stopped by %q with a wait of %v", stop, wait)
			}
			return
		}
		switch {
		case c.Cancelled, c.OuterRetrying, !c.Replayable, !c.BreakerClosed, c.Verdict.Action == policy.Stop, c.Attempts >= r.Attempts:
			t.Fatalf("went on: %+v", c)
		case wait < 0, wait < c.Verdict.After, wait-max(c.Verdict.After, 0) > max(r.Cap, 0):
			t.Fatalf("wait %d after a demand of %d, cap %d", wait, c.Verdict.After, r.Cap)
		}
		if !c.Deadline.IsZero() {
			if left := c.Deadline.Sub(c.Now); wait >= left || c.MinAttempt > left-wait {
				t.Fatalf("wait %d and attempt of %d in %d", wait, c.MinAttempt, left)
			}
		}
		if stop := c.Resend(); stop != "" {
			t.Fatalf("nothing changed, but the re-check says %q", stop)
		}
	})
}

func TestResend(t *testing.T) {
	t.Parallel()
	c := policy.Call{Now: noon, Deadline: noon, Cancelled: true}
	for _, gate := range []struct {
		want policy.StopReason
		open func()
	}{
		{policy.StopCancelled, func() { c.Cancelled = false }},
		{policy.StopDeadline, func() { c.Deadline = noon.Add(1) }},
		{policy.StopBreaker, func() { c.BreakerClosed = true }},
		{"", func() {}},
	} {
		if got := c.Resend(); got != gate.want {
			t.Errorf("stopped by %q, want %q: %+v", got, gate.want, c)
		}
		gate.open()
	}
}

func TestAttemptTimeoutAt(t *testing.T) {
	t.Parallel()
	r := policy.Interactive()
	for _, c := range []struct {
		deadline time.Time
		want     time.Duration
	}{
		{time.Time{}, 3 * time.Second},
		{noon.Add(time.Minute), 3 * time.Second},
		{noon.Add(time.Second), time.Second}, // the last attempt does not overrun the deadline
		{noon, 0},
		{noon.Add(-time.Second), 0},
	} {
		if got := r.AttemptTimeoutAt(noon, c.deadline); got != c.want {
			t.Errorf("AttemptTimeoutAt(deadline %v) = %v, want %v", c.deadline, got, c.want)
		}
	}
}
