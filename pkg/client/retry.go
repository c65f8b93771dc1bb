package client

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/retryplane/retryplane/pkg/policy"
	"github.com/retryplane/retryplane/pkg/wire"
)

// grant is one retry that may be sent. The zero value is none.
type grant struct {
	expires time.Time
	local   bool // out of this instance's own budget, because it is cut off: the fleet's is charged afterwards
}

// retries is what a dependency knows about its retries.
type retries struct {
	waiting []*reservation // in the order in which they came
	spare   []grant        // came too late for who asked; the next retry takes them
	hold    time.Time      // the fleet's budget is exhausted: do not ask before
	funds   *funds         // nil unless cut off
}

// reservation is a retry that waits out its backoff while it is drawn from the budget.
type reservation struct {
	began, draw, end, last time.Time     // draw: when to ask; end: of the wait; last: when to give up
	signal                 chan struct{} // the state below changed; buffered

	// Guarded by the dependency's mu:
	state stage
	sync  int64 // number of the sync that carries it, while asked
	grant grant // once granted
	err   error // once refused
}

// stage is how far a reservation has come.
type stage uint8

const (
	idle    stage = iota // too early to ask
	queued               // wants to be part of the next sync
	asked                // is part of one that is under way
	granted              // waits for the end of its backoff
	refused
)

// grantGrace is how much longer than its backoff a retry waits for a late answer.
const grantGrace = 250 * time.Millisecond

// reserve waits out wait, and meanwhile draws a retry from the budget: the fleet's, or while the control plane is out
// of reach, this instance's own. A grant lives for a limited time, so a long wait draws late. A late answer prolongs
// the wait by at most 250 ms, within deadline (zero = none).
//
// An error comes at once, without the rest of the wait: [ErrBudget], a [*OpenError] when the breaker is no longer
// closed (a ramp is not closed), ctx's.
func (d *Dependency) reserve(ctx context.Context, wait time.Duration, deadline time.Time) (grant, error) {
	if d.invalid != nil {
		return grant{}, d.invalid
	}
	now := d.client.now()
	r := &reservation{began: now, end: now.Add(max(wait, 0)), signal: make(chan struct{}, 1)}
	r.draw = r.end.Add(-d.policy().Budget.GrantTTL / 2)
	r.last = r.end.Add(grantGrace)
	if !deadline.IsZero() && deadline.Before(r.last) {
		r.last = deadline
	}
	d.mu.Lock()
	d.wake(now)
	d.retries.waiting = append(d.retries.waiting, r)
	d.mu.Unlock()
	defer d.forget(r)

	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return grant{}, ctx.Err()
		case <-r.signal:
		case <-timer.C:
		}
		now = d.client.now()
		d.mu.Lock()
		next, over := d.advance(r, now)
		g, err := r.grant, r.err
		d.mu.Unlock()
		if over {
			if errors.Is(err, ErrBudget) {
				d.unfunded.Add(1)
			}
			return g, err
		}
		timer.Reset(next.Sub(now))
	}
}

// advance moves a reservation on. It says when to look again, or that it is over. It needs d.mu.
func (d *Dependency) advance(r *reservation, now time.Time) (next time.Time, over bool) {
	d.rebuild(now) // refuses all that wait, if the breaker is no longer closed
	if r.state == idle && !now.Before(r.draw) {
		d.draw(r, now)
	}
	switch r.state {
	case refused:
		return time.Time{}, true
	case granted:
		return r.end, !now.Before(r.end)
	case idle:
		next = r.draw
	default:
		next = r.last
	}
	if !now.Before(r.last) || next.After(r.last) {
		r.refuse(ErrBudget)
		return time.Time{}, true
	}
	return next, false
}

// draw asks for r's retry, at the nearest place that may have one. It needs d.mu.
func (d *Dependency) draw(r *reservation, now time.Time) {
	w := &d.retries
	w.spare = slices.DeleteFunc(w.spare, func(g grant) bool { return passed(now, g.expires) })
	if i := slices.IndexFunc(w.spare, func(g grant) bool { return !passed(r.end, g.expires) }); i >= 0 {
		r.grantOne(w.spare[i])
		w.spare = slices.Delete(w.spare, i, i+1)
		return
	}
	switch {
	case d.override.at(now) == policy.ModeNoRetries:
		r.refuse(ErrBudget)
	case d.cutOff(now):
		d.drawLocal(r, now)
	case !passed(now, w.hold):
		r.draw = w.hold // advance refuses it if that is too late
	default:
		r.state = queued
		d.client.syncer.demand(d, askRetry)
	}
}

