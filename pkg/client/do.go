package client

import (
	"context"
	"time"

	"github.com/retryplane/retryplane/pkg/policy"
)

// Do calls fn, and calls it again as the policy of the dependency says: while attempts, deadline, breaker and the
// fleet's retry budget allow it, with a backoff before each further attempt. It returns nil as soon as fn does, else an
// [*Error]. If the breaker rejects the call, fn is not called at all, and the error is [ErrOpen].
//
// The context that fn gets ends with the caller's, and when the attempt's time is over; fn must heed it, for Do
// does not return before fn does. An error of fn is a failure and is retried, unless it is marked by [Permanent] or
// [Ignore], the caller's context is done, the call is declared not [Idempotent], or it is the [*Error] of a guarded
// call within fn, which has been retried already. What fn returns after its attempt's time is over counts as a
// timeout, unless it is nil.
//
// A panic in fn goes through Do and counts as nothing.
func (d *Dependency) Do(ctx context.Context, fn func(context.Context) error, opts ...CallOption) error {
	o := callOptionsOf(ctx)
	if o != (callOptions{}) {
		// They are this call's. A payment within fn must not become idempotent by them.
		ctx = context.WithValue(ctx, callOptionsKey{}, callOptions{})
	}
	for _, set := range opts {
		set(&o)
	}
	c := d.begin(ctx, o)
	permit, reason, err := c.first()
	for reason == "" {
		v := c.try(permit, fn)
		if v.Outcome == policy.Success {
			c.end(policy.StopDone, nil)
			return nil
		}
		permit, reason, err = c.next(v, true)
	}
	return c.fail(reason, err)
}

// Do is [Dependency.Do] for a function that returns a value: it returns that of the attempt that succeeded. With an error,
// which is always an [*Error], the value is T's zero value, whatever fn returned beside its own error. It is safe for
// concurrent use. d must not be nil.
func Do[T any](ctx context.Context, d *Dependency, fn func(context.Context) (T, error), opts ...CallOption) (T, error) {
	var value T
	err := d.Do(ctx, func(ctx context.Context) error {
		got, err := fn(ctx)
		if err == nil {
			value = got
		}
		return err
	}, opts...)
	return value, err
}

// try makes one attempt.
func (c *request) try(p Permit, fn func(context.Context) error) (v policy.Verdict) {
	defer func() { p.Done(v.Outcome) }() // its zero value is Ignored, which is what a panic leaves
	c.attempts++
	began := time.Now()
	ctx, cancel := context.WithTimeout(c.ctx, c.policy.Retry.AttemptTimeoutAt(began, c.deadline))
	defer cancel()
	err := fn(ctx)
	if err == nil {
		return policy.Verdict{Outcome: policy.Success, Reason: policy.StopDone}
	}
	condition, after := marking(err)
	a := policy.Attempt{Idempotent: c.idempotent.or(true), Number: c.attempts, Condition: condition}
	if ended, fullTime, ok := c.ended(began); ok && condition != policy.FuncIgnored {
		a.Condition, a.FullTime = ended, fullTime
	} else if condition == policy.FuncFailed && ctx.Err() != nil {
		a.Condition = policy.AttemptTimeout
	}
	v = c.judge(a, err)
	if v.Action != policy.Stop && after > 0 {
		v.After, v.Hint = after, policy.HintValid
	}
	return v
}
