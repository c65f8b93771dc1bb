package client

import (
	"slices"
	"time"

	"github.com/retryplane/retryplane/pkg/policy"
	"github.com/retryplane/retryplane/pkg/wire"
)

// parcel is what a sync carries about one dependency, and what becomes of it if the sync does not arrive.
type parcel struct {
	dep     *Dependency
	number  int64 // of the sync, for the reservations in it
	wants   int64 // retries that it asks for
	probe   bool  // asks for a permit
	reports []wire.Report

	// What was taken for the reports:
	parts     []part
	loose     remainder
	delivered remainder // of loose: what the reports tell
	demand    time.Time // what the dependency asked for; stays until the control plane knows
	debits    int64
	unfunded  int64
	broken    int64
}

// part is what was taken from one generation's counters.
type part struct {
	counters *counters
	tally    tally
	failing  time.Time
	probes   []wire.ProbeResult
}

// remainder is what is counted without regard to generations, and reported in whole numbers only.
type remainder struct {
	// singles are the requests that ended after one attempt: the attempts that are not those of longer requests. While
	// one of these waits for its retry it looks like a single, so that there can be less than none later.
	singles int64
	micros  int64 // of the latencies
	resends int64
}

// totals are a dependency's counters since it was first asked for.
type totals struct {
	tally
	resends, unfunded int64
}

// take empties all stripes. It needs d.mu.
func (d *Dependency) take(now time.Time) {
	var before tally
	for _, c := range d.old {
		before.add(c.held)
	}
	before.add(d.counters.held)
	var taken tally
	each := func(c *counters) {
		t := c.take(now)
		taken.add(t)
		d.totals.add(t)
	}
	for _, c := range d.old {
		each(c)
	}
	each(d.counters)
	d.deposit(taken, before, now)
	d.old = slices.DeleteFunc(d.old, func(c *counters) bool {
		return c.empty() && !c.quiet.IsZero() && now.Sub(c.quiet) > settled
	})
}

// settled is how long old counters are kept that look finished: a call may have taken its view and not counted yet.
const settled = 2 * time.Second

// knock is a parcel that carries nothing: while the control plane is out of reach the counts stay here, where this
// instance's own budget needs them, and cannot get lost with a sync of which nobody knows whether it arrived.
func (d *Dependency) knock() *parcel {
	d.mu.Lock()
	defer d.mu.Unlock()
	return &parcel{dep: d, reports: []wire.Report{{Name: d.name, Applied: d.applied()}}}
}

// pack takes everything there is to report. With asks it also takes the retries and the probe that wait to be asked
// for. A parcel without reports has nothing to say.
func (d *Dependency) pack(now time.Time, number int64, asks bool) *parcel {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.take(now)
	p := &parcel{dep: d, number: number}
	if d.cutOff(now) {
		return p
	}
	// What counts for the statistics only comes first: the last report says how this instance fares.
	if p.broken = d.broken.Swap(0); p.broken > 0 {
		p.reports = append(p.reports, wire.Report{Name: d.name, Failure: p.broken, Applied: d.applied()})
	}
	for _, c := range d.old {
		if !c.empty() {
			p.add(c, now)
		}
	}
	p.debits, p.unfunded = d.debits.Swap(0), d.unfunded.Swap(0)
	resends := d.resends.Swap(0)
	d.totals.resends += resends
	d.totals.unfunded += p.unfunded
	p.loose.resends += resends
	p.loose.singles += resends

	p.demand = d.demand
	if asks || !d.counters.empty() || p.debits+p.unfunded+resends > 0 || !p.demand.IsZero() {
		r := p.add(d.counters, now)
		if asks {
			d.ask(p, r, now)
		}
		r.Ungranted, r.RejectedBudget = p.debits, p.unfunded
		r.Attempts += resends
		r.NotBeforeMS = left(now, p.demand).Milliseconds()
	}
	p.spread(d)
	if len(p.reports) > 0 {
		p.reports[len(p.reports)-1].Chains = d.chains.take()
	}
	return p
}

// ask moves the retries and the probe that wait into the sync. It needs d.mu.
func (d *Dependency) ask(p *parcel, r *wire.Report, now time.Time) {
	for _, w := range d.retries.waiting {
		if w.state != queued {
			continue
		}
		w.state, w.sync = asked, p.number
		if r.Want++; r.Want == 1 {
			r.WaitedMS = since(now, w.began).Milliseconds()
		}
	}
	p.wants = r.Want
	p.probe = d.probing.answered != nil
	r.WantProbe = p.probe
}

