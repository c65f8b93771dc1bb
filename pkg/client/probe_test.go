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

// probing has the plane hold dependency "a" half-open and answer asks for permits by answer.
func probingBy(answer func(wire.Report, *wire.Decision)) func(*plane) {
	return func(p *plane) {
		p.decide = func(rep wire.Report) wire.Decision {
			dec := wire.Decision{Epoch: "e", Generation: 6, State: wire.HalfOpen}
			answer(rep, &dec)
			return dec
		}
	}
}

func granting(lease int64) func(wire.Report, *wire.Decision) {
	var n atomic.Int64
	return func(rep wire.Report, dec *wire.Decision) {
		if rep.WantProbe {
			n.Add(1)
			dec.Permit = &wire.Permit{Token: "t" + string(rune('0'+n.Load())), LeaseMS: lease}
		}
	}
}

// opened brings "a" into the state in which its open time is just over.
func opened(t *testing.T, p *plane, d *Dependency) {
	t.Helper()
	p.set(says(wire.Decision{Epoch: "e", Generation: 5, State: wire.Open, RemainingMS: 500}))
	learn(t, d)
	rejected(t, d)
	time.Sleep(400 * time.Millisecond)
	synctest.Wait()
	p.seen()
}

func TestProbe(t *testing.T) {
	bubble(t, func(t *testing.T, p *plane, c *Client) {
		d := c.Dependency("a")
		opened(t, p, d)
		p.set(probingBy(granting(3500)))
		p.set(func(p *plane) { p.delay = 20 * time.Millisecond })

		// One call waits, the others are rejected at once.
		began := time.Now()
		var permit Permit
		done := make(chan error)
		go func() {
			var err error
			permit, err = d.Acquire(t.Context())
			done <- err
		}()
		time.Sleep(time.Millisecond)
		for range 50 {
			rejected(t, d)
		}
		if time.Since(began) > 2*time.Millisecond {
			t.Error("calls waited though another one did")
		}
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		if took := time.Since(began); took > 25*time.Millisecond {
			t.Errorf("waited %v for a permit that came after 20 ms", took)
		}
		syncs := p.seen()
		if len(syncs) != 1 || !syncs[0].req.Dependencies[len(syncs[0].req.Dependencies)-1].WantProbe {
			t.Errorf("asks: %+v", syncs)
		}
		// Its result is reported at once, with its token.
		p.set(says(wire.Decision{Epoch: "e", Generation: 7, State: wire.Closed}))
		permit.Done(Success)
		time.Sleep(50 * time.Millisecond)
		synctest.Wait()
		got := sum(p.seen(), "a")
		if len(got.Probes) != 1 || got.Probes[0] != (wire.ProbeResult{Token: "t1", Outcome: "success"}) {
			t.Errorf("reported %+v", got.Probes)
		}
		passes(t, d)
	})
}

