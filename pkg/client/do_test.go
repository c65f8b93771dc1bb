package client_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/retryplane/retryplane/pkg/client"
	"github.com/retryplane/retryplane/pkg/policy"
)

var errDown = errors.New("down")

func TestDoRetries(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, plane := newGuard(t, quick())
		var how client.Call
		calls := 0
		err := c.Dependency("payments").Do(t.Context(), func(context.Context) error {
			if calls++; calls < 3 {
				return errDown
			}
			return nil
		}, client.Record(&how))
		if err != nil || calls != 3 {
			t.Fatalf("got %v after %d calls, want success after 3", err, calls)
		}
		if how.Source != client.SourceFleet {
			t.Errorf("source %q", how.Source) // its retries were granted
		}
		if how.Attempts != 3 || how.Reason != policy.StopDone || how.Dependency != "payments" || how.Elapsed < 2*time.Millisecond {
			t.Errorf("recorded %+v", how)
		}
		got := plane.report(t, c)
		if got.Requests != 1 || got.Attempts != 3 || got.Success != 1 || got.Failure != 2 {
			t.Errorf("reported %+v", got)
		}
		if got := c.Stats().Dependencies["payments"].RequestAttempts; got != [5]int64{2: 1} {
			t.Errorf("requests by attempts: %v", got)
		}
	})
}

// What ends a call is told apart, and what the function returned is kept.
func TestDoEnds(t *testing.T) {
	t.Parallel()
	own := errors.New("own")
	cancelled := func(cause error) func(*testing.T) (context.Context, func(context.Context) error) {
		return func(t *testing.T) (context.Context, func(context.Context) error) {
			ctx, cancel := context.WithCancel(t.Context())
			return ctx, func(context.Context) error { cancel(); return cause }
		}
	}
	always := func(err error) func(*testing.T) (context.Context, func(context.Context) error) {
		return func(t *testing.T) (context.Context, func(context.Context) error) {
			return t.Context(), func(context.Context) error { return err }
		}
	}
	for _, tc := range []struct {
		name     string
		call     func(*testing.T) (context.Context, func(context.Context) error)
		options  []client.CallOption
		grants   int64
		attempts int
		reason   policy.StopReason
		is       []error
		isNot    []error
		failures int64
	}{
		{
			name: "attempts", call: always(own), grants: 9,
			attempts: 3, reason: policy.StopAttempts, is: []error{own}, isNot: []error{client.ErrBudget}, failures: 3,
		},
		{
			name: "budget", call: always(own), grants: 1,
			attempts: 2, reason: policy.StopBudget, is: []error{own, client.ErrBudget}, failures: 2,
		},
		{
			name: "permanent", call: always(client.Permanent(own)), grants: 9,
			attempts: 1, reason: policy.StopNotRetryable, is: []error{own}, failures: 1,
		},
		{
			name: "permanent, wrapped", call: always(fmt.Errorf("charge: %w", client.Permanent(own))), grants: 9,
			attempts: 1, reason: policy.StopNotRetryable, is: []error{own}, failures: 1,
		},
		{
			name: "ignored", call: always(client.Ignore(own)), grants: 9,
			attempts: 1, reason: policy.StopNotRetryable, is: []error{own},
		},
		{
			name: "not idempotent", call: always(own), options: []client.CallOption{client.Idempotent(false)}, grants: 9,
			attempts: 1, reason: policy.StopNotRetryable, is: []error{own}, failures: 1,
		},
		{
			name: "cancelled", call: cancelled(context.Canceled), grants: 9,
			attempts: 1, reason: policy.StopCancelled, is: []error{context.Canceled},
		},
		{
			name: "cancelled, with another error", call: cancelled(own), grants: 9,
			attempts: 1, reason: policy.StopCancelled, is: []error{context.Canceled, own},
		},
		{
			name: "a context error that is not the caller's", call: always(context.DeadlineExceeded), grants: 9,
			attempts: 3, reason: policy.StopAttempts, is: []error{context.DeadlineExceeded}, failures: 3,
		},
		{
			name: "breaker of a dependency below", call: always(&client.OpenError{Dependency: "ledger"}), grants: 9,
			attempts: 1, reason: policy.StopNotRetryable,
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				c, plane := newGuard(t, quick())
				plane.grants = tc.grants
				ctx, fn := tc.call(t)
				calls := 0
				err := c.Dependency("payments").Do(ctx, func(ctx context.Context) error {
					calls++
					return fn(ctx)
				}, tc.options...)
				var got *client.Error
				if !errors.As(err, &got) {
					t.Fatalf("got %v, want a *client.Error", err)
				}
				if calls != tc.attempts || got.Attempts != tc.attempts || got.Reason != tc.reason {
					t.Errorf("got %d calls, %d attempts, %q; want %d, %q", calls, got.Attempts, got.Reason, tc.attempts, tc.reason)
				}
				for _, want := range tc.is {
					if !errors.Is(err, want) {
						t.Errorf("%v is not %v", err, want)
					}
				}
				for _, other := range tc.isNot {
					if errors.Is(err, other) {
						t.Errorf("%v is %v", err, other)
					}
				}
				if r := plane.report(t, c); r.Failure != tc.failures || r.Success != 0 || r.Attempts != int64(tc.attempts) {
					t.Errorf("reported %+v, want %d failures of %d", r, tc.failures, tc.attempts)
				}
			})
		})
	}
}

