package client

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/retryplane/retryplane/pkg/policy"
	"github.com/retryplane/retryplane/pkg/wire"
)

// failFor has calls fail every 100 ms, and returns how many were let through.
func failFor(t *testing.T, d *Dependency, length time.Duration) (sent int) {
	t.Helper()
	for end := time.Now().Add(length); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
		if call(t, d, Failure) == nil {
			sent++
		}
	}
	return sent
}

func TestLocalBreaker(t *testing.T) {
	bubble(t, func(t *testing.T, p *plane, c *Client) {
		d := c.Dependency("a")
		learn(t, d)
		if sent := failFor(t, d, 1500*time.Millisecond); sent < 10 || sent > 11 {
			t.Errorf("%d failures until it opened, want those of one second", sent)
		}
		open := rejected(t, d)
		if open.Source != SourceLocal || open.RetryAfter <= 0 || open.RetryAfter > 1100*time.Millisecond {
			t.Errorf("got %+v", open)
		}
		if got := d.State(); got.State != policy.Open || got.Source != SourceLocal || got.Fleet != policy.Closed {
			t.Errorf("state %+v", got)
		}
		// One probe at a time; its success closes.
		for call(t, d, Ignored) != nil {
			time.Sleep(10 * time.Millisecond)
		}
		probe, err := d.Acquire(t.Context())
		if err != nil {
			t.Fatalf("an ignored probe lets the next one go: %v", err)
		}
		for range 10 {
			rejected(t, d)
		}
		probe.Done(Success)
		for range 10 {
			passes(t, d)
		}
	})
}

// TestLocalRunTold: a run of failures and a trip are reported at once, not more often than every 100 ms.
func TestLocalRunTold(t *testing.T) {
	bubble(t, func(t *testing.T, p *plane, c *Client) {
		d := c.Dependency("a")
		learn(t, d)
		time.Sleep(50 * time.Millisecond)
		p.seen()
		for range 5 {
			_ = call(t, d, Failure)
		}
		time.Sleep(5 * time.Millisecond)
		synctest.Wait()
		syncs := p.seen()
		if got := sum(syncs, "a"); len(syncs) != 1 || got.Failure != 5 || syncs[0].req.Dependencies[0].FailureRun != 5 {
			t.Errorf("%d syncs, %+v", len(syncs), got)
		}
		for range 50 {
			_ = call(t, d, Failure)
			time.Sleep(10 * time.Millisecond)
		}
		synctest.Wait()
		syncs = p.seen()
		if len(syncs) < 4 || len(syncs) > 6 {
			t.Errorf("%d syncs in 500 ms of failures", len(syncs))
		}
	})
}

// TestLocalBrownout: while the fleet sees half of the attempts fail, a run that chance brings opens nothing.
func TestLocalBrownout(t *testing.T) {
	bubble(t, func(t *testing.T, p *plane, c *Client) {
		p.set(says(wire.Decision{Epoch: "e", Generation: 1, State: wire.Closed, FailurePPM: 500_000}))
		d := c.Dependency("a")
		learn(t, d)
		if sent := failFor(t, d, 1300*time.Millisecond); sent != 13 {
			t.Errorf("%d calls, want 13: the local breaker took a run of chance for an outage", sent)
		}
		failFor(t, d, 200*time.Millisecond)
		rejected(t, d) // ln 1e-4 / ln 0.5 = 13.3
	})
}

// TestLocalOff: 0 local failures is no local breaker.
func TestLocalOff(t *testing.T) {
	own := policy.Default()
	own.Breaker.LocalFailures = 0
	bubble(t, func(t *testing.T, p *plane, c *Client) {
		d := c.Dependency("a")
		if sent := failFor(t, d, 10*time.Second); sent != 100 {
			t.Errorf("%d of 100 calls passed", sent)
		}
	}, WithPolicy(own))
}

// TestLocalYieldsToFleet: when the fleet's probes went well, an instance's own breaker does not go on for itself.
func TestLocalYieldsToFleet(t *testing.T) {
	bubble(t, func(t *testing.T, p *plane, c *Client) {
		d := c.Dependency("a")
		learn(t, d)
		p.set(says(wire.Decision{Epoch: "e", Generation: 2, State: wire.Open, RemainingMS: 100}))
		failFor(t, d, 1200*time.Millisecond)
		if got := d.State(); got.Fleet == policy.Closed {
			t.Fatalf("the fleet's breaker is %v", got.Fleet)
		}
		p.set(says(wire.Decision{Epoch: "e", Generation: 4, State: wire.Closed}))
		time.Sleep(200 * time.Millisecond)
		passes(t, d)
		if got := d.State(); got.State != policy.Closed || got.Local != policy.Closed {
			t.Errorf("state %+v", got)
		}
	})
}

// TestLostProbe: a probe that never ends blocks the next one for its lease only.
func TestLostProbe(t *testing.T) {
	bubble(t, func(t *testing.T, p *plane, c *Client) {
		d := c.Dependency("a")
		failFor(t, d, 1200*time.Millisecond)
		time.Sleep(1100 * time.Millisecond)
		if _, err := d.Acquire(t.Context()); err != nil { // and never Done
			t.Fatal(err)
		}
		time.Sleep(3400 * time.Millisecond)
		rejected(t, d)
		time.Sleep(200 * time.Millisecond)
		passes(t, d)
	})
}
