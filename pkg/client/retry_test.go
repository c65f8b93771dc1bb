package client

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/retryplane/retryplane/pkg/wire"
)

// budgeting has the plane grant n of every want and hold.
func budgeting(n, holdMS int64) func(*plane) {
	return func(p *plane) {
		p.decide = func(rep wire.Report) wire.Decision {
			dec := wire.Decision{Epoch: "e", Generation: 1, State: wire.Closed, Instances: 10, Granted: min(n, rep.Want), GrantTTLMS: 3000}
			if rep.Want > dec.Granted {
				dec.HoldMS = holdMS
			}
			return dec
		}
	}
}

// reserves calls reserve and says how long that took.
func reserves(t *testing.T, d *Dependency, wait time.Duration) (grant, time.Duration, error) {
	t.Helper()
	began := time.Now()
	g, err := d.reserve(t.Context(), wait, time.Time{})
	return g, time.Since(began), err
}

func TestReserve(t *testing.T) {
	bubble(t, func(t *testing.T, p *plane, c *Client) {
		d := c.Dependency("a")
		learn(t, d)
		p.set(func(p *plane) { p.delay = 20 * time.Millisecond })
		p.seen()
		_ = call(t, d, Failure)
		g, took, err := reserves(t, d, 200*time.Millisecond)
		if err != nil || took != 200*time.Millisecond {
			t.Errorf("granted after %v, %v: the wait hides the round trip", took, err)
		}
		syncs := p.seen()
		if len(syncs) != 1 || syncs[0].req.Dependencies[0].Want != 1 || syncs[0].req.Dependencies[0].Requests != 1 {
			t.Errorf("the request whose retry is asked for is in the same report: %+v", syncs)
		}
		permit, err := d.acquireRetry(t.Context(), g)
		if err != nil {
			t.Fatal(err)
		}
		permit.Done(Success)
		d.finished(2)
		time.Sleep(2 * time.Second)
		synctest.Wait()
		got := sum(append(syncs, p.seen()...), "a")
		if got.Requests != 1 || got.Attempts != 2 || got.Ungranted != 0 || got.AttemptsPerRequest[1] != 1 || got.AttemptsPerRequest[0] != 0 {
			// The first attempt looked like a request of its own when it was reported alone; that evens out later.
			if got.AttemptsPerRequest[0]+got.AttemptsPerRequest[1] > 2 {
				t.Errorf("reported %+v", got)
			}
		}
	})
}

// TestReserveShared: what waits at the same time shares one sync; one is under way at most.
func TestReserveShared(t *testing.T) {
	bubble(t, func(t *testing.T, p *plane, c *Client) {
		d := c.Dependency("a")
		learn(t, d)
		p.set(budgeting(30, 0))
		p.set(func(p *plane) { p.delay = 50 * time.Millisecond })
		p.seen()
		results := make(chan error, 100)
		for range 50 {
			go func() {
				_, err := d.reserve(t.Context(), 300*time.Millisecond, time.Time{})
				results <- err
			}()
		}
		time.Sleep(2 * time.Millisecond)
		for range 10 {
			go func() {
				_, err := d.reserve(t.Context(), 300*time.Millisecond, time.Time{})
				results <- err
			}()
			time.Sleep(2 * time.Millisecond)
		}
		granted := 0
		for range 60 {
			switch err := <-results; {
			case err == nil:
				granted++
			case !errors.Is(err, ErrBudget):
				t.Error(err)
			}
		}
		// How many of them the first sync carries is up to the scheduler.
		syncs := len(p.seen())
		if granted < 30 || granted > 30*syncs || syncs > 3 {
			t.Errorf("%d granted in %d syncs of at most 30", granted, syncs)
		}
	})
}

