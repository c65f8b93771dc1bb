package client

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/retryplane/retryplane/pkg/policy"
	"github.com/retryplane/retryplane/pkg/wire"
)

func TestServerless(t *testing.T) {
	bubble(t, func(t *testing.T, p *plane, c *Client) {
		d := c.Dependency("a")
		for range 50 {
			passes(t, d)
			time.Sleep(100 * time.Millisecond)
		}
		synctest.Wait()
		// A view that is old is renewed, and nothing else runs.
		if n := len(p.seen()); n < 1 || n > 3 {
			t.Errorf("%d syncs before Flush", n)
		}
		passes(t, d)
		if err := c.Flush(t.Context()); err != nil {
			t.Error(err)
		}
		time.Sleep(time.Hour)
		synctest.Wait()
		if n := len(p.seen()); n != 1 {
			t.Errorf("%d syncs, want Flush's", n)
		}
		if got := d.stats(); got.Requests != 51 {
			t.Errorf("%+v", got)
		}
		// Retries are drawn as anywhere.
		if _, took, err := reserves(t, d, 100*time.Millisecond); err != nil || took != 100*time.Millisecond {
			t.Errorf("%v after %v", err, took)
		}
	}, WithoutBackground())
}

// TestServerlessClock: without anybody who minds the clock the calls do.
func TestServerlessClock(t *testing.T) {
	bubble(t, func(t *testing.T, p *plane, c *Client) {
		p.set(says(wire.Decision{Epoch: "e", Generation: 1, State: wire.Closed,
			Override: &wire.Override{Mode: "force_open", Revision: 1, RemainingMS: 60_000}}))
		d := c.Dependency("a")
		learn(t, d)
		rejected(t, d)
		_ = c.Flush(t.Context())
		p.set(says(wire.Decision{Epoch: "e", Generation: 1, State: wire.Closed,
			Override: &wire.Override{Mode: "force_open", Revision: 1, RemainingMS: 1}}))
		time.Sleep(61 * time.Second)
		passes(t, d)
	}, WithoutBackground())
}

// TestThaw: after a freeze grants and permits are void, and a call on the old view has it renewed.
func TestThaw(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		// A frozen machine: its monotonic clock stood still, its wall clock is an hour ahead.
		var frozen atomic.Int64
		p := newPlane(t)
		c := newClient(t, p, WithoutBackground(), func(c *config) {
			c.now = func() time.Time {
				if skew := time.Duration(frozen.Load()); skew > 0 {
					return time.Now().Round(0).Add(skew)
				}
				return time.Now()
			}
		})
		t.Cleanup(func() { _ = c.Close(t.Context()) })
		d := c.Dependency("a")
		learn(t, d)
		g, _, err := reserves(t, d, time.Millisecond)
		if err != nil {
			t.Fatal(err)
		}
		d.mu.Lock()
		d.retries.spare = append(d.retries.spare, grant{expires: time.Now().Add(2 * time.Second)})
		d.mu.Unlock()
		p.seen()
		frozen.Store(int64(time.Hour))
		if got := d.State().Age; got < time.Hour {
			t.Errorf("the view is %v old, say the wall clock", got)
		}
		if _, err := d.acquireRetry(t.Context(), g); !errors.Is(err, ErrBudget) {
			t.Errorf("a grant survived the freeze: %v", err)
		}
		passes(t, d)
		synctest.Wait()
		if n := len(p.seen()); n != 1 {
			t.Errorf("%d syncs after the freeze, want one at once", n)
		}
		p.set(budgeting(0, 0))
		if _, _, err := reserves(t, d, 10*time.Millisecond); !errors.Is(err, ErrBudget) {
			t.Errorf("a spare grant survived the freeze: %v", err)
		}
	})
}

// TestThawProbe: a permit for a probe does not survive a freeze either.
func TestThawProbe(t *testing.T) {
	bubble(t, func(t *testing.T, p *plane, c *Client) {
		p.set(says(wire.Decision{Epoch: "e", Generation: 5, State: wire.Open, RemainingMS: 100}))
		d := c.Dependency("a")
		learn(t, d)
		time.Sleep(time.Second)
		p.set(probingBy(granting(3500)))
		p.set(func(p *plane) { p.delay = 100 * time.Millisecond })
		rejected(t, d)
		time.Sleep(time.Second) // the permit is here
		time.Sleep(time.Minute) // and so is the freeze
		p.set(probingBy(func(_ wire.Report, dec *wire.Decision) { dec.ProbeHoldMS = 1000 }))
		p.set(func(p *plane) { p.delay = 0 })
		rejected(t, d)
	}, WithoutBackground())
}

// TestBlackHole: a control plane that takes everything and says nothing costs an invocation the time that its
// Flush was given, and mostly not even that.
func TestBlackHole(t *testing.T) {
	bubble(t, func(t *testing.T, p *plane, c *Client) {
		p.set(func(p *plane) { p.hole = true })
		d := c.Dependency("a")
		for range 50 {
			began := time.Now()
			passes(t, d)
			ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
			err := c.Flush(ctx)
			cancel()
			if took := time.Since(began); err == nil || took > 50*time.Millisecond {
				t.Fatalf("%v after %v", err, took)
			}
			time.Sleep(time.Second)
		}
		if !c.Stats().Degraded {
			t.Error("not degraded")
		}
		p.set(back)
		time.Sleep(10 * time.Second)
		passes(t, d)
		time.Sleep(100 * time.Millisecond)
		passes(t, d)
		if err := c.Flush(t.Context()); err != nil && !errors.Is(err, ErrUnreachable) {
			t.Error(err)
		}
		time.Sleep(10 * time.Second)
		passes(t, d)
		if err := c.Flush(t.Context()); err != nil || c.Stats().Degraded {
			t.Errorf("not recovered: %v", err)
		}
		if got := d.State(); got.State != policy.Closed {
			t.Errorf("%+v", got)
		}
	}, WithoutBackground())
}
