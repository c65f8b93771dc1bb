package exchange

import (
	"context"
	"fmt"
	"time"

	"github.com/retryplane/retryplane/internal/keyspace"
	"github.com/retryplane/retryplane/internal/sharedbreaker"
	"github.com/retryplane/retryplane/pkg/policy"
	"github.com/retryplane/retryplane/pkg/wire"
)

// Sync takes what one instance reports and answers with decisions, once the report is in Redis. The caller has
// validated r. Errors: ErrStore (the store has been away for too long for the last known views), ErrBusy, ErrClosed.
//
// The same sequence number of the same caller's instance gets the same answer and counts once. caller is the name of
// whoever's token it is. ctx bounds only the wait for
// another's answer: a report that was taken is answered in the time of two flushes, at most about 2 s.
func (x *Exchange) Sync(ctx context.Context, caller string, r *wire.SyncRequest) (*wire.SyncResponse, error) {
	mine := &answer{done: make(chan struct{})}
	key := syncKey{caller, r.Instance, r.Seq}
	if first := x.answers.first(key, mine, len(r.Dependencies), time.Now()); first != mine {
		x.tally.sync("repeated")
		select {
		case <-first.done:
			return first.response, first.err
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	defer close(mine.done)
	next, ok := x.pace.enter(r.Instance, time.Now())
	if !ok {
		x.answers.drop(key) // nothing was counted: the instance may come again
		x.tally.sync("busy")
		mine.err = ErrBusy
		return nil, ErrBusy
	}
	defer x.pace.leave()
	mine.response, mine.err = x.serve(key, r)
	switch {
	case mine.err != nil:
		x.answers.drop(key)
		x.tally.sync("unavailable")
		return nil, mine.err
	case mine.response.Degraded:
		x.tally.sync("degraded")
	default:
		x.tally.sync("ok")
	}
	mine.response.Seq, mine.response.NextSyncMS = r.Seq, next.Milliseconds()
	return mine.response, nil
}

func (x *Exchange) serve(key syncKey, r *wire.SyncRequest) (*wire.SyncResponse, error) {
	select {
	case <-x.closed:
		return nil, ErrClosed
	default:
	}
	if h := x.store.health(); h.Degraded {
		if !h.Ready || time.Since(h.Since) > lastViews {
			return nil, fmt.Errorf("%w: %w", ErrStore, h.Err)
		}
		for i := range r.Dependencies {
			d := &r.Dependencies[i]
			x.groups[keyspace.Group(d.Name)].keep(d.Name, display(d), d.Ungranted)
		}
		return x.lastKnown(r), nil
	}

	byGroup := make(map[int][]*wire.Report)
	for i := range r.Dependencies {
		x.chains.note(r.Dependencies[i].Name, r.Dependencies[i].Chains)
		g := keyspace.Group(r.Dependencies[i].Name)
		byGroup[g] = append(byGroup[g], &r.Dependencies[i])
	}
	oldest := x.pace.oldestDeposit()
	parts := make(map[string]*merged, len(r.Dependencies))
	batches := make([]*batch, 0, len(byGroup))
	for g, reports := range byGroup {
		batches = append(batches, x.groups[g].put(func(b *batch) {
			for _, report := range reports {
				parts[report.Name] = b.add(key, report, oldest)
			}
		}))
	}
	degraded := false
	for _, b := range batches {
		select {
		case <-b.done:
		case <-x.closed:
			select {
			case <-b.done: // flushed just before the end
			default:
				return nil, ErrClosed
			}
		}
		degraded = degraded || b.err != nil
	}
	if degraded {
		return x.lastKnown(r), nil
	}
	resp := &wire.SyncResponse{Dependencies: make([]wire.Decision, 0, len(parts))}
	for i := range r.Dependencies {
		report := &r.Dependencies[i]
		m := parts[report.Name]
		if m == nil {
			continue // a further generation of a dependency that is answered already
		}
		delete(parts, report.Name)
		d := decision(m.standing, m.policy, report)
		if m.degraded {
			resp.Degraded = true
		}
		d.Granted = m.grants[key]
		if d.Granted > 0 {
			d.GrantTTLMS = m.policy.Budget.GrantTTL.Milliseconds()
		}
		if report := wanting(r, report.Name); report != nil && d.Granted < report.Want {
			d.HoldMS = m.hold.Milliseconds()
		}
		if p, asked := m.permits[key]; asked {
			if p.Token != "" {
				d.Permit = &wire.Permit{Token: p.Token, LeaseMS: p.Lease.Milliseconds()}
			}
			d.ProbeHoldMS = p.Hold.Milliseconds()
		}
		resp.Dependencies = append(resp.Dependencies, d)
	}
	return resp, nil
}

// wanting is the report of a dependency that carries a want; one instance has one per sync.
func wanting(r *wire.SyncRequest, name string) *wire.Report {
	for i := range r.Dependencies {
		if d := &r.Dependencies[i]; d.Name == name && d.Want > 0 {
			return d
		}
	}
	return nil
}

// lastKnown answers without the store: no grants, no permits, and the instance is told that this renews nothing.
func (x *Exchange) lastKnown(r *wire.SyncRequest) *wire.SyncResponse {
	resp := &wire.SyncResponse{Degraded: true, Dependencies: make([]wire.Decision, 0, len(r.Dependencies))}
	seen := make(map[string]bool, len(r.Dependencies))
	for i := range r.Dependencies {
		report := &r.Dependencies[i]
		if seen[report.Name] {
			continue
		}
		seen[report.Name] = true
		standing, p, ok := x.registry.standing(report.Name)
		if !ok {
			standing.Name = report.Name
		}
		resp.Dependencies = append(resp.Dependencies, decision(standing, p, report))
	}
	return resp
}

// decision says where a dependency stands, with durations as of standing.Now.
func decision(s sharedbreaker.Standing, p policy.Policy, report *wire.Report) wire.Decision {
	d := wire.Decision{
		Name: s.Name, Epoch: s.Epoch, Generation: s.Breaker.Generation, State: s.Breaker.State.String(),
		RemainingMS: ceilMS(s.Breaker.Remaining(s.Now)),
		FailurePPM:  s.FailureRate, Instances: s.Instances,
		PolicyVersion: s.Policy.Version,
	}
	if rest := s.NotBefore.Sub(s.Now); !s.NotBefore.IsZero() && rest > 0 {
		d.NotBeforeMS = ceilMS(rest)
	}
	if s.Breaker.State == policy.HalfOpen {
		d.AdmitPPM = s.Breaker.Admit(s.Now, p.Breaker)
	}
	if o := s.Override; o.InForce(s.Now) {
		d.Override = &wire.Override{
			Mode: string(o.Mode), Revision: o.Revision, RemainingMS: ceilMS(o.Expires.Sub(s.Now)),
		}
	}
	if s.Policy.Version != 0 && s.Policy.Version != report.Applied.PolicyVersion {
		full := wire.FromPolicy(p)
		d.Policy = &full
	}
	return d
}

// ceilMS rounds up: a remaining time that is not over must not look as if it were.
func ceilMS(d time.Duration) int64 {
	return int64((d + time.Millisecond - 1) / time.Millisecond)
}
