package client_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/retryplane/retryplane/pkg/client"
	"github.com/retryplane/retryplane/pkg/policy"
)

func retryAlways(policy.RetryPolicy) policy.Verdict {
	return policy.Verdict{Action: policy.Retry, Outcome: policy.Failure}
}

// TestAttempts: step by step, a call obeys what Do obeys.
func TestAttempts(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, plane := newGuard(t, quick())
		calls := c.Dependency("payments").Attempts(t.Context())
		defer calls.Close()
		var last context.Context
		for calls.Next() {
			if last != nil && last.Err() == nil {
				t.Error("the context of the attempt before still lives")
			}
			last = calls.Context() //nolint:fatcontext // not nested: each attempt has its own
			calls.Done(errDown, "down", retryAlways)
			calls.Done(nil, "twice", retryAlways) // is once
		}
		failed, ok := errors.AsType[*client.Error](calls.Err())
		if !ok || failed.Attempts != 3 || failed.Reason != policy.StopAttempts || !errors.Is(failed, errDown) {
			t.Errorf("got %v", calls.Err())
		}
		if calls.Next() {
			t.Error("went on after its end")
		}
		calls.Close()
		if last.Err() == nil {
			t.Error("the last attempt's context outlived Close")
		}
		if got := plane.report(t, c); got.Requests != 1 || got.Attempts != 3 || got.Failure != 3 {
			t.Errorf("reported %+v", got)
		}
	})
}

// TestAttemptsCommit: what has begun to be answered has no deadline of ours, and counts once.
func TestAttemptsCommit(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, plane := newGuard(t, quick())
		calls := c.Dependency("payments").Attempts(t.Context())
		if !calls.Next() || !calls.Commit() || !calls.Commit() {
			t.Fatal("not committed")
		}
		<-time.After(time.Hour)
		if calls.Context().Err() != nil || calls.Next() || calls.Err() != nil {
			t.Errorf("context %v, error %v", calls.Context().Err(), calls.Err())
		}
		calls.Close()
		if got := plane.report(t, c); got.Success != 1 || got.Attempts != 1 {
			t.Errorf("reported %+v", got)
		}
	})
}

// TestAttemptsTime: an attempt that is not done in its time is a failure, whatever who made it says.
func TestAttemptsTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, plane := newGuard(t, quick())
		calls := c.Dependency("payments").Attempts(t.Context(), client.MaxAttempts(1))
		if !calls.Next() {
			t.Fatal(calls.Err())
		}
		<-calls.Context().Done()
		if calls.Commit() {
			t.Error("committed too late")
		}
		calls.Done(calls.Context().Err(), "", func(policy.RetryPolicy) policy.Verdict {
			t.Error("asked for a verdict on what the clock ended")
			return policy.Verdict{}
		})
		if calls.Next() {
			t.Error("went on")
		}
		failed, ok := errors.AsType[*client.Error](calls.Err())
		if !ok || !failed.Timeout() {
			t.Errorf("got %v", calls.Err())
		}
		calls.Close()
		if got := plane.report(t, c); got.Failure != 1 {
			t.Errorf("reported %+v", got)
		}
	})
}

// TestAttemptsAbandoned: an attempt of which nothing is heard says nothing about the dependency.
func TestAttemptsAbandoned(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, plane := newGuard(t, quick())
		calls := c.Dependency("payments").Attempts(t.Context())
		calls.Next()
		calls.Close()
		if got := plane.report(t, c); got.Ignored != 1 || got.Failure+got.Success != 0 {
			t.Errorf("reported %+v", got)
		}
	})
}