// TestReserveDenied: the denial is distinct, comes at once, and nobody asks again before the hold is over.
func TestReserveDenied(t *testing.T) {
	bubble(t, func(t *testing.T, p *plane, c *Client) {
		d := c.Dependency("a")
		learn(t, d)
		p.set(budgeting(0, 1000))
		p.seen()
		if _, took, err := reserves(t, d, 500*time.Millisecond); !errors.Is(err, ErrBudget) || took > 20*time.Millisecond {
			t.Errorf("got %v after %v", err, took)
		}
		for range 20 {
			if _, took, err := reserves(t, d, 100*time.Millisecond); !errors.Is(err, ErrBudget) || took != 0 {
				t.Errorf("got %v after %v", err, took)
			}
			time.Sleep(20 * time.Millisecond)
		}
		wants := int64(0)
		for _, s := range p.seen() {
			for _, rep := range s.req.Dependencies {
				wants += rep.Want
			}
		}
		if wants != 1 {
			t.Errorf("asked %d times", wants)
		}
		// A wait that outlasts the hold asks when it is over.
		p.set(budgeting(9, 0))
		if _, took, err := reserves(t, d, 900*time.Millisecond); err != nil || took != 900*time.Millisecond {
			t.Errorf("got %v after %v", err, took)
		}
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if got := d.stats(); got.RejectedBudget != 21 {
			t.Errorf("%d rejected, want 21", got.RejectedBudget)
		}
		if got := sum(p.seen(), "a"); got.RejectedBudget != 20 && got.RejectedBudget != 21 {
			t.Errorf("%d rejections reported", got.RejectedBudget)
		}
	})
}

// TestReserveLong: a wait longer than half of the grant's life draws when that much of it is left.
func TestReserveLong(t *testing.T) {
	bubble(t, func(t *testing.T, p *plane, c *Client) {
		d := c.Dependency("a")
		learn(t, d)
		p.seen()
		began := time.Now()
		g, took, err := reserves(t, d, 10*time.Second)
		if err != nil || took != 10*time.Second {
			t.Fatalf("%v after %v", err, took)
		}
		for _, s := range p.seen() {
			if rep := s.req.Dependencies[0]; rep.Want > 0 {
				if at := s.at.Sub(began); at != 8500*time.Millisecond {
					t.Errorf("drew after %v", at)
				}
			}
		}
		if _, err := d.acquireRetry(t.Context(), g); err != nil {
			t.Errorf("grant is dead at its use: %v", err)
		}
		time.Sleep(2 * time.Second)
		if _, err := d.acquireRetry(t.Context(), g); !errors.Is(err, ErrBudget) {
			t.Errorf("got %v for a grant that expired", err)
		}
	})
}

// TestReserveLate: a late answer prolongs the wait by 250 ms at most; what it brings then serves the next retry.
func TestReserveLate(t *testing.T) {
	bubble(t, func(t *testing.T, p *plane, c *Client) {
		d := c.Dependency("a")
		learn(t, d)
		p.set(func(p *plane) { p.delay = 300 * time.Millisecond })
		if _, took, err := reserves(t, d, 100*time.Millisecond); err != nil || took != 300*time.Millisecond {
			t.Errorf("got %v after %v", err, took)
		}
		p.set(func(p *plane) { p.delay = 600 * time.Millisecond })
		if _, took, err := reserves(t, d, 100*time.Millisecond); !errors.Is(err, ErrBudget) || took != 350*time.Millisecond {
			t.Errorf("got %v after %v", err, took)
		}
		if _, err := d.reserve(t.Context(), 100*time.Millisecond, time.Now().Add(200*time.Millisecond)); !errors.Is(err, ErrBudget) {
			t.Errorf("got %v past the deadline", err)
		}
		time.Sleep(700 * time.Millisecond)
		synctest.Wait()
		p.set(budgeting(0, 1000))
		if _, took, err := reserves(t, d, 100*time.Millisecond); err != nil || took != 100*time.Millisecond {
			t.Errorf("the late grant was wasted: %v after %v", err, took)
		}
	})
}

func TestReserveCancelled(t *testing.T) {
	bubble(t, func(t *testing.T, p *plane, c *Client) {
		d := c.Dependency("a")
		learn(t, d)
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		began := time.Now()
		if _, err := d.reserve(ctx, time.Second, time.Time{}); !errors.Is(err, context.DeadlineExceeded) || time.Since(began) != 50*time.Millisecond {
			t.Errorf("got %v after %v", err, time.Since(began))
		}
	})
}