// grantOne and refuse settle a reservation. They need the dependency's mu.
func (r *reservation) grantOne(g grant) {
	r.state, r.grant = granted, g
	r.wake()
}

func (r *reservation) refuse(err error) {
	r.state, r.grant, r.err = refused, grant{}, err
	r.wake()
}

func (r *reservation) wake() {
	select {
	case r.signal <- struct{}{}:
	default:
	}
}

// forget ends a reservation. A grant that is still under way for it will be spare.
func (d *Dependency) forget(r *reservation) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if i := slices.Index(d.retries.waiting, r); i >= 0 {
		d.retries.waiting = slices.Delete(d.retries.waiting, i, i+1)
	}
}

// interrupt refuses every retry that waits: the breaker is no longer closed. It needs d.mu.
func (d *Dependency) interrupt(err error) {
	for _, r := range d.retries.waiting {
		if r.state != refused {
			r.refuse(err)
		}
	}
}

// settle gives the answer to the retries that the parcel asked for; the longest waiting come first. What is granted
// beyond that is for those who come next: it is charged already. It needs d.mu.
func (d *Dependency) settle(p *parcel, dec *wire.Decision, sent, now time.Time) {
	w := &d.retries
	if p.wants > 0 {
		w.hold = time.Time{}
		if dec.HoldMS > 0 {
			w.hold = sent.Add(ms(dec.HoldMS))
		}
	}
	ttl := d.policy().Budget.GrantTTL
	if dec.GrantTTLMS > 0 {
		ttl = ms(dec.GrantTTLMS)
	}
	g := grant{expires: sent.Add(ttl)}
	n := dec.Granted
	if passed(now, g.expires) {
		n = 0
	}
	for _, r := range w.waiting {
		if r.state != asked || r.sync != p.number {
			continue
		}
		if n > 0 {
			n--
			r.grantOne(g)
		} else {
			r.refuse(ErrBudget)
		}
	}
	const most = 100
	for ; n > 0 && len(w.spare) < most; n-- {
		w.spare = append(w.spare, g)
	}
}

// unsettle gives the retries of a sync that brought no answer back: to the queue, or to this instance's own budget when
// it is cut off. It needs d.mu.
func (d *Dependency) unsettle(sync int64, now time.Time) {
	cutOff := d.cutOff(now)
	for _, r := range d.retries.waiting {
		if r.state == asked && r.sync == sync {
			r.state = queued
		}
		if r.state != queued {
			continue
		}
		if cutOff {
			d.drawLocal(r, now)
		} else {
			d.client.syncer.demand(d, askRetry)
		}
	}
}

// acquireRetry is Acquire for a retry, just before it is sent. It counts an attempt, not a request. Errors: a
// [*OpenError] when the breaker is no longer closed, [ErrBudget] when the grant has expired.
func (d *Dependency) acquireRetry(_ context.Context, g grant) (Permit, error) {
	if d.invalid != nil {
		return Permit{}, d.invalid
	}
	now := d.client.now()
	d.mu.Lock()
	defer d.mu.Unlock()
	d.wake(now)
	d.rebuild(now)
	v := d.view.Load()
	if !v.closed {
		return d.reject()
	}
	if passed(now, g.expires) || d.override.at(now) == policy.ModeNoRetries {
		d.unfunded.Add(1)
		return Permit{}, ErrBudget
	}
	if g.local {
		d.debits.Add(1)
	}
	s := v.counters.stripe()
	p := Permit{counters: v.counters, stripe: s}
	if (s.retries.Add(1)-1)&v.sample == 0 {
		p.started = v.counters.mark(s, 0)
	}
	return p, nil
}

// ungranted counts sends that nobody granted, beyond the attempts that were acquired: net/http's own resends. The
// fleet's budget is charged for them.
func (d *Dependency) ungranted(n int) {
	if n <= 0 || d.invalid != nil {
		return
	}
	d.resends.Add(int64(n))
	d.debits.Add(int64(n))
}

// finished counts a request of more than one attempt, once, when it is over. attempts are those acquired, and the
// resends told to ungranted. Requests of one attempt need not be told.
func (d *Dependency) finished(attempts int) {
	if attempts < 2 || d.invalid != nil {
		return
	}
	s := d.view.Load().counters.stripe()
	s.several.Add(int64(attempts))
	s.ended[min(attempts, 5)-2].Add(1)
}

// brokenBody counts a response whose body broke after its headers had counted as a success: for the statistics only.
func (d *Dependency) brokenBody() { d.broken.Add(1) }