// TestProbeCancelled: a caller that cancels gives its permit back.
func TestProbeCancelled(t *testing.T) {
	bubble(t, func(t *testing.T, p *plane, c *Client) {
		d := c.Dependency("a")
		opened(t, p, d)
		p.set(probingBy(granting(3500)))
		permit, err := d.Acquire(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		permit.Done(Ignored)
		time.Sleep(50 * time.Millisecond)
		synctest.Wait()
		if got := sum(p.seen(), "a").Probes; len(got) != 1 || got[0].Outcome != "ignored" {
			t.Errorf("reported %+v", got)
		}
		// And one that is cancelled while it waits leaves its permit to the next.
		p.set(func(p *plane) { p.delay = 30 * time.Millisecond })
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
		defer cancel()
		if _, err := d.Acquire(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v", err)
		}
		time.Sleep(100 * time.Millisecond)
		began := time.Now()
		permit, err = d.Acquire(t.Context())
		if err != nil || time.Since(began) > 0 {
			t.Errorf("late permit: %v after %v", err, time.Since(began))
		}
		permit.Done(Failure)
	})
}

func TestProbeLate(t *testing.T) {
	bubble(t, func(t *testing.T, p *plane, c *Client) {
		d := c.Dependency("a")
		opened(t, p, d)
		p.set(probingBy(granting(1000)))
		p.set(func(p *plane) { p.delay = 220 * time.Millisecond })
		began := time.Now()
		rejected(t, d)
		if took := time.Since(began); took != probeWait {
			t.Errorf("waited %v, want %v", took, probeWait)
		}
		// Calls that come before the answer may wait for it, but do not ask again.
		time.Sleep(100 * time.Millisecond)
		rejected(t, d)
		time.Sleep(100 * time.Millisecond)
		synctest.Wait()
		if n := len(p.seen()); n != 1 {
			t.Errorf("%d asks, want 1", n)
		}
		if permit, err := d.Acquire(t.Context()); err != nil {
			t.Errorf("a late permit serves the next call: %v", err)
		} else {
			permit.Done(Failure)
		}
		// One that nobody used in time is void.
		p.set(func(p *plane) { p.delay = 60 * time.Millisecond })
		time.Sleep(300 * time.Millisecond)
		rejected(t, d)
		time.Sleep(2 * time.Second)
		p.set(probingBy(func(_ wire.Report, dec *wire.Decision) { dec.ProbeHoldMS = 500 }))
		rejected(t, d)
	})
}

// TestProbeRefused: a "no" says for how long not to ask again.
func TestProbeRefused(t *testing.T) {
	bubble(t, func(t *testing.T, p *plane, c *Client) {
		d := c.Dependency("a")
		opened(t, p, d)
		p.set(probingBy(func(_ wire.Report, dec *wire.Decision) { dec.ProbeHoldMS = 500 }))
		for range 100 {
			began := time.Now()
			rejected(t, d)
			if took := time.Since(began); took > 0 {
				t.Fatalf("waited %v", took)
			}
			time.Sleep(10 * time.Millisecond)
		}
		synctest.Wait()
		asks := 0
		for _, s := range p.seen() {
			for _, rep := range s.req.Dependencies {
				if rep.WantProbe {
					asks++
				}
			}
		}
		if asks != 2 {
			t.Errorf("%d asks in 1 s, want 2", asks)
		}
	})
}

// TestStateIsPure: looking consumes no probe and asks for nothing.
func TestStateIsPure(t *testing.T) {
	bubble(t, func(t *testing.T, p *plane, c *Client) {
		d := c.Dependency("a")
		opened(t, p, d)
		p.set(probingBy(granting(3500)))
		time.Sleep(2 * time.Second)
		p.seen()
		for range 100 {
			if got := d.State(); got.State != policy.HalfOpen || got.Fleet != policy.HalfOpen {
				t.Fatalf("state %v", got.State) // never straight to closed
			}
			c.Stats()
			time.Sleep(10 * time.Millisecond)
		}
		synctest.Wait()
		if n := len(p.seen()); n != 0 {
			t.Errorf("%d syncs", n)
		}
	})
}

// TestProbeForced: an operator who forces the breaker open ends probing here, too.
func TestProbeForced(t *testing.T) {
	bubble(t, func(t *testing.T, p *plane, c *Client) {
		d := c.Dependency("a")
		opened(t, p, d)
		p.set(probingBy(func(rep wire.Report, dec *wire.Decision) {
			dec.Override = &wire.Override{Mode: "force_open", Revision: 1, RemainingMS: 60_000}
		}))
		if got := rejected(t, d); got.Source != SourceOverride {
			t.Errorf("got %+v", got)
		}
		p.seen()
		for range 50 {
			rejected(t, d)
			time.Sleep(100 * time.Millisecond)
		}
		for _, s := range p.seen() {
			for _, rep := range s.req.Dependencies {
				if rep.WantProbe {
					t.Error("asked for a permit while forced open")
				}
			}
		}
	})
}
