package exchange

import (
	"time"

	"github.com/retryplane/retryplane/internal/sharedbreaker"
	"github.com/retryplane/retryplane/pkg/policy"
	"github.com/retryplane/retryplane/pkg/wire"
)

// Dependencies returns all dependencies by name, as the replica knows them (at most about 2 s old), with remaining
// times as of now. It costs Redis nothing.
func (x *Exchange) Dependencies() []wire.Dependency {
	names := x.registry.names()
	out := make([]wire.Dependency, 0, len(names))
	for _, name := range names {
		if d, ok := x.Dependency(name); ok {
			out = append(out, d)
		}
	}
	return out
}

// Dependency returns one dependency as the replica knows it; false if there is none of that name.
func (x *Exchange) Dependency(name string) (wire.Dependency, bool) {
	x.registry.mu.RLock()
	defer x.registry.mu.RUnlock()
	e := x.registry.deps[name]
	if e == nil {
		return wire.Dependency{}, false
	}
	return e.resource(), true
}

// answer is a dependency as an order left it, whatever the registry has learned since.
func (r *registry) answer(s sharedbreaker.Standing) wire.Dependency {
	r.mu.RLock()
	defer r.mu.RUnlock()
	e := entry{policy: policy.Default(), learned: time.Now()}
	if known := r.deps[s.Name]; known != nil {
		e.usage, e.policy, s.Window = known.usage, known.policy, known.standing.Window
	}
	e.standing = s
	return e.resource()
}

// resource is an entry as people read it.
func (e *entry) resource() wire.Dependency {
	s := e.present()
	d := wire.Dependency{
		Name: s.Name,
		Breaker: wire.BreakerStatus{
			Effective: policy.Effective(s.Breaker, s.Override, s.Now).String(),
			Automatic: automatic(s, e.policy.Breaker),
		},
		Budget: wire.BudgetStatus{
			RatioPPM: e.policy.Budget.Ratio, Floor: e.policy.Budget.Floor,
			WindowMS: e.policy.Budget.Window.Milliseconds(),
			Requests: e.usage.Requests, Retries: e.usage.Granted + e.usage.Debits,
			Allowed: e.usage.Allowed, Remaining: e.usage.Remaining, Denied: e.usage.Denied,
		},
		Window: window(s),
		Policy: wire.PolicyStatus{Source: "default", Version: s.Policy.Version, Policy: wire.FromPolicy(e.policy)},
		AsOf:   s.Now.UTC(),
	}
	if s.NotBefore.After(s.Now) {
		d.NotBefore = new(s.NotBefore.UTC())
	}
	if s.Policy.Version != 0 {
		d.Policy.Source = "api"
	}
	if o := s.Override; o.InForce(s.Now) {
		d.Breaker.Override = &wire.OverrideStatus{
			Mode: string(o.Mode), Reason: o.Reason, Actor: o.Actor, Revision: o.Revision,
			CreatedAt: o.Created.UTC(), ExpiresAt: o.Expires.UTC(),
			AppliedBy: s.Applied, Instances: s.Instances,
		}
		if o.Mode == policy.ModeNoRetries {
			d.Budget.Allowed, d.Budget.Remaining = 0, min(d.Budget.Remaining, 0)
		}
	}
	return d
}

func automatic(s sharedbreaker.Standing, set policy.BreakerPolicy) wire.AutomaticState {
	b := s.Breaker.At(s.Now)
	a := wire.AutomaticState{
		State: b.State.String(), Reason: b.Reason, Epoch: s.Epoch, Generation: b.Generation,
		Reopenings: b.Reopenings, RemainingMS: ceilMS(b.Remaining(s.Now)), AdmitPPM: b.Admit(s.Now, set),
	}
	if b.State != policy.Closed {
		a.Since = moment(b.Episode)
	} else {
		a.Since = moment(b.Since)
	}
	return a
}

func window(s sharedbreaker.Standing) wire.Window {
	w := s.Window
	out := wire.Window{
		Requests: w.Requests, Attempts: w.Attempts,
		Success: w.Success, Failure: w.Failure, Throttled: w.Throttled, Ignored: w.Ignored,
		RejectedBreaker: w.RejectedBreaker, RejectedBudget: w.RejectedBudget,
		AttemptsPerRequest: w.AttemptsPerRequest,
		Instances:          s.Instances, FailingInstances: s.Failing,
	}
	if w.Requests > 0 {
		out.RetryRatio = float64(max(w.Attempts-w.Requests, 0)) / float64(w.Requests)
	}
	return out
}

func moment(t time.Time) *time.Time {
	if t.IsZero() || t.UnixMilli() <= 0 {
		return nil
	}
	return new(t.UTC())
}

func transition(t sharedbreaker.Transition) wire.Transition {
	return wire.Transition{
		Dependency: t.Dependency, From: t.From.String(), To: t.To.String(), Generation: t.Generation,
		Reason: t.Reason, Cause: string(t.Cause), Actor: t.Actor, At: t.At.UTC(),
	}
}
