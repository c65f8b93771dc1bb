package client

import (
	"context"
	"errors"
	"net/http/httptrace"
	"sync"
	"testing"
	"testing/synctest"
)

type testKey struct{}

// TestAttemptContext: whatever is asked of it first, and whenever it ends, it behaves like a context of the standard
// library.
func TestAttemptContext(t *testing.T) {
	t.Parallel()
	cause, callers := errors.New("cause"), errors.New("the caller's")
	for name, end := range map[string]func(x *attemptContext, cancel context.CancelCauseFunc) error{
		"ended":       func(x *attemptContext, _ context.CancelCauseFunc) error { x.end(cause); return cause },
		"ended twice": func(x *attemptContext, _ context.CancelCauseFunc) error { x.end(cause); x.end(nil); return cause },
		"released":    func(x *attemptContext, _ context.CancelCauseFunc) error { x.end(nil); return context.Canceled },
		"caller":      func(_ *attemptContext, cancel context.CancelCauseFunc) error { cancel(callers); return callers },
		"caller, then ended": func(x *attemptContext, cancel context.CancelCauseFunc) error {
			cancel(callers)
			x.end(cause)
			return callers
		},
		"ended, then caller": func(x *attemptContext, cancel context.CancelCauseFunc) error {
			x.end(cause)
			cancel(callers)
			return cause
		},
	} {
		for _, early := range []bool{true, false} {
			synctest.Test(t, func(t *testing.T) {
				parent, cancel := context.WithCancelCause(context.WithValue(t.Context(), testKey{}, "value"))
				defer cancel(nil)
				x := &attemptContext{parent: parent}
				if x.Err() != nil || x.Value(testKey{}) != "value" {
					t.Fatalf("%s: at first: %v, %v", name, x.Err(), x.Value(testKey{}))
				}
				var ran bool
				var below context.Context
				follow := func() {
					var stop context.CancelFunc
					below, stop = context.WithCancel(x) //nolint:fatcontext // one context, made before or after the end
					t.Cleanup(stop)
					context.AfterFunc(x, func() { ran = true })
				}
				if early {
					follow()
				}
				want := end(x, cancel)
				if !early {
					follow()
				}
				synctest.Wait()
				if !errors.Is(x.Err(), context.Canceled) || !errors.Is(below.Err(), context.Canceled) || !ran {
					t.Errorf("%s, early %v: ended with %v, below with %v, function ran: %v", name, early, x.Err(), below.Err(), ran)
				}
				if got := [...]error{context.Cause(x), context.Cause(below)}; got != [...]error{want, want} {
					t.Errorf("%s, early %v: causes %v, want %v", name, early, got, want)
				}
				if got := x.endedBy(cause); got != errors.Is(want, cause) {
					t.Errorf("%s: ended by the cause: %v", name, got)
				}
				<-x.Done()
			})
		}
	}
}

// TestAttemptCauseFirst: who asks for the cause only, never for the end, gets it too.
func TestAttemptCauseFirst(t *testing.T) {
	t.Parallel()
	cause := errors.New("cause")
	parent, cancel := context.WithCancel(t.Context())
	defer cancel()
	x := &attemptContext{parent: parent}
	x.end(cause)
	if got := context.Cause(x); !errors.Is(got, cause) {
		t.Errorf("got %v", got)
	}
}

// TestAttemptTrace: the transport finds our trace, and through it the caller's.
func TestAttemptTrace(t *testing.T) {
	t.Parallel()
	var calls int
	parent := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{
		GotConn:      func(httptrace.GotConnInfo) { calls++ },
		WroteRequest: func(httptrace.WroteRequestInfo) { calls++ },
	})
	x := &attemptContext{parent: parent}
	var wg sync.WaitGroup
	found := make([]*httptrace.ClientTrace, 8)
	for i := range found {
		wg.Go(func() { found[i] = httptrace.ContextClientTrace(x) })
	}
	wg.Wait()
	for _, trace := range found {
		if trace != found[0] {
			t.Fatal("two traces for one attempt")
		}
	}
	found[0].GotConn(httptrace.GotConnInfo{})
	found[0].WroteRequest(httptrace.WroteRequestInfo{})
	if calls != 2 || x.trace.Load().conns.Load() != 1 {
		t.Errorf("the caller's hooks were called %d times, ours counted %d connections", calls, x.trace.Load().conns.Load())
	}
}
