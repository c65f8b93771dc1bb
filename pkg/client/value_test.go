package client_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"

	"github.com/retryplane/retryplane/pkg/client"
	"github.com/retryplane/retryplane/pkg/policy"
)

// TestDoValue: the value is that of the attempt that succeeded, and there is none beside an error.
func TestDoValue(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, plane := newGuard(t, quick())
		d := c.Dependency("crm")
		calls := 0
		name, err := client.Do(t.Context(), d, func(context.Context) (string, error) {
			if calls++; calls < 3 {
				return "half a name", errDown
			}
			return "Ada", nil
		})
		if name != "Ada" || err != nil || calls != 3 {
			t.Errorf("got %q, %v after %d calls", name, err, calls)
		}

		var how client.Call
		name, err = client.Do(t.Context(), d, func(context.Context) (string, error) {
			return "half a name", errDown
		}, client.Idempotent(false), client.Record(&how))
		var failed *client.Error
		if name != "" || !errors.As(err, &failed) || !errors.Is(err, errDown) || how.Attempts != 1 || how.Reason != policy.StopNotRetryable {
			t.Errorf("got %q, %v, %+v", name, err, how)
		}

		plane.set(func(g *generous) { g.open = true })
		plane.report(t, c)
		count, err := client.Do(t.Context(), d, func(context.Context) (int, error) { t.Error("called"); return 1, nil })
		if count != 0 || !errors.Is(err, client.ErrOpen) {
			t.Errorf("got %d, %v", count, err)
		}
	})
}
