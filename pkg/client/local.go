package client

import (
	"math/rand/v2"
	"time"

	"github.com/retryplane/retryplane/pkg/policy"
)

// longRun is how many failures in a row the control plane hears of at once, if the local breaker has no threshold.
const longRun = 5

// hearsay is how long before the end of its open time the local breaker asks what the fleet knows by now.
const hearsay = 100 * time.Millisecond

// failed counts a failure that is no trial request's. That may lock: failures are slow anyway.
func (d *Dependency) failed(c *counters, s *stripe) {
	now := d.client.now()
	d.mu.Lock()
	defer d.mu.Unlock()
	run := c.fail(s, now)
	if c != d.counters || d.override.at(now) == policy.ModeForceClosed {
		return // a late result; or whatever happens, an operator wants the calls to pass
	}
	set := &d.policy().Breaker
	alone, known := d.cutOff(now), d.told.failure
	if alone {
		known = 0
	}
	next, opened := d.local.Fail(now, *set, policy.LocalThreshold(*set, known), alone, rand.Float64())
	d.setLocal(next, now)
	if opened {
		d.rebuild(now)
	}
	enough := set.LocalFailures
	if enough == 0 {
		enough = longRun
	}
	if opened || run >= enough {
		d.wake(now)
		d.client.syncer.demand(d, askRun)
	}
}

// succeeded ends a run of failures.
func (d *Dependency) succeeded(c *counters) {
	d.mu.Lock()
	defer d.mu.Unlock()
	c.run.Store(0)
	if c == d.counters {
		d.local = d.local.Succeed()
	}
}

// setLocal replaces the local breaker; a new view is the caller's business. It needs d.mu.
func (d *Dependency) setLocal(next policy.Local, now time.Time) {
	was, is := d.local.Breaker.State, next.Breaker.State
	d.local = next
	switch {
	case was == policy.Closed && is != policy.Closed:
		d.client.emit(Event{Kind: EventLocalOpened, Dependency: d.name, At: now, From: was, To: is, Source: SourceLocal,
			Reason: next.Breaker.Reason})
	case was != policy.Closed && is == policy.Closed:
		d.client.emit(Event{Kind: EventLocalClosed, Dependency: d.name, At: now, From: was, To: is, Source: SourceLocal})
	}
}

// listen asks the control plane, once, shortly before the local breaker's open time is over: it may have opened before
// the fleet's did, and an instance that does not know sends a trial request of its own, beside the fleet's probes. Due
// gets the time to ask. It needs d.mu.
func (d *Dependency) listen(now time.Time, due *schedule) {
	b := &d.local.Breaker
	if b.State != policy.Open || b.Generation == d.listened || d.cutOff(now) {
		return
	}
	if at := b.Until.Add(-hearsay); !passed(now, at) {
		due.at(at)
		return
	}
	d.listened = b.Generation
	d.client.syncer.demand(d, askView)
}

// resetLocal closes the local breaker. It needs d.mu.
func (d *Dependency) resetLocal(now time.Time) {
	if d.local.Breaker.State != policy.Closed {
		d.setLocal(policy.Local{Breaker: d.local.Breaker.Reset(now)}, now)
	}
}
