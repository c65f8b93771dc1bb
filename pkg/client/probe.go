package client

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/retryplane/retryplane/pkg/policy"
	"github.com/retryplane/retryplane/pkg/wire"
)

// probing is this instance's part in the fleet's probing.
type probing struct {
	waiting  bool          // one call waits for a permit
	answered chan struct{} // closed by the answer to the ask that is under way; nil = none is
	hold     time.Time     // do not ask before
	token    string        // of a permit that came too late for who asked; "" = there is none
	expires  time.Time     // of that permit
}

const (
	probeWait   = 50 * time.Millisecond // how long a call waits to be allowed as a probe
	probeMargin = 500 * time.Millisecond
	probeRepeat = 10 * time.Millisecond // least time between two asks
)

// acquireProbe admits the call as a trial request of the fleet, if there is a permit for it. decided is false if the
// view has changed, so that the call has to look at it again.
func (d *Dependency) acquireProbe(ctx context.Context) (_ Permit, decided bool, _ error) {
	now := d.client.now()
	d.mu.Lock()
	defer d.mu.Unlock()
	d.rebuild(now)
	if d.view.Load().rule() != gateProbe {
		return Permit{}, false, nil
	}
	p := &d.probing
	if p.usable(now) {
		return d.usePermit(now), true, nil
	}
	if p.answered == nil {
		p.answered = make(chan struct{})
		d.client.syncer.demand(d, askProbe)
	}
	answered := p.answered
	p.waiting = true
	d.rebuild(now) // turns the others away
	d.mu.Unlock()
	err := waitFor(ctx, answered, probeWait)
	d.mu.Lock()
	p.waiting = false
	now = d.client.now()
	d.rebuild(now)
	if err != nil {
		return Permit{}, true, err
	}
	switch d.view.Load().rule() {
	case gateProbe:
		if p.usable(now) {
			return d.usePermit(now), true, nil
		}
	case gateReject:
	default:
		return Permit{}, false, nil
	}
	permit, err := d.reject()
	return permit, true, err
}

// usable reports whether there is a permit whose lease has not ended.
func (p *probing) usable(now time.Time) bool { return p.token != "" && !passed(now, p.expires) }

// waitFor waits for done, at most for d. Only ctx's end is an error.
func waitFor(ctx context.Context, done <-chan struct{}, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-done:
	case <-timer.C:
	case <-ctx.Done():
		return ctx.Err()
	}
	return nil
}

// usePermit spends the permit at hand. It needs d.mu.
func (d *Dependency) usePermit(now time.Time) Permit {
	p := &probe{token: d.probing.token}
	d.probing.token = ""
	d.rebuild(now)
	v := d.view.Load()
	return v.counters.admit(v.counters.stripe(), p, v.sample)
}

// reject turns a call away. It needs d.mu.
func (d *Dependency) reject() (Permit, error) {
	v := d.view.Load()
	v.counters.stripe().rejected.Add(1)
	return Permit{}, v.reject
}

// acquireTrial admits the call as the one trial request of the local breaker, if none is under way. decided is as of
// acquireProbe.
func (d *Dependency) acquireTrial() (_ Permit, decided bool, _ error) {
	now := d.client.now()
	d.mu.Lock()
	defer d.mu.Unlock()
	d.rebuild(now)
	v := d.view.Load()
	if v.rule() != gateTrial {
		return Permit{}, false, nil
	}
	next, ok := d.local.Probe(now, d.policy().Retry.AttemptTimeout+probeMargin)
	if !ok || v.admit > 0 && rand.Int64N(policy.Whole) >= v.admit {
		permit, err := d.reject()
		return permit, true, err
	}
	d.setLocal(next, now)
	d.rebuild(now)
	v = d.view.Load()
	return v.counters.admit(v.counters.stripe(), &probe{local: d.local.Breaker.Generation}, v.sample), true, nil
}

// probed takes the result of a trial request.
func (d *Dependency) probed(c *counters, s *stripe, p *probe, o Outcome) {
	now := d.client.now()
	d.mu.Lock()
	defer d.mu.Unlock()
	if o == Failure {
		c.fail(s, now)
	} else {
		s.count(o)
	}
	if o == Success {
		c.run.Store(0)
	}
	if p.token != "" {
		c.probes = append(c.probes, wire.ProbeResult{Token: p.token, Outcome: o.String()})
		d.keep(c)
		d.wake(now)
		d.client.syncer.demand(d, askProbe)
		// The dependency answered this very instance: what its own breaker has against it is out of date.
		if o == Success && c.generation == d.told.generation && c.epoch == d.told.epoch {
			d.resetLocal(now)
		}
	}
	if p.local != 0 && p.local == d.local.Breaker.Generation {
		d.setLocal(d.local.Probed(now, d.policy().Breaker, o, d.cutOff(now), rand.Float64()), now)
	}
	d.rebuild(now)
}

// permitted takes the answer to an ask that was sent at sent. It needs d.mu.
func (d *Dependency) permitted(permit *wire.Permit, hold time.Duration, sent, now time.Time) {
	p := &d.probing
	switch {
	case permit != nil:
		p.token, p.expires = permit.Token, sent.Add(time.Duration(permit.LeaseMS)*time.Millisecond)
	default:
		p.hold = sent.Add(hold)
		if least := now.Add(probeRepeat); p.hold.Before(least) {
			p.hold = least
		}
	}
	d.probeAnswered()
}

// probeAnswered lets the call go on that waits for a permit. It needs d.mu.
func (d *Dependency) probeAnswered() {
	if d.probing.answered != nil {
		close(d.probing.answered)
		d.probing.answered = nil
	}
}
