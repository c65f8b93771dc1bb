package client

import (
	"errors"
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/retryplane/retryplane/pkg/policy"
	"github.com/retryplane/retryplane/pkg/wire"
)

// away lists what being cut off looks like.
var away = map[string]func(*plane){
	"refused":           func(p *plane) { p.down = true },
	"black hole":        func(p *plane) { p.hole = true },
	"store_unavailable": func(p *plane) { p.status, p.code = 503, wire.CodeStoreUnavailable },
	"degraded answers":  func(p *plane) { p.degr = true },
	"bad gateway":       func(p *plane) { p.status = 502 },
	"unauthorized":      func(p *plane) { p.status, p.code = 401, wire.CodeUnauthorized },
}

func back(p *plane) { p.down, p.hole, p.status, p.degr = false, false, 0, false }

// TestDegraded: calls never fail and never wait because the control plane is away, and it is found again
// without help; one event each.
func TestDegraded(t *testing.T) {
	for name, gone := range away {
		t.Run(name, func(t *testing.T) {
			var seen []EventKind
			bubble(t, func(t *testing.T, p *plane, c *Client) {
				d := c.Dependency("a")
				learn(t, d)
				p.set(gone)
				for range 15 * 60 * 4 {
					began := time.Now()
					passes(t, d)
					if took := time.Since(began); took > 0 {
						t.Fatalf("a call waited %v", took)
					}
					time.Sleep(250 * time.Millisecond)
				}
				if s := c.Stats(); !s.Degraded {
					t.Error("not degraded")
				}
				if got := d.State(); !got.Stale || !got.Known {
					t.Errorf("state %+v", got)
				}
				if n := c.syncErrors.Load(); n > 15*60 {
					t.Errorf("%d syncs failed in 15 min", n)
				}
				p.seen()
				p.set(back)
				time.Sleep(6 * time.Second)
				synctest.Wait()
				if s := c.Stats(); s.Degraded {
					t.Error("still degraded")
				}
				got := sum(p.seen(), "a")
				if got.Requests < 15*60*4*8/10 {
					t.Errorf("%d requests reported afterwards", got.Requests)
				}
				if got := d.State(); got.Stale {
					t.Errorf("state %+v", got)
				}
				synctest.Wait()
				if len(seen) != 2 || seen[0] != EventDegraded || seen[1] != EventRecovered {
					t.Errorf("events %v", seen)
				}
			}, WithEvents(func(e Event) { seen = append(seen, e.Kind) }))
		})
	}
}

// TestOldResults: what was counted long before it is reported is for the statistics only.
func TestOldResults(t *testing.T) {
	bubble(t, func(t *testing.T, p *plane, c *Client) {
		d := c.Dependency("a")
		learn(t, d)
		p.set(func(p *plane) { p.down = true })
		failFor(t, d, 10*time.Second)
		p.seen()
		p.set(back)
		time.Sleep(6 * time.Second)
		synctest.Wait()
		syncs := p.seen()
		if got := sum(syncs, "a"); got.Failure < 10 {
			t.Fatalf("%d failures reported", got.Failure)
		}
		for _, s := range syncs {
			for _, rep := range s.req.Dependencies {
				if rep.Failure > 0 && rep.Epoch != "" {
					t.Errorf("reported as if they were new: %+v", rep)
				}
			}
		}
	})
}

// TestHealthyIdle: an instance with a call every 10 s and a healthy control plane is never in local mode, and
// asks again when its view is old.
func TestHealthyIdle(t *testing.T) {
	var seen []Event
	bubble(t, func(t *testing.T, p *plane, c *Client) {
		d := c.Dependency("a")
		if s := d.State(); s.Source != SourceLocal || s.Known {
			t.Errorf("told by the fleet before anything was asked: %+v", s)
		}
		for range 30 {
			passes(t, d)
			synctest.Wait()
			if s := d.State(); s.Source != SourceFleet || c.Stats().Degraded {
				t.Fatalf("in local mode: %+v", s)
			}
			time.Sleep(10 * time.Second)
		}
		synctest.Wait()
		if n := len(p.seen()); n < 30 || n > 61 {
			t.Errorf("%d syncs for 30 calls", n)
		}
		if len(seen) > 0 {
			t.Errorf("events %v", seen)
		}
	}, WithEvents(func(e Event) { seen = append(seen, e) }))
}