// A guarded call within a guarded call has retried for both.
func TestDoWithinDo(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, _ := newGuard(t, quick())
		calls := 0
		err := c.Dependency("outer").Do(t.Context(), func(ctx context.Context) error {
			return c.Dependency("inner").Do(ctx, func(context.Context) error { calls++; return errDown })
		})
		if !errors.Is(err, errDown) || calls != 3 {
			t.Errorf("got %v after %d calls, want 3", err, calls)
		}
	})
}

// What is said of a call is not said of the calls within it.
func TestDoKeepsItsOptions(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, _ := newGuard(t, quick())
		var how client.Call
		sends := 0
		post := c.Transport("inner", roundTripper(func(*http.Request) (*http.Response, error) {
			sends++
			return &http.Response{StatusCode: http.StatusServiceUnavailable, Body: http.NoBody}, nil
		}))
		ctx := client.WithCall(t.Context(), client.Idempotent(true), client.Record(&how))
		err := c.Dependency("outer").Do(ctx, func(ctx context.Context) error {
			req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://api.test", nil)
			if err != nil {
				return err
			}
			_, err = post.RoundTrip(req)
			return err
		})
		if err != nil || sends != 1 || how.Dependency != "outer" {
			t.Errorf("got %v after %d sends, recorded %+v", err, sends, how)
		}
	})
}

