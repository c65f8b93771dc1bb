package client

import (
	"context"
	"time"

	"github.com/retryplane/retryplane/pkg/policy"
)

// Attempts is a guarded call whose attempts are made by who guards another protocol, such as pkg/client/grpcretry: one
// after the other, each possibly longer than a function. For everything else there are [Dependency.Do] and
// [Client.Transport].
//
//	calls := dep.Attempts(ctx)
//	defer calls.Close()
//	for calls.Next() {
//		err := send(calls.Context())
//		calls.Done(err, word(err), func(p policy.RetryPolicy) policy.Verdict { ... })
//	}
//	return calls.Err()
//
// It belongs to one goroutine at a time.
type Attempts struct {
	call       request
	permit     Permit
	current    *attempt       // the latest; nil before the first
	pending    bool           // it was neither done nor committed
	verdict    policy.Verdict // on the latest
	fixed      bool           // no further attempt may follow
	idempotent bool
	finished   bool
	err        error
}

// Attempts begins a guarded call. ctx bounds it, and may carry options ([WithCall]). Close ends it.
func (d *Dependency) Attempts(ctx context.Context, opts ...CallOption) *Attempts {
	o := callOptionsOf(ctx)
	for _, set := range opts {
		set(&o)
	}
	return &Attempts{call: d.begin(ctx, o), idempotent: o.idempotent.or(false)}
}

// Next reports whether an attempt may be sent now. Before the first it asks the breaker; before each further one all
// gates of the policy, and it waits out the backoff while the budget is drawn from. When it returns false, the call is
// over, and Err says how.
func (a *Attempts) Next() bool {
	if a.finished {
		return false
	}
	var reason policy.StopReason
	var err error
	if a.current == nil {
		a.permit, reason, err = a.call.first()
	} else {
		if a.pending {
			a.Done(context.Canceled, "", func(policy.RetryPolicy) policy.Verdict { return policy.Verdict{Reason: policy.StopNotRetryable} })
		}
		a.current.release()
		a.permit, reason, err = a.call.next(a.verdict, !a.fixed)
	}
	if reason != "" {
		a.finished = true
		if reason == policy.StopDone {
			a.call.end(reason, nil)
		} else {
			a.err = a.call.fail(reason, err)
		}
		return false
	}
	a.call.attempts++
	a.pending = true
	a.current = &attempt{}
	a.current.begin(&a.call, nil, time.Now())
	return true
}

// Number is that of the attempt under way, 1 for the first; 0 before it.
func (a *Attempts) Number() int { return a.call.attempts }

// Context is that of the attempt under way: it ends with the caller's, when the attempt's time is over before Commit, when
// the next attempt begins, and with Close.
func (a *Attempts) Context() context.Context { return a.current }

// Policy is the policy in force when the call began, with the caller's adjustments.
func (a *Attempts) Policy() policy.RetryPolicy { return a.call.policy.Retry }

// Idempotent says whether the call may be carried out twice, unless the caller did ([Idempotent]), and returns what
// counts. Without it the call may not.
func (a *Attempts) Idempotent(otherwise bool) bool {
	a.idempotent = a.call.idempotent.or(otherwise)
	return a.idempotent
}

// Done ends the attempt under way: err is its error, nil if it has none, and word how it ended, for logs. Unless the
// caller or the clock ended it, decide says what that means; otherwise it is not called.
func (a *Attempts) Done(err error, word string, decide func(policy.RetryPolicy) policy.Verdict) {
	if !a.pending {
		return
	}
	a.pending = false
	a.current.silent = a.current.alarm.Load().timer.Stop()
	expired := !a.current.silent
	c := &a.call
	if condition, fullTime, ended := c.ended(a.current.began); err != nil && (ended || expired) {
		if !ended {
			condition = policy.AttemptTimeout
			err = &timeoutError{"no answer", a.current.timeout}
		}
		a.verdict = c.judge(policy.Attempt{
			Condition: condition, FullTime: fullTime, Number: c.attempts, Idempotent: a.idempotent,
		}, err)
		c.lastWord = ""
	} else {
		a.verdict = decide(c.policy.Retry)
		c.last, c.lastErr, c.lastWord = policy.Attempt{}, err, word
		if err != nil {
			c.errs = append(c.errs, err)
		}
	}
	a.permit.Done(a.verdict.Outcome)
}

// Commit ends the attempt under way as a success from which there is no way back: the dependency began to answer. Its
// context lives on without a deadline of ours, until Close. It returns false if the attempt's time was over before.
func (a *Attempts) Commit() bool {
	if !a.pending {
		return true
	}
	if !a.current.alarm.Load().timer.Stop() {
		return false
	}
	a.pending = false
	a.current.silent = true
	a.permit.Done(policy.Success)
	a.finished = true
	a.call.end(policy.StopDone, nil)
	return true
}

// Fix says that no further attempt may follow this one, whatever its end: what was sent cannot be sent again.
func (a *Attempts) Fix() { a.fixed = true }

// Err is how the call failed, an [*Error]; nil while it is under way, and if the dependency answered.
func (a *Attempts) Err() error { return a.err }

// Close ends the contexts, and an attempt under way as ignored. It may be called again.
func (a *Attempts) Close() {
	if a.pending {
		a.pending = false
		a.permit.Done(policy.Ignored)
	}
	if a.current != nil {
		a.current.release()
	}
	if !a.finished {
		a.finished = true
		a.err = a.call.fail(policy.StopCancelled, context.Canceled)
	}
}
