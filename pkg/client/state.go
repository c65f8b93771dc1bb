package client

import (
	"time"

	"github.com/retryplane/retryplane/pkg/policy"
)

// View is what this instance knows about a dependency at one moment.
type View struct {
	Dependency string
	State      policy.State  // what calls meet: the override's, else the fleet's, else this instance's own
	Source     Source        // who decided State; local until the control plane has told something, and while that is stale
	RetryAfter time.Duration // how long calls are rejected for certain; 0 = not, or unknown
	Admit      policy.PPM    // share of the calls that pass by the fleet's breaker: Whole, a ramp's step, or 0

	Known       bool          // the control plane has told something
	Stale       bool          // it is out of reach for so long that what it told is no longer acted on; not for idleness
	Age         time.Duration // of what it told last, by the wall clock after a freeze
	Fleet       policy.State  // automatic state of the fleet's breaker, as told
	Epoch       string
	Generation  int64
	FailureRate policy.PPM // the fleet's
	Instances   int64      // of the fleet, that report this dependency
	NotBefore   time.Duration

	Local policy.State // this instance's own breaker

	Override          policy.Mode // ModeNone = none in force
	OverrideRevision  int64
	OverrideRemaining time.Duration

	PolicyVersion int64 // 0 = the client's own policy
}

// State returns what this instance knows. It changes nothing: no probe is spent, nothing is counted or asked for.
func (d *Dependency) State() View {
	if d.invalid != nil {
		return View{Dependency: d.name}
	}
	now := d.client.now()
	link := d.client.link.now()
	set := d.policy()
	d.mu.Lock()
	defer d.mu.Unlock()
	t := &d.told
	v := View{
		Dependency: d.name, Known: !t.sent.IsZero(),
		Epoch: t.epoch, Generation: t.generation, FailureRate: t.failure, Instances: t.instances,
		Local: d.local.Breaker.At(now).State, PolicyVersion: d.version,
	}
	v.Fleet, _ = t.at(now)
	v.State, v.Source = d.ordered(now)
	v.Admit = policy.Whole
	if v.Fleet != policy.Closed {
		v.Admit = t.admit
	}
	switch {
	case d.override.at(now) == policy.ModeForceOpen:
		v.RetryAfter = left(now, d.override.until)
	case v.State == policy.Open:
		v.RetryAfter = left(now, t.until)
	}
	if v.Source == SourceFleet && v.Local != policy.Closed && (v.State == policy.Closed || d.suspended) {
		v.State, v.Source, v.RetryAfter = v.Local, SourceLocal, d.local.Wait(now)
	} else if v.Source == SourceFleet && d.suspended && v.State != policy.Open {
		v.State, v.Source = policy.Closed, SourceLocal
	}
	if v.Known {
		v.Age = since(now, t.renewed)
		v.NotBefore = max(left(now, t.notBefore), left(now, d.demand))
	}
	staleAt := link.staleAt(set.ViewTTL)
	v.Stale = !staleAt.IsZero() && passed(now, staleAt)
	if v.Source == SourceFleet && (!v.Known || v.Stale && v.State == policy.Closed) {
		v.Source = SourceLocal // nobody says closed: it is what this instance assumes
	}
	if mode := d.override.at(now); mode != policy.ModeNone {
		v.Override, v.OverrideRevision, v.OverrideRemaining = mode, d.override.revision, left(now, d.override.until)
	}
	return v
}