func TestDoTimes(t *testing.T) {
	t.Parallel()
	p := policy.Default()
	p.Retry.Attempts, p.Retry.Deadline, p.Retry.AttemptTimeout = 5, 5*time.Second, 2*time.Second
	p.Retry.Base, p.Retry.Cap, p.Retry.Jitter = 100*time.Millisecond, time.Second, policy.JitterNone
	p.Breaker.LocalFailures = 0
	hang := func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }

	t.Run("attempt timeouts and deadline", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			c, plane := newGuard(t, p)
			start := time.Now()
			var began []time.Duration
			err := c.Dependency("payments").Do(t.Context(), func(ctx context.Context) error {
				began = append(began, time.Since(start))
				return hang(ctx)
			})
			var got *client.Error
			if !errors.As(err, &got) || got.Reason != policy.StopDeadline || !got.Timeout() {
				t.Errorf("got %v", err)
			}
			// 2 s, wait 0.1 s, 2 s, wait 0.2 s, and the rest of the 5 s.
			want := []time.Duration{0, 2100 * time.Millisecond, 4300 * time.Millisecond}
			if !slices.Equal(began, want) {
				t.Errorf("attempts began at %v, want %v", began, want)
			}
			if took := time.Since(start); took != 5*time.Second {
				t.Errorf("took %v, want the deadline of 5 s", took)
			}
			// The third did not have its full time: that it failed says nothing.
			if r := plane.report(t, c); r.Failure != 2 || r.Ignored != 1 {
				t.Errorf("reported %+v", r)
			}
		})
	})

	t.Run("the caller's deadline is the nearer one", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			c, plane := newGuard(t, p)
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			start := time.Now()
			err := c.Dependency("payments").Do(ctx, hang)
			var got *client.Error
			if !errors.As(err, &got) || got.Reason != policy.StopDeadline || got.Attempts != 1 || !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("got %v", err)
			}
			if took := time.Since(start); took != time.Second {
				t.Errorf("took %v", took)
			}
			if r := plane.report(t, c); r.Failure != 0 || r.Ignored != 1 {
				t.Errorf("reported %+v", r)
			}
		})
	})

	// A caller whose own deadline is what an attempt may take must not hide that the dependency hangs.
	t.Run("the caller's deadline is the attempt's", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			c, plane := newGuard(t, p)
			ctx, cancel := context.WithTimeout(t.Context(), p.Retry.AttemptTimeout)
			defer cancel()
			time.Sleep(time.Millisecond)
			if err := c.Dependency("payments").Do(ctx, hang); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("got %v", err)
			}
			if r := plane.report(t, c); r.Failure != 1 {
				t.Errorf("reported %+v", r)
			}
		})
	})

	t.Run("no wait that does not fit, and nothing drawn for it", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			p := p
			p.Retry.Base, p.Retry.Cap = time.Second, time.Second
			c, plane := newGuard(t, p)
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			start := time.Now()
			err := c.Dependency("payments").Do(ctx, func(context.Context) error { return errDown })
			var got *client.Error
			if !errors.As(err, &got) || got.Reason != policy.StopDeadline || !errors.Is(err, errDown) {
				t.Errorf("got %v", err)
			}
			if took := time.Since(start); took != 0 {
				t.Errorf("slept %v", took)
			}
			if plane.report(t, c); plane.grants != 1000 {
				t.Errorf("drew %d", 1000-plane.grants)
			}
		})
	})

	t.Run("no wait after the last attempt", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			p := p
			p.Retry.Attempts = 2
			c, _ := newGuard(t, p)
			start := time.Now()
			if err := c.Dependency("payments").Do(t.Context(), func(context.Context) error { return errDown }); err == nil {
				t.Error("no error")
			}
			if took := time.Since(start); took != 100*time.Millisecond {
				t.Errorf("took %v, want the one wait of 100 ms", took)
			}
		})
	})

	t.Run("cancelled while waiting", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			c, _ := newGuard(t, p)
			ctx, cancel := context.WithCancel(t.Context())
			start := time.Now()
			time.AfterFunc(30*time.Millisecond, cancel)
			calls := 0
			err := c.Dependency("payments").Do(ctx, func(context.Context) error { calls++; return errDown })
			var got *client.Error
			if !errors.As(err, &got) || got.Reason != policy.StopCancelled || !errors.Is(err, context.Canceled) || !errors.Is(err, errDown) {
				t.Errorf("got %v", err)
			}
			if took := time.Since(start); took != 30*time.Millisecond || calls != 1 {
				t.Errorf("took %v and %d calls", took, calls)
			}
		})
	})

	t.Run("cancelled before", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			c, _ := newGuard(t, p)
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			err := c.Dependency("payments").Do(ctx, func(context.Context) error { t.Error("called"); return nil })
			var got *client.Error
			if !errors.As(err, &got) || got.Attempts != 0 || !errors.Is(err, context.Canceled) {
				t.Errorf("got %v", err)
			}
		})
	})

	t.Run("what the dependency demands", func(t *testing.T) {
		t.Parallel()
		for _, tc := range []struct {
			after  time.Duration
			took   time.Duration
			reason policy.StopReason
		}{
			{0, 100*time.Millisecond + 200*time.Millisecond + 400*time.Millisecond + 800*time.Millisecond, policy.StopAttempts},
			{6 * time.Second, 0, policy.StopRetryAfter},
		} {
			synctest.Test(t, func(t *testing.T) {
				c, _ := newGuard(t, p)
				start := time.Now()
				err := c.Dependency("payments").Do(t.Context(), func(context.Context) error {
					return client.RetryAfter(errDown, tc.after)
				})
				var got *client.Error
				if !errors.As(err, &got) || got.Reason != tc.reason || !errors.Is(err, errDown) {
					t.Errorf("after %v: got %v", tc.after, err)
				}
				if took := time.Since(start); took != tc.took {
					t.Errorf("after %v: took %v, want %v", tc.after, took, tc.took)
				}
			})
		}
		synctest.Test(t, func(t *testing.T) {
			c, _ := newGuard(t, p)
			start, calls := time.Now(), 0
			err := c.Dependency("payments").Do(t.Context(), func(context.Context) error {
				if calls++; calls == 1 {
					return client.RetryAfter(errDown, time.Second)
				}
				return nil
			})
			if took := time.Since(start); err != nil || took < time.Second || took > 1100*time.Millisecond {
				t.Errorf("got %v after %v, want 1 s and up to 100 ms of jitter", err, took)
			}
		})
	})
}

