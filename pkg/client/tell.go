package client

import (
	"time"

	"github.com/retryplane/retryplane/pkg/policy"
	"github.com/retryplane/retryplane/pkg/wire"
)

// tell takes the answer to the parcel of a sync that was sent at sent; nil if it has no word about this dependency.
func (d *Dependency) tell(p *parcel, dec *wire.Decision, sent time.Time, degraded bool) {
	if dec == nil {
		p.unanswered(d.client.now())
		return
	}
	now := d.client.now()
	d.mu.Lock()
	senseless := d.order(dec, sent, now, degraded)
	d.adopt(dec, sent, now, degraded)
	if !degraded && d.demand.Equal(p.demand) {
		d.demand = time.Time{} // from now on it is the fleet's
	}
	d.rebuild(now)
	if degraded {
		d.unsettle(p.number, now)
		d.probeAnswered()
	} else {
		d.settle(p, dec, sent, now)
		if p.probe {
			d.permitted(dec.Permit, ms(dec.ProbeHoldMS), sent, now)
		}
	}
	d.rebuild(now)
	if d.told.admit > 0 {
		d.client.syncer.sooner(sent.Add(d.policy().Breaker.RampStep)) // then the next step is due
	}
	d.mu.Unlock()
	if senseless != nil { // a log handler is somebody else's code: not under the lock
		d.client.config.log.Error("the control plane sent a policy that makes no sense; the old one stays in force",
			"dependency", d.name, "version", dec.PolicyVersion, "error", senseless)
	}
}

// ms is a duration of the wire, kept within what anybody can mean.
func ms(n int64) time.Duration {
	return time.Duration(clamp(n, 0, wire.MaxOverrideMS)) * time.Millisecond
}

// adopt takes the fleet's state over, if it is newer than what is known: of one epoch the higher generation, else what
// the later request brought. It needs d.mu.
func (d *Dependency) adopt(dec *wire.Decision, sent, now time.Time, degraded bool) {
	t := &d.told
	if degraded && (dec.Epoch != t.epoch || dec.Generation <= t.generation) {
		return // a replica that lost its store is no witness of a new epoch, nor of how long something still lasts
	}
	if !t.sent.IsZero() {
		if dec.Epoch == t.epoch {
			if dec.Generation < t.generation {
				return
			}
			if dec.Generation == t.generation && sent.Before(t.sent) {
				return
			}
		} else if sent.Before(t.sent) {
			return
		}
	}
	before, _ := t.at(now)
	ramping := t.admit > 0
	changed := t.sent.IsZero() || dec.Epoch != t.epoch || dec.Generation != t.generation
	*t = told{
		sent: later(t.sent, sent), epoch: dec.Epoch, generation: dec.Generation, state: state(dec.State),
		admit: dec.AdmitPPM, failure: dec.FailurePPM, instances: dec.Instances,
		renewed: t.renewed, notBefore: t.notBefore,
	}
	if t.state == policy.Open {
		t.until = sent.Add(ms(dec.RemainingMS))
	}
	switch {
	case dec.NotBeforeMS > 0:
		t.notBefore = sent.Add(ms(dec.NotBeforeMS))
	case !degraded:
		t.notBefore = time.Time{}
	}
	if !degraded {
		t.renewed = later(t.renewed, sent)
	}
	if changed {
		d.probing.token, d.probing.hold = "", time.Time{}
		d.local = d.local.Succeed() // failures in a row are those of one generation
	}
	if passes := t.state == policy.Closed || t.admit > 0; passes && changed && before != policy.Closed && !ramping {
		// The fleet's probes went well: what this instance's own breaker holds against the dependency is out of date.
		d.resetLocal(now)
	}
	if !degraded {
		d.suspended = false
	}
}

// state reads a state of the wire. What a newer control plane may call a state is none that rejects calls.
func state(s string) policy.State {
	switch s {
	case wire.Open:
		return policy.Open
	case wire.HalfOpen:
		return policy.HalfOpen
	}
	return policy.Closed
}

// order takes over what operators ordered: override and policy. The later request's answer counts; a control plane
// without its store may know less than this instance, and takes nothing back. The error is govern's. It needs d.mu.
func (d *Dependency) order(dec *wire.Decision, sent, now time.Time, degraded bool) (senseless error) {
	o := &d.override
	if sent.Before(o.sent) {
		return nil
	}
	var next override
	if w := dec.Override; w != nil && policy.Mode(w.Mode).Valid() {
		next = override{mode: policy.Mode(w.Mode), revision: w.Revision, until: sent.Add(ms(w.RemainingMS))}
	}
	if degraded && next.revision <= o.revision {
		return nil
	}
	next.sent = sent
	if next.mode != o.mode || next.revision != o.revision {
		d.client.emit(Event{Kind: EventOverride, Dependency: d.name, At: now, Source: SourceOverride, Mode: next.mode})
	}
	*o = next
	return d.govern(dec)
}

// govern takes a policy over. The error says, once, why it makes no sense. It needs d.mu.
func (d *Dependency) govern(dec *wire.Decision) error {
	switch version := dec.PolicyVersion; {
	case version == d.version:
	case version == 0:
		d.rules.Store(&d.client.config.policy)
		d.version = 0
	case dec.Policy == nil || version == d.refused:
	default:
		p, err := dec.Policy.Over(policy.Default())
		if err != nil {
			d.refused = version
			return err
		}
		d.rules.Store(&p)
		d.version = version
	}
	return nil
}

// unanswered ends what the parcel asked for, without an answer.
func (p *parcel) unanswered(now time.Time) {
	d := p.dep
	d.mu.Lock()
	defer d.mu.Unlock()
	d.unsettle(p.number, now)
	if p.probe {
		d.probing.hold = now.Add(probeRepeat)
		d.probeAnswered()
	}
	d.rebuild(now)
}

// cutOff reports whether this instance has to do without the fleet as far as this dependency is concerned: nothing
// reaches the control plane, or this dependency's reports are refused. It needs d.mu.
func (d *Dependency) cutOff(now time.Time) bool {
	return d.client.link.now().cutOff || !d.barred.IsZero() && !passed(now, d.barred)
}

// bar has the dependency do without the fleet for a while. It reports whether it did not have to before.
func (d *Dependency) bar(length time.Duration) (first bool) {
	now := d.client.now()
	d.mu.Lock()
	defer d.mu.Unlock()
	first = d.barred.IsZero()
	d.barred = now.Add(length)
	return first
}

// relink takes note that the control plane is out of reach, or in reach again.
func (d *Dependency) relink() {
	now := d.client.now()
	d.mu.Lock()
	defer d.mu.Unlock()
	d.take(now) // opens, or closes, this instance's own budget
	switch b := &d.local.Breaker; {
	case d.cutOff(now):
		d.unsettle(0, now)
		d.probeAnswered()
	case b.State == policy.Open:
		// The open times of an instance on its own are long, because nobody calls off the alarm. Now somebody would.
		b.Until = now
	}
	d.rebuild(now)
}