// TestViewWhileCutOff: the view holds until it is stale, an open breaker for its remaining time; then this instance
// finds out with one call at a time.
func TestViewWhileCutOff(t *testing.T) {
	bubble(t, func(t *testing.T, p *plane, c *Client) {
		p.set(says(wire.Decision{Epoch: "e", Generation: 3, State: wire.Open, RemainingMS: 8000}))
		d := c.Dependency("a")
		began := time.Now()
		learn(t, d)
		p.set(func(p *plane) { p.down = true })
		for time.Since(began) < 7900*time.Millisecond {
			if got := rejected(t, d); got.Source != SourceFleet {
				t.Fatalf("after %v: %+v", time.Since(began), got)
			}
			time.Sleep(100 * time.Millisecond)
		}
		time.Sleep(200 * time.Millisecond)
		synctest.Wait()
		first, err := d.Acquire(t.Context())
		if err != nil {
			t.Fatalf("no probe of its own: %v", err)
		}
		for range 10 {
			if got := rejected(t, d); got.Source != SourceLocal {
				t.Fatalf("%+v", got)
			}
		}
		first.Done(Failure)
		// Cut off it stays open for 5 s and more: nobody calls off the alarm.
		time.Sleep(4 * time.Second)
		if got := rejected(t, d); got.Source != SourceLocal {
			t.Fatalf("%+v", got)
		}
		time.Sleep(8 * time.Second)
		passes(t, d)
		for range 100 {
			passes(t, d)
			time.Sleep(10 * time.Millisecond)
		}
		if got := d.State(); got.State != policy.Closed || got.Source != SourceLocal {
			t.Errorf("state %+v", got)
		}
		// What the control plane says when it is back counts again.
		p.set(back)
		p.set(says(wire.Decision{Epoch: "e", Generation: 9, State: wire.Open, RemainingMS: 60_000}))
		time.Sleep(6 * time.Second)
		if got := rejected(t, d); got.Source != SourceFleet {
			t.Fatalf("%+v", got)
		}
	})
}

// TestRampWhileCutOff: a ramp that nobody leads any further does not last for ever.
func TestRampWhileCutOff(t *testing.T) {
	bubble(t, func(t *testing.T, p *plane, c *Client) {
		p.set(says(wire.Decision{Epoch: "e", Generation: 4, State: wire.HalfOpen, AdmitPPM: 100_000}))
		d := c.Dependency("a")
		learn(t, d)
		p.set(func(p *plane) { p.down = true })
		for range 100 {
			_ = call(t, d, Success)
			time.Sleep(50 * time.Millisecond)
		}
		for range 100 {
			passes(t, d)
		}
	})
}

// TestLocalBudget: cut off, an instance retries within the ratio of its own requests. Everything that it sends is
// charged to the fleet when the control plane is back.
func TestLocalBudget(t *testing.T) {
	own := policy.Default()
	own.Budget.Floor = 0
	bubble(t, func(t *testing.T, p *plane, c *Client) {
		d := c.Dependency("a")
		learn(t, d)
		p.set(func(p *plane) { p.down = true })
		passes(t, d)
		time.Sleep(3 * time.Second)
		requests, retries := 1, 0
		for range 3000 {
			passes(t, d)
			requests++
			g, err := d.reserve(t.Context(), time.Millisecond, time.Time{})
			switch {
			case errors.Is(err, ErrBudget):
			case err != nil:
				t.Fatal(err)
			default:
				permit, err := d.acquireRetry(t.Context(), g)
				if err != nil {
					t.Fatal(err)
				}
				permit.Done(Success)
				retries++
			}
			time.Sleep(10 * time.Millisecond)
		}
		if ratio := float64(retries) / float64(requests); ratio > 0.1 || ratio < 0.05 {
			t.Errorf("%d retries of %d requests", retries, requests)
		}
		p.seen()
		p.set(back)
		time.Sleep(6 * time.Second)
		synctest.Wait()
		if got := sum(p.seen(), "a"); got.Ungranted != int64(retries) || got.Attempts-got.Requests != int64(retries) {
			t.Errorf("%d charged, %d attempts of %d requests, want %d retries", got.Ungranted, got.Attempts, got.Requests, retries)
		}
		// Now the fleet's budget counts again.
		p.set(budgeting(0, 0))
		if _, _, err := reserves(t, d, 50*time.Millisecond); !errors.Is(err, ErrBudget) {
			t.Errorf("got %v", err)
		}
	}, WithPolicy(own))
}

