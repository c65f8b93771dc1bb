package client_test

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/retryplane/retryplane/pkg/client"
	"github.com/retryplane/retryplane/pkg/policy"
)

// TestAdjustAttempts: what the caller says wins over the policy in force, the last word over those before it.
func TestAdjustAttempts(t *testing.T) {
	t.Parallel()
	short := policy.Background()
	short.Base, short.Cap = time.Millisecond, time.Millisecond
	for name, tc := range map[string]struct {
		ctx, args []client.CallOption
		want      int
	}{
		"as the policy says":          {want: 3},
		"more":                        {args: []client.CallOption{client.MaxAttempts(5)}, want: 5},
		"none":                        {args: []client.CallOption{client.MaxAttempts(1)}, want: 1},
		"most":                        {args: []client.CallOption{client.MaxAttempts(20)}, want: 20},
		"by the context":              {ctx: []client.CallOption{client.MaxAttempts(5)}, want: 5},
		"argument after context":      {ctx: []client.CallOption{client.MaxAttempts(5)}, args: []client.CallOption{client.MaxAttempts(2)}, want: 2},
		"preset":                      {args: []client.CallOption{client.Retry(short)}, want: 7},
		"preset, adjusted":            {args: []client.CallOption{client.Retry(short), client.MaxAttempts(4)}, want: 4},
		"preset behind":               {args: []client.CallOption{client.MaxAttempts(4), client.Retry(short)}, want: 7},
		"preset in the context":       {ctx: []client.CallOption{client.Retry(short)}, args: []client.CallOption{client.MaxAttempts(6)}, want: 6},
		"does not make it repeatable": {args: []client.CallOption{client.MaxAttempts(5), client.Idempotent(false)}, want: 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				c, _ := newGuard(t, quick())
				calls := 0
				err := c.Dependency("payments").Do(client.WithCall(t.Context(), tc.ctx...), func(context.Context) error {
					calls++
					return errDown
				}, tc.args...)
				if calls != tc.want || !errors.Is(err, errDown) {
					t.Errorf("got %d calls, want %d; %v", calls, tc.want, err)
				}
				// What was said of one call is not said of the next.
				calls = 0
				_ = c.Dependency("payments").Do(t.Context(), func(context.Context) error { calls++; return errDown })
				if calls != 3 {
					t.Errorf("%d calls of the next one, want 3", calls)
				}
			})
		})
	}
}

func TestAdjustTimes(t *testing.T) {
	t.Parallel()
	hang := func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }
	for name, tc := range map[string]struct {
		opts   []client.CallOption
		took   time.Duration
		reason policy.StopReason
	}{
		// The default: 3 attempts of 3 s, and two waits of 1 ms.
		"as the policy says":    {nil, 9*time.Second + 2*time.Millisecond, policy.StopAttempts},
		"timeout":               {[]client.CallOption{client.Timeout(700 * time.Millisecond)}, 700 * time.Millisecond, policy.StopDeadline},
		"attempt timeout":       {[]client.CallOption{client.AttemptTimeout(100 * time.Millisecond)}, 302 * time.Millisecond, policy.StopAttempts},
		"a longer one, cut":     {[]client.CallOption{client.AttemptTimeout(time.Minute)}, 10 * time.Second, policy.StopDeadline},
		"both longer":           {[]client.CallOption{client.AttemptTimeout(20 * time.Second), client.Timeout(time.Minute), client.MaxAttempts(1)}, 20 * time.Second, policy.StopAttempts},
		"preset for interfaces": {[]client.CallOption{client.Retry(policy.Interactive()), client.Timeout(time.Second)}, time.Second, policy.StopDeadline},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				c, _ := newGuard(t, quick())
				start := time.Now()
				err := c.Dependency("payments").Do(t.Context(), hang, tc.opts...)
				var got *client.Error
				if took := time.Since(start); !errors.As(err, &got) || got.Reason != tc.reason || took != tc.took {
					t.Errorf("got %v after %v, want %q after %v", err, took, tc.reason, tc.took)
				}
			})
		})
	}

	t.Run("the caller's own deadline is earlier", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			c, _ := newGuard(t, quick())
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			start := time.Now()
			err := c.Dependency("payments").Do(ctx, hang, client.Timeout(time.Minute))
			if took := time.Since(start); took != time.Second || !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("got %v after %v", err, took)
			}
		})
	})
}