// What the fleet learned from other instances holds for this one too.
func TestDoHeedsTheFleet(t *testing.T) {
	t.Parallel()
	fine := func(context.Context) error { return nil }

	t.Run("not before", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			c, plane := newGuard(t, quick())
			plane.set(func(g *generous) { g.notBefore = time.Now().Add(2 * time.Second) })
			d := c.Dependency("payments")
			d.Do(t.Context(), fine)
			plane.report(t, c)
			start, calls := time.Now(), 0
			err := d.Do(t.Context(), func(context.Context) error {
				if calls++; calls == 1 {
					return errDown
				}
				return nil
			})
			if took := time.Since(start); err != nil || took < 2*time.Second || took > 2010*time.Millisecond {
				t.Errorf("got %v after %v, want a retry after 2 s", err, took)
			}
		})
	})

	// The first attempt was sent, so the call is not ErrOpen, by which callers tell that nothing was.
	t.Run("breaker opens while a retry waits", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			c, plane := newGuard(t, quick())
			d := c.Dependency("payments")
			d.Do(t.Context(), fine)
			plane.report(t, c)
			calls := 0
			err := d.Do(t.Context(), func(context.Context) error {
				calls++
				plane.set(func(g *generous) { g.open = true })
				return errDown
			})
			var got *client.Error
			if !errors.As(err, &got) || got.Reason != policy.StopBreaker || calls != 1 || !errors.Is(err, errDown) || errors.Is(err, client.ErrOpen) {
				t.Errorf("got %v after %d calls", err, calls)
			}
			if err := d.Do(t.Context(), fine); !errors.Is(err, client.ErrOpen) {
				t.Errorf("got %v, want ErrOpen", err)
			}
		})
	})

	t.Run("cut off", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			c, plane := newGuard(t, quick())
			plane.set(func(g *generous) { g.down = true })
			d := c.Dependency("payments")
			for range 40 {
				if err := d.Do(t.Context(), fine); err != nil {
					t.Fatal(err)
				}
				time.Sleep(100 * time.Millisecond)
			}
			err := d.Do(t.Context(), func(context.Context) error { return errDown })
			var got *client.Error
			if !errors.As(err, &got) || got.Attempts != 3 || got.Source != client.SourceLocal {
				t.Errorf("got %+v, want two retries out of the instance's own requests", got)
			}
		})
	})
}

func TestDoPanics(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, plane := newGuard(t, quick())
		func() {
			defer func() {
				if got := recover(); got != "mine" {
					t.Errorf("recovered %v", got)
				}
			}()
			c.Dependency("payments").Do(t.Context(), func(context.Context) error { panic("mine") })
		}()
		if r := plane.report(t, c); r.Attempts != 1 || r.Ignored != 1 {
			t.Errorf("reported %+v: the attempt must not stay in flight", r)
		}
	})
}

func TestMarksOfNil(t *testing.T) {
	t.Parallel()
	if client.Permanent(nil) != nil || client.Ignore(nil) != nil || client.RetryAfter(nil, time.Second) != nil {
		t.Error("a mark made an error of nil")
	}
}

func TestEventsOfCalls(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var events []client.Event
		c, _ := newGuard(t, quick(), client.WithEvents(func(e client.Event) {
			if e.Kind == client.EventRetry || e.Kind == client.EventGiveUp {
				events = append(events, e)
			}
		}))
		c.Dependency("payments").Do(t.Context(), func(context.Context) error { return errDown })
		synctest.Wait()
		want := []client.Event{
			{Kind: client.EventRetry, Attempt: 1, Wait: time.Millisecond, Reason: "func_failed"},
			{Kind: client.EventRetry, Attempt: 2, Wait: time.Millisecond, Reason: "func_failed"},
			{Kind: client.EventGiveUp, Attempt: 3, Reason: string(policy.StopAttempts)},
		}
		if len(events) != len(want) {
			t.Fatalf("got %+v", events)
		}
		for i, e := range events {
			if e.Kind != want[i].Kind || e.Attempt != want[i].Attempt || e.Wait != want[i].Wait || e.Reason != want[i].Reason ||
				e.Dependency != "payments" || !errors.Is(e.Err, errDown) {
				t.Errorf("event %d: got %+v, want %+v", i, e, want[i])
			}
		}
	})
}