// TestFloorLottery: isolated instances share one floor, they do not have one each.
func TestFloorLottery(t *testing.T) {
	own := policy.Default()
	own.Budget.Ratio = 0
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const fleet = 100
		p := newPlane(t)
		p.set(says(wire.Decision{Epoch: "e", Generation: 1, State: wire.Closed, Instances: fleet}))
		var deps []*Dependency
		for range fleet {
			c := newClient(t, p, WithPolicy(own))
			t.Cleanup(func() { _ = c.Close(t.Context()) })
			d := c.Dependency("a")
			learn(t, d)
			deps = append(deps, d)
		}
		p.set(func(p *plane) { p.down = true })
		for _, d := range deps {
			passes(t, d)
		}
		time.Sleep(5 * time.Second)
		const windows = 20
		total := 0
		for range windows {
			// One window of the wall clock after the other.
			time.Sleep(10*time.Second - time.Duration(time.Now().UnixNano())%(10*time.Second))
			won := 0
			for _, d := range deps {
				for range 3 {
					if _, _, err := reserves(t, d, 0); err == nil {
						won++
					}
				}
			}
			total += won
			if most := 10 + 4*math.Sqrt(10); float64(won) > most {
				t.Errorf("%d retries in a window", won)
			}
		}
		if mean := float64(total) / windows; mean < 7 || mean > 13 {
			t.Errorf("%.1f retries per window, want about the floor of 10", mean)
		}
	})
}

// TestNeverTold: an instance that was never told of a fleet has no part of the floor.
func TestNeverTold(t *testing.T) {
	bubble(t, func(t *testing.T, p *plane, c *Client) {
		p.set(func(p *plane) { p.down = true })
		d := c.Dependency("a")
		passes(t, d)
		time.Sleep(time.Second)
		for range 20 {
			if s := d.State(); s.Source != SourceLocal {
				t.Fatalf("source %v", s.Source)
			}
			if _, _, err := reserves(t, d, 0); !errors.Is(err, ErrBudget) {
				t.Fatalf("got %v", err) // no unfunded retry of a cold start
			}
			time.Sleep(time.Second)
		}
	})
}

// TestCutOffWhileWaiting: a retry that waits for an answer which will not come falls back to the local budget.
func TestCutOffWhileWaiting(t *testing.T) {
	bubble(t, func(t *testing.T, p *plane, c *Client) {
		d := c.Dependency("a")
		learn(t, d)
		p.set(func(p *plane) { p.down = true })
		for range 100 {
			passes(t, d)
		}
		g, took, err := reserves(t, d, 100*time.Millisecond)
		if err != nil || !g.local || took != 100*time.Millisecond {
			t.Errorf("%+v, %v after %v", g, err, took)
		}
	})
}

// TestAmbiguous: a sync that may have arrived is not sent again; its debits are, which errs to the safe side.
func TestAmbiguous(t *testing.T) {
	bubble(t, func(t *testing.T, p *plane, c *Client) {
		d := c.Dependency("a")
		learn(t, d)
		p.set(func(p *plane) { p.hole = true })
		passes(t, d)
		d.ungranted(3)
		time.Sleep(1500 * time.Millisecond) // under way
		p.seen()
		p.set(back)
		time.Sleep(6 * time.Second)
		synctest.Wait()
		got := sum(p.seen(), "a")
		if got.Requests != 0 || got.Ungranted != 3 {
			t.Errorf("reported %+v, want the debits alone", got)
		}
	})
}

// TestRefusedByTransport: what surely did not arrive is reported later.
func TestRefusedByTransport(t *testing.T) {
	bubble(t, func(t *testing.T, p *plane, c *Client) {
		d := c.Dependency("a")
		learn(t, d)
		p.seen()
		p.set(func(p *plane) { p.down = true })
		passes(t, d)
		time.Sleep(2 * time.Second)
		p.set(back)
		time.Sleep(6 * time.Second)
		synctest.Wait()
		if got := sum(p.seen(), "a"); got.Requests != 1 || got.Success != 1 {
			t.Errorf("reported %+v", got)
		}
	})
}

// TestKnocksAreSpread: the instances of a fleet do not knock in step.
func TestKnocksAreSpread(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newPlane(t)
		const fleet = 50
		for range fleet {
			c := newClient(t, p)
			t.Cleanup(func() { _ = c.Close(t.Context()) })
			learn(t, c.Dependency("a"))
		}
		p.set(func(p *plane) { p.status = 502 })
		time.Sleep(time.Minute)
		p.seen()
		time.Sleep(20 * time.Second)
		perSecond := map[string]int{}
		for _, s := range p.seen() {
			perSecond[s.at.Truncate(time.Second).String()]++
		}
		for at, n := range perSecond {
			if n > 2*fleet/2 {
				t.Errorf("%d knocks in the second of %s", n, at)
			}
		}
	})
}