// add takes what c holds into a report of its own. It needs the dependency's mu.
func (p *parcel) add(c *counters, now time.Time) *wire.Report {
	t := c.held
	results := c.probes[:min(len(c.probes), wire.MaxProbesPerReport)]
	p.parts = append(p.parts, part{counters: c, tally: t, failing: c.failing, probes: results})
	p.loose.singles += t.outcomes() - t.several
	p.loose.micros += t.micros
	r := wire.Report{
		Name: c.dep.name, Epoch: c.epoch, Generation: c.generation,
		Requests: t.requests, Attempts: t.requests + t.retries,
		Success: t.success, Failure: t.failure, Throttled: t.throttled, Ignored: t.ignored,
		Slow: t.slow, RejectedBreaker: t.rejected,
		LatencyCount: t.sampled, FailureRun: c.run.Load(),
		Probes: results, Applied: c.dep.applied(),
	}
	if !t.oldest.IsZero() {
		r.AgeMS = since(now, t.oldest).Milliseconds() + 1 // never younger than it is
	}
	if t.failure > 0 && since(now, c.failing) > c.dep.client.link.now().old() {
		r.Epoch, r.Generation = "", 0 // for the statistics only: the breaker must not judge today by yesterday
	}
	c.held, c.failing = tally{}, time.Time{}
	c.probes = slices.Clone(c.probes[len(results):])
	p.reports = append(p.reports, r)
	return &p.reports[len(p.reports)-1]
}

// spread writes what belongs to no generation into the last report, in whole numbers; what is left over, or all of it if
// there is no report, waits for the next parcel. It needs d.mu.
func (p *parcel) spread(d *Dependency) {
	d.rest.singles += p.loose.singles
	d.rest.micros += p.loose.micros
	if len(p.reports) == 0 {
		return
	}
	p.delivered = remainder{singles: max(d.rest.singles, 0), micros: d.rest.micros / 1000 * 1000}
	d.rest.singles -= p.delivered.singles
	d.rest.micros -= p.delivered.micros

	r := &p.reports[len(p.reports)-1]
	ended := []int64{p.delivered.singles, 0, 0, 0, 0}
	for _, part := range p.parts {
		for i, n := range part.tally.ended {
			ended[i+1] += n
		}
	}
	if slices.Max(ended) > 0 {
		r.AttemptsPerRequest = ended
	}
	r.LatencySumMS = p.delivered.micros / 1000
}

// restore gives everything back: the sync did not arrive.
func (p *parcel) restore() {
	d := p.dep
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, part := range p.parts {
		c := part.counters
		c.held.add(part.tally)
		c.failing = earlier(c.failing, part.failing)
		c.probes = append(slices.Clone(part.probes), c.probes...)
		d.keep(c)
	}
	// What the next pack adds up again must not be counted twice.
	d.rest.singles += p.delivered.singles - p.loose.singles
	d.rest.micros += p.delivered.micros - p.loose.micros
	d.resends.Add(p.loose.resends)
	d.totals.resends -= p.loose.resends
	d.unfunded.Add(p.unfunded)
	d.totals.unfunded -= p.unfunded
	d.broken.Add(p.broken)
	d.debits.Add(p.debits)
}

// lose gives back what may arrive twice: the sync may have arrived. Debits err to the safe side, and a probe counts
// once by its token. The rest is lost.
func (p *parcel) lose() {
	d := p.dep
	d.mu.Lock()
	defer d.mu.Unlock()
	d.debits.Add(p.debits)
	for _, part := range p.parts {
		if len(part.probes) > 0 {
			part.counters.probes = append(slices.Clone(part.probes), part.counters.probes...)
			d.keep(part.counters)
		}
	}
}

// keep makes sure that counters that got something back are reported. It needs d.mu.
func (d *Dependency) keep(c *counters) {
	if c != d.counters && !slices.Contains(d.old, c) {
		d.old = append(d.old, c)
	}
}

// applied is what this instance acts on. It needs d.mu.
func (d *Dependency) applied() wire.Applied {
	a := wire.Applied{Generation: d.told.generation, PolicyVersion: d.version}
	if d.override.mode != policy.ModeNone {
		a.OverrideRevision = d.override.revision
	}
	return a
}

// restful reports whether the dependency has nothing to say, nothing to wait for and nothing under way. It needs d.mu.
func (d *Dependency) restful(now time.Time) bool {
	if !d.active || d.cutOff(now) || !d.demand.IsZero() || len(d.retries.waiting) > 0 || d.probing.answered != nil {
		return false
	}
	d.take(now)
	for _, c := range d.old {
		if !c.empty() || c.inFlight > 0 {
			return false
		}
	}
	return d.counters.empty() && d.counters.inFlight <= 0
}
