package client_test

import (
	"context"
	"fmt"
	"net/http"
	"testing"
	"testing/synctest"

	"github.com/retryplane/retryplane/pkg/client"
)

// TestErrorTexts: people read these first. They used to say the name and the reason twice, as in
// "payments: not sent (breaker): payments: breaker open (fleet), retry after 1m0s".
func TestErrorTexts(t *testing.T) {
	t.Parallel()
	down := func(context.Context) error { return errDown }
	for name, tc := range map[string]struct {
		open   bool
		grants int64
		call   func(ctx context.Context, c *client.Client) error
		want   string
	}{
		"breaker": {
			open: true,
			call: func(ctx context.Context, c *client.Client) error { return c.Dependency("payments").Do(ctx, down) },
			want: "payments: not sent: breaker open (fleet), retry after 1m0s",
		},
		"breaker, through a transport": {
			open: true,
			call: func(ctx context.Context, c *client.Client) error {
				req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://api.test/", nil)
				if err != nil {
					return err
				}
				_, err = c.Transport("payments", nil).RoundTrip(req)
				return err
			},
			want: "payments: not sent: breaker open (fleet), retry after 1m0s",
		},
		"breaker of a dependency below": {
			call: func(ctx context.Context, c *client.Client) error {
				return c.Dependency("payments").Do(ctx, func(context.Context) error {
					return fmt.Errorf("ask the ledger: %w", &client.OpenError{Dependency: "ledger", Source: client.SourceLocal})
				})
			},
			want: "payments: 1 attempt (not_retryable): ask the ledger: ledger: breaker open (local)",
		},
		"attempts": {
			grants: 9,
			call:   func(ctx context.Context, c *client.Client) error { return c.Dependency("payments").Do(ctx, down) },
			want:   "payments: 3 attempts: down",
		},
		"budget": {
			grants: 1,
			call:   func(ctx context.Context, c *client.Client) error { return c.Dependency("payments").Do(ctx, down) },
			want:   "payments: 2 attempts (budget): down",
		},
		"cancelled before": {
			call: func(ctx context.Context, c *client.Client) error {
				ctx, cancel := context.WithCancel(ctx)
				cancel()
				return c.Dependency("payments").Do(ctx, down)
			},
			want: "payments: not sent: context canceled",
		},
		"name": {
			call: func(ctx context.Context, c *client.Client) error { return c.Dependency("Payments").Do(ctx, down) },
			want: `Payments: not sent: dependency name "Payments": must be 1 to 128 characters of a-z 0-9 . _ / @ -, the first a letter or digit`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				c, plane := newGuard(t, quick())
				plane.set(func(g *generous) { g.open, g.grants = tc.open, tc.grants })
				if tc.open {
					_ = c.Dependency("payments").Do(t.Context(), func(context.Context) error { return nil })
					plane.report(t, c)
				}
				err := tc.call(t.Context(), c)
				if err == nil || err.Error() != tc.want {
					t.Errorf("got  %v\nwant %s", err, tc.want)
				}
			})
		})
	}
}
