package policy

import (
	"cmp"
	"time"
)

// StopReason says why a call is over. "" = it is not.
type StopReason string

// In the order in which the gates ask.
const (
	StopDone         StopReason = "done"          // the dependency answered, as it should or with a refusal that is final
	StopCancelled    StopReason = "cancelled"     // the caller's context is done
	StopDeadline     StopReason = "deadline"      // no time for another attempt, or for the wait before it
	StopAttempts     StopReason = "attempts"      // all attempts are used up
	StopVeto         StopReason = "veto"          // the server asks not to retry
	StopNotRetryable StopReason = "not_retryable" // this end of this request is not retried
	StopBody         StopReason = "body"          // the request's body cannot be sent again
	StopRetryAfter   StopReason = "retry_after"   // the server demands a longer wait than this call can afford
	StopLayer        StopReason = "layer"         // an outer layer is already retrying
	StopBreaker      StopReason = "breaker"       // the breaker is not closed; ramping is not closed
	StopBudget       StopReason = "budget"        // the fleet's retry budget granted nothing; said by who draws
)

// Call is a call at one instant, after an attempt. Zero values stop, except that a zero Deadline is none.
type Call struct {
	Now        time.Time
	Deadline   time.Time     // of the whole call, the caller's own included
	MinAttempt time.Duration // what another attempt needs at least; below 0 = 0
	Cancelled  bool          // the caller's context is done

	Attempts int           // sent so far
	Verdict  Verdict       // on the last of them
	Prev     time.Duration // wait before the last of them; 0 = there was none
	Draw     float64       // uniform from [0, 1): the jitter of the next wait

	Replayable    bool // there is no body, or it can be sent again
	OuterRetrying bool // the request came in as an outer layer's retry
	BreakerClosed bool // the effective state is closed, not ramping
}

// Next says whether a call may go on with another attempt, and after which wait. The first gate that says no ends the
// call, and nobody sleeps before being told:
//
//	caller -> deadline -> attempts -> veto -> retryable -> body -> wait fits -> outer layer -> breaker
//
// Behind them the caller draws from the budget while it waits, asks [Call.Resend], and sends. There is no wait after
// the last attempt. With StopRetryAfter the demand is Verdict.After: the fleet should hear of it.
//
// The wait is at least Verdict.After, at most Verdict.After + Cap, and 0 if the call is over.
func (r RetryPolicy) Next(c Call) (time.Duration, StopReason) {
	v := c.Verdict
	switch {
	case v.Reason == StopDone:
		return 0, StopDone // a good answer to the last attempt did not fail for want of attempts
	case c.Cancelled:
		return 0, StopCancelled
	case !c.fits(0):
		return 0, StopDeadline
	case c.Attempts >= r.Attempts:
		return 0, StopAttempts
	case v.Action == Stop:
		return 0, cmp.Or(v.Reason, StopNotRetryable) // Decide has asked for a veto first
	case !c.Replayable:
		return 0, StopBody
	}
	wait := r.Wait(c.Attempts-1, c.Prev, v.After, c.Draw)
	switch {
	case v.After > 0 && (v.After > r.RetryAfterCap || !c.fits(wait)):
		return 0, StopRetryAfter
	case !c.fits(wait):
		return 0, StopDeadline
	case c.OuterRetrying:
		return 0, StopLayer
	case !c.BreakerClosed:
		return 0, StopBreaker
	}
	return wait, ""
}

// Resend asks again, after the wait and just before sending, what may have changed meanwhile: the caller, the deadline
// and the breaker. "" = send. Of c it reads Now, Deadline, MinAttempt, Cancelled and BreakerClosed.
func (c Call) Resend() StopReason {
	switch {
	case c.Cancelled:
		return StopCancelled
	case !c.fits(0):
		return StopDeadline
	case !c.BreakerClosed:
		return StopBreaker
	}
	return ""
}

// fits reports whether an attempt begun after wait has time left, and enough of it.
func (c Call) fits(wait time.Duration) bool {
	if c.Deadline.IsZero() {
		return true
	}
	left := c.Deadline.Sub(c.Now)
	if left <= 0 { // also keeps the subtraction below from overflowing
		return false
	}
	left -= wait
	return left > 0 && left >= c.MinAttempt
}

// AttemptTimeoutAt is the time that an attempt sent at now gets, up to the response's headers: the policy's, or what
// the call has left before its deadline if that is less (zero deadline = none). Never negative.
func (r RetryPolicy) AttemptTimeoutAt(now, deadline time.Time) time.Duration {
	timeout := r.AttemptTimeout
	if !deadline.IsZero() {
		timeout = min(timeout, deadline.Sub(now))
	}
	return max(timeout, 0)
}