// TestAdjustTransport: through a transport the context carries the options.
func TestAdjustTransport(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		method string
		status int
		header http.Header
		opts   []client.CallOption
		want   int
	}{
		"500":                        {method: http.MethodGet, status: 500, want: 1},
		"500, retried":               {method: http.MethodGet, status: 500, opts: []client.CallOption{client.Retry500(true)}, want: 3},
		"500, retried, then not":     {method: http.MethodGet, status: 500, opts: []client.CallOption{client.Retry500(true), client.Retry500(false)}, want: 1},
		"500 of a write":             {method: http.MethodPost, status: 500, opts: []client.CallOption{client.Retry500(true)}, want: 1},
		"500 of a write with a key":  {method: http.MethodPost, status: 500, header: http.Header{"Idempotency-Key": {"k"}}, opts: []client.CallOption{client.Retry500(true)}, want: 3},
		"throttled write":            {method: http.MethodPost, status: 429, want: 1},
		"throttled write, retried":   {method: http.MethodPost, status: 429, opts: []client.CallOption{client.RetryThrottledWrites(true)}, want: 3},
		"unavailable write":          {method: http.MethodPost, status: 503, want: 1},
		"unavailable write, retried": {method: http.MethodPost, status: 503, opts: []client.CallOption{client.RetryUnavailableWrites(true)}, want: 3},
		"attempts":                   {method: http.MethodGet, status: 503, opts: []client.CallOption{client.MaxAttempts(5)}, want: 5},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				c, _ := newGuard(t, quick())
				sends := 0
				rt := c.Transport("api", roundTripper(func(*http.Request) (*http.Response, error) {
					sends++
					return &http.Response{StatusCode: tc.status, Header: http.Header{"Retry-After": {"0"}}, Body: http.NoBody}, nil
				}))
				req, err := http.NewRequestWithContext(client.WithCall(t.Context(), tc.opts...), tc.method, "http://api.test", nil)
				if err != nil {
					t.Fatal(err)
				}
				for k, v := range tc.header {
					req.Header[k] = v
				}
				resp, err := rt.RoundTrip(req)
				if err != nil || resp.StatusCode != tc.status || sends != tc.want {
					t.Errorf("got %v, %v after %d sends, want %d", resp, err, sends, tc.want)
				}
			})
		})
	}
}

// TestAdjustBounds: what is out of bounds is an error that names the field and its limit, and nothing is sent or counted.
func TestAdjustBounds(t *testing.T) {
	t.Parallel()
	wild := policy.Background()
	wild.RetryAfterCap, wild.Jitter = 2*time.Hour, 99
	for name, tc := range map[string]struct {
		opt  client.CallOption
		want string
	}{
		"no attempts":     {client.MaxAttempts(0), "retry.attempts: must be 1 to 20"},
		"many attempts":   {client.MaxAttempts(21), "retry.attempts: must be 1 to 20"},
		"no time":         {client.Timeout(0), "retry.deadline_ms: must be 1 to 3600000"},
		"negative time":   {client.Timeout(-time.Second), "retry.deadline_ms: must be 1 to 3600000"},
		"much time":       {client.Timeout(2 * time.Hour), "retry.deadline_ms: must be 1 to 3600000"},
		"no attempt time": {client.AttemptTimeout(0), "retry.attempt_timeout_ms: must be 1 to 3600000"},
		"policy of zeros": {client.Retry(policy.RetryPolicy{}), "retry.attempts: must be 1 to 20"},
		"wild policy":     {client.Retry(wild), "retry.retry_after_cap_ms: must be 0 to 3600000"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				c, plane := newGuard(t, quick())
				var how client.Call
				check := func(err error) {
					t.Helper()
					var failed *client.Error
					var field *policy.FieldError
					if !errors.As(err, &failed) || !errors.As(err, &field) || failed.Attempts != 0 ||
						!strings.Contains(err.Error(), "not sent: call options: ") || !strings.Contains(err.Error(), tc.want) {
						t.Errorf("got %v, want %q", err, tc.want)
					}
					if how.Reason != policy.StopNotRetryable || how.Attempts != 0 {
						t.Errorf("recorded %+v", how)
					}
				}
				check(c.Dependency("payments").Do(t.Context(), func(context.Context) error {
					t.Error("called")
					return nil
				}, tc.opt, client.Record(&how)))

				body := &closeCounter{Reader: strings.NewReader("body")}
				req, err := http.NewRequestWithContext(client.WithCall(t.Context(), tc.opt, client.Record(&how)), http.MethodPut, "http://api.test", body)
				if err != nil {
					t.Fatal(err)
				}
				_, err = c.Transport("payments", roundTripper(func(*http.Request) (*http.Response, error) {
					t.Error("sent")
					return nil, errDown
				})).RoundTrip(req)
				check(err)
				if n := body.closed.Load(); n != 1 {
					t.Errorf("body closed %d times", n)
				}
				if r := plane.report(t, c); r.Requests != 0 || r.Attempts != 0 || r.RejectedBreaker != 0 {
					t.Errorf("reported %+v", r)
				}
			})
		})
	}
}
