package client

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/retryplane/retryplane/pkg/policy"
)

// Dependency guards the calls to one dependency. Get one by [Client.Dependency] and keep it. Its methods are safe for
// concurrent use, and go on working, alone, after the client was closed.
type Dependency struct {
	view atomic.Pointer[view]

	client  *Client
	name    string
	invalid error // the name is none: nothing is guarded
	rules   atomic.Pointer[policy.Policy]

	resends  atomic.Int64 // sends that nobody granted, beyond the attempts
	debits   atomic.Int64 // sends that nobody granted, these included; the budget is to be charged
	unfunded atomic.Int64 // retries that the budget refused
	chains   chains
	broken   atomic.Int64 // bodies that broke after their attempt had counted as a success

	mu        sync.Mutex
	active    bool      // somebody called lately; the client syncs and minds the clock
	due       time.Time // when the view changes by itself; zero = it does not
	renewing  time.Time // when the control plane was last asked because the view was old
	barred    time.Time // until when the control plane is not asked again, which refused this very dependency
	told      told
	demand    time.Time // the dependency asked this instance not to retry before; until the control plane knows
	override  override
	version   int64 // of the policy in rules; 0 = the client's own
	refused   int64 // version of a policy that makes no sense; 0 = none
	local     policy.Local
	listened  int64 // generation of local in which the control plane was asked, see listen
	suspended bool  // see suspend
	seen      policy.State
	counters  *counters
	old       []*counters // of earlier generations, until their calls are done
	rest      remainder
	probing   probing
	retries   retries
	totals    totals
}

// told is what the control plane said last about the fleet's breaker. The zero value: nothing yet, as good as closed.
type told struct {
	sent       time.Time // the request that brought the answer; zero = none did
	epoch      string
	generation int64
	state      policy.State
	until      time.Time  // open: end of the open time
	admit      policy.PPM // half-open: 0 = probing
	failure    policy.PPM // the fleet's failure rate
	instances  int64
	renewed    time.Time // like sent, of the last answer by a control plane that had its store
	notBefore  time.Time // the dependency asked that nobody retries before
}

// at is the state at now, and whether calls are rejected for certain: an open breaker whose time is over waits for a
// probe as a half-open one does.
func (t *told) at(now time.Time) (state policy.State, open bool) {
	if t.state != policy.Open {
		return t.state, false
	}
	if passed(now, t.until) {
		return policy.HalfOpen, false
	}
	return policy.Open, true
}

// override is what an operator ordered, as told last.
type override struct {
	mode     policy.Mode
	revision int64
	until    time.Time
	sent     time.Time // the request that brought it
}

// at is the mode in force at now.
func (o *override) at(now time.Time) policy.Mode {
	if o.mode == policy.ModeNone || passed(now, o.until) {
		return policy.ModeNone
	}
	return o.mode
}

func newDependency(c *Client, name string) *Dependency {
	d := &Dependency{client: c, name: name}
	d.rules.Store(&c.config.policy)
	now := c.now()
	d.mu.Lock()
	defer d.mu.Unlock()
	if !policy.ValidName(name) {
		d.invalid = &InvalidNameError{Name: name}
		d.view.Store(&view{gate: gateReject, reject: d.invalid, counters: newCounters(d, "", 0, 0, now)})
		return d
	}
	d.rebuild(now)
	return d
}

// Name is the dependency's name.
func (d *Dependency) Name() string { return d.name }

// policy is what is in force: the control plane's if it sent one, else the client's own. It is never nil and must not
// be written to.
func (d *Dependency) policy() *policy.Policy { return d.rules.Load() }

// breakerClosed reports whether retries may be sent as far as breakers and operators are concerned: the effective state
// is closed, here too, and not ramping.
func (d *Dependency) breakerClosed() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.rebuild(d.client.now())
	return d.view.Load().closed
}

// activate wakes an idle dependency up. If what it was told is old by now, or if it was told nothing yet, the client
// asks at once; meanwhile the old view applies, for it is not wrong because nobody called.
func (d *Dependency) activate() {
	now := d.client.now()
	d.mu.Lock()
	defer d.mu.Unlock()
	d.wake(now)
	d.rebuild(now)
}

// wake is activate without a new view. It needs d.mu.
func (d *Dependency) wake(now time.Time) {
	if d.active || d.invalid != nil {
		return
	}
	d.active = true
	for _, c := range d.old {
		c.taken = now
	}
	d.counters.taken = now // nothing was counted since; what comes now is as new as it is
	d.client.syncer.add(d)
	d.renew(now)
}

// renew asks the control plane at once if what it said is older than a view may get, and that was not asked for just
// now. It needs d.mu.
func (d *Dependency) renew(now time.Time) {
	old := d.told.renewed.IsZero() || since(now, d.told.renewed) >= d.policy().ViewTTL
	if old && (d.renewing.IsZero() || since(now, d.renewing) >= defaultInterval) {
		d.renewing = now
		d.client.syncer.demand(d, askView)
	}
}

// refresh brings the view up to the clock, for a call that found it out of date.
func (d *Dependency) refresh() {
	now := d.client.now()
	d.mu.Lock()
	defer d.mu.Unlock()
	d.take(now) // dates what was counted since: there is no regular report that does
	d.rebuild(now)
}

// announce tells of a change of what the fleet's breaker and the operators make calls meet. It needs d.mu.
func (d *Dependency) announce(now time.Time) {
	state, source := d.ordered(now)
	if state == d.seen {
		return
	}
	d.client.emit(Event{Kind: EventBreaker, Dependency: d.name, At: now, From: d.seen, To: state, Source: source})
	d.seen = state
}

// ordered is the state that the fleet or an operator put in force, this instance's own breaker apart. It needs d.mu.
func (d *Dependency) ordered(now time.Time) (policy.State, Source) {
	switch d.override.at(now) {
	case policy.ModeForceOpen:
		return policy.Open, SourceOverride
	case policy.ModeForceClosed:
		return policy.Closed, SourceOverride
	}
	state, _ := d.told.at(now)
	return state, SourceFleet
}