// TestReserveInterrupted: an opening breaker ends the retries that wait, granted or not, at once.
func TestReserveInterrupted(t *testing.T) {
	for name, dec := range map[string]wire.Decision{
		"open":    {Epoch: "e", Generation: 2, State: wire.Open, RemainingMS: 5000},
		"ramping": {Epoch: "e", Generation: 2, State: wire.HalfOpen, AdmitPPM: 500_000},
		"forced":  {Epoch: "e", Generation: 1, State: wire.Closed, Override: &wire.Override{Mode: "force_open", Revision: 1, RemainingMS: 5000}},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, p *plane, c *Client) {
				d := c.Dependency("a")
				learn(t, d)
				result := make(chan error, 1)
				began := time.Now()
				go func() {
					_, err := d.reserve(t.Context(), 1400*time.Millisecond, time.Time{})
					result <- err
				}()
				time.Sleep(100 * time.Millisecond)
				p.set(says(dec))
				for range 5 { // a report that is due at once
					_ = call(t, d, Failure)
				}
				if err := <-result; !errors.Is(err, ErrOpen) || time.Since(began) > 300*time.Millisecond {
					t.Errorf("got %v after %v", err, time.Since(began))
				}
				if _, _, err := reserves(t, d, time.Second); !errors.Is(err, ErrOpen) {
					t.Errorf("got %v", err)
				}
			})
		})
	}
}

// TestReserveBusy: a control plane that is busy is not gone: no grant, and no budget of its own.
func TestReserveBusy(t *testing.T) {
	bubble(t, func(t *testing.T, p *plane, c *Client) {
		d := c.Dependency("a")
		learn(t, d)
		for range 100 {
			passes(t, d)
		}
		p.set(func(p *plane) {
			p.status, p.code = 429, wire.CodeRateLimited
			p.header = map[string][]string{"Retry-After": {"2"}}
		})
		if _, took, err := reserves(t, d, 100*time.Millisecond); !errors.Is(err, ErrBudget) || took != 350*time.Millisecond {
			t.Errorf("got %v after %v", err, took)
		}
		if c.Stats().Degraded {
			t.Error("busy is degraded")
		}
		p.seen()
		for range 100 {
			passes(t, d)
			time.Sleep(10 * time.Millisecond)
		}
		if n := len(p.seen()); n != 0 {
			t.Errorf("%d syncs before the time that it asked for", n)
		}
		p.set(func(p *plane) { p.status = 0 })
		time.Sleep(3 * time.Second)
		synctest.Wait()
		if got := sum(p.seen(), "a"); got.Requests != 200 {
			t.Errorf("%d requests reported, want all 200: a busy control plane took none", got.Requests)
		}
	})
}

// TestUngranted: net/http's own resends spend budget and are attempts.
func TestUngranted(t *testing.T) {
	bubble(t, func(t *testing.T, p *plane, c *Client) {
		d := c.Dependency("a")
		passes(t, d)
		d.ungranted(2)
		d.finished(3)
		time.Sleep(2 * time.Second)
		synctest.Wait()
		got := sum(p.seen(), "a")
		if got.Requests != 1 || got.Attempts != 3 || got.Ungranted != 2 || got.AttemptsPerRequest[2] != 1 {
			t.Errorf("reported %+v", got)
		}
		if s := d.stats(); s.Attempts != 3 || s.RequestAttempts != [5]int64{0, 0, 1, 0, 0} {
			t.Errorf("statistics %+v", s)
		}
	})
}

// TestNotBefore: what the dependency asked of the fleet.
func TestNotBefore(t *testing.T) {
	bubble(t, func(t *testing.T, p *plane, c *Client) {
		p.set(says(wire.Decision{Epoch: "e", Generation: 1, State: wire.Closed, NotBeforeMS: 5000}))
		d := c.Dependency("a")
		if got := d.notBefore(); got != 0 {
			t.Errorf("%v before anything was told", got)
		}
		learn(t, d)
		if got := d.notBefore(); got < 4*time.Second || got > 5*time.Second {
			t.Errorf("%v", got)
		}
		p.set(says(wire.Decision{Epoch: "e", Generation: 1, State: wire.Closed}))
		time.Sleep(6 * time.Second)
		if got := d.notBefore(); got != 0 {
			t.Errorf("%v after its end", got)
		}
	})
}
