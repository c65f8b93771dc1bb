package client

import (
	"time"

	"github.com/retryplane/retryplane/pkg/policy"
)

// gate is what a view tells a call to do.
type gate uint8

const (
	gatePass   gate = iota
	gateReject      // with the view's prebuilt error
	gateAdmit       // ramping: a share of the calls passes
	gateProbe       // the fleet's breaker lets probes through: one call asks for a permit
	gateTrial       // the local breaker does: one call at a time
	gateIdle        // nobody has called for a while: wake the dependency up, then look again
	gateClock       // nobody minds the clock in the background: the call does, then goes by view.behind
)

// view is what calls act on, worked out beforehand from everything this instance knows. It is immutable; every change
// publishes a new one.
//
//	operator's override  ->  fleet's breaker, as told last  ->  this instance's own breaker
type view struct {
	gate     gate
	behind   gate // of gateClock
	known    bool // the control plane has told something
	closed   bool // effective state closed, here too, and not ramping: retries may be sent
	sample   int64
	admit    policy.PPM
	reject   error     // what rejected calls return; set unless gate is gatePass for sure
	until    time.Time // of a view that calls have to check against the clock; zero = they need not
	counters *counters
}

// rule is the gate that a call goes by which has looked at the clock itself.
func (v *view) rule() gate {
	if v.gate == gateClock {
		return v.behind
	}
	return v.gate
}

// sampleMask makes one of 16 requests read the clock.
const sampleMask = 15

// refreshes is how often, in its time, the time left in a prebuilt error is brought up to date.
const refreshes = 10

// rebuild works out the view at now and publishes it. It needs d.mu.
func (d *Dependency) rebuild(now time.Time) {
	if d.invalid != nil {
		return
	}
	link := d.client.link.now()
	set := d.policy()
	var due schedule
	v := view{sample: sampleMask}
	if set.Breaker.SlowCall > 0 {
		v.sample = 0
	}
	v.gate, v.admit, v.reject = d.gate(now, link, set, &due)
	v.closed = v.gate == gatePass
	v.known = !d.told.sent.IsZero()
	v.counters = d.countersFor(now)
	d.announce(now)
	if !v.closed {
		d.interrupt(v.reject)
	} else if d.override.at(now) == policy.ModeNoRetries {
		d.interrupt(ErrBudget)
	}

	switch {
	case !d.active:
		v.gate = gateIdle
	case d.client.clocked():
		d.renew(now) // only calls can bring that about
		due.at(now.Add(set.ViewTTL))
		v.gate, v.behind, v.until = gateClock, v.gate, due.next
	}
	d.view.Store(&v)
	d.due = due.next
	if d.active && !due.next.IsZero() {
		d.client.syncer.alarm(due.next)
	}
}

// gate decides what calls do at now, and puts into due when that will change by itself.
func (d *Dependency) gate(now time.Time, link linkState, set *policy.Policy, due *schedule) (gate, policy.PPM, error) {
	mode := d.override.at(now)
	if mode != policy.ModeNone {
		due.at(d.override.until)
	}
	switch mode {
	case policy.ModeForceOpen:
		return d.rejecting(now, SourceOverride, d.override.until, due)
	case policy.ModeForceClosed:
		return gatePass, 0, nil
	}

	alone := false
	if t := link.staleAt(set.ViewTTL); !t.IsZero() {
		alone = passed(now, t)
		due.after(now, t)
	}
	if !d.barred.IsZero() && !passed(now, d.barred) {
		alone = true
		due.at(d.barred)
	}
	var share policy.PPM
	switch state, open := d.told.at(now); {
	case open:
		return d.rejecting(now, SourceFleet, d.told.until, due)
	case state == policy.Closed:
	case alone:
		d.suspend(now)
	case d.told.admit == 0:
		return d.probeGate(now, due)
	default:
		share = d.told.admit
	}
	if d.local.Breaker.State != policy.Closed {
		if wait := d.local.Wait(now); wait > 0 {
			d.listen(now, due)
			return d.rejecting(now, SourceLocal, now.Add(wait), due)
		}
		return gateTrial, share, d.openError(SourceLocal, 0)
	}
	if share > 0 {
		return gateAdmit, share, d.openError(SourceFleet, 0)
	}
	return gatePass, 0, nil
}

// probeGate is the gate while the fleet's breaker lets probes through. Calls come to the lock only if one of them may
// get a permit.
func (d *Dependency) probeGate(now time.Time, due *schedule) (gate, policy.PPM, error) {
	p := &d.probing
	switch {
	case p.waiting, d.cutOff(now): // whoever waits, or the end of the view, brings another one
		return gateReject, 0, d.openError(SourceFleet, 0)
	case !p.usable(now) && !passed(now, p.hold):
		return d.rejecting(now, SourceFleet, p.hold, due)
	}
	return gateProbe, 0, d.openError(SourceFleet, 0)
}

// rejecting is the gate while calls are rejected until a known time.
func (d *Dependency) rejecting(now time.Time, by Source, until time.Time, due *schedule) (gate, policy.PPM, error) {
	rest := left(now, until)
	due.at(until)
	due.at(now.Add(max(rest/refreshes, 100*time.Millisecond)))
	return gateReject, 0, d.openError(by, rest)
}

func (d *Dependency) openError(by Source, after time.Duration) error {
	return &OpenError{Dependency: d.name, RetryAfter: after, Source: by}
}

// suspend takes the dependency out of the fleet's hands when the control plane is gone and the fleet's breaker was not
// closed: nobody will tell when it closes, so this instance's own breaker finds out, beginning half-open. It needs d.mu.
func (d *Dependency) suspend(now time.Time) {
	if !d.suspended {
		d.suspended = true
		d.setLocal(d.local.Suspend(now), now)
	}
}

// countersFor returns the counters of what is in force, and begins new ones if that changed. It needs d.mu.
func (d *Dependency) countersFor(now time.Time) *counters {
	c, local := d.counters, d.local.Breaker.Generation
	if c != nil && c.epoch == d.told.epoch && c.generation == d.told.generation && c.local == local {
		return c
	}
	if c != nil {
		if len(d.old) >= maxOld { // only a flapping breaker over very long calls gets here
			d.old = append(d.old[:0], d.old[1:]...)
		}
		d.old = append(d.old, c)
	}
	d.counters = newCounters(d, d.told.epoch, d.told.generation, local, now)
	return d.counters
}

// maxOld is how many old counters are kept for late results. What a dropped one had is lost to the statistics only.
const maxOld = 16

// schedule finds the earliest of several times. The zero value has none.
type schedule struct{ next time.Time }

func (s *schedule) at(t time.Time) { s.next = earlier(s.next, t) }

// after is at for a time that no longer matters once it has passed.
func (s *schedule) after(now, t time.Time) {
	if !passed(now, t) {
		s.at(t)
	}
}
