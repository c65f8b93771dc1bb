package exchange

import (
	"encoding/json"
	"slices"
	"sync"
	"time"

	"github.com/retryplane/retryplane/internal/keyspace"
	"github.com/retryplane/retryplane/internal/sharedbreaker"
	"github.com/retryplane/retryplane/pkg/policy"
	"github.com/retryplane/retryplane/pkg/wire"
)

// registry is the replica's memory of all dependencies: what flushes and the reconcile learned last. Lists, scrapes,
// streams and degraded answers come from here and cost the store nothing.
type registry struct {
	mu     sync.RWMutex
	deps   map[string]*entry
	groups [keyspace.Groups]groupMemory
}

// entry is one dependency. Its standing is as of learned on this process's clock; standing.Now tells Redis's clock at
// that moment, so later times on Redis's clock follow from the monotonic clock.
type entry struct {
	standing sharedbreaker.Standing
	usage    policy.Usage
	policy   policy.Policy
	sent     time.Time // when the call was sent that brought the standing
	learned  time.Time
}

// groupMemory is what a replica writes back to a store that lost it.
type groupMemory struct {
	epoch        string
	dependencies int // as read last
	saved        map[savedKey]sharedbreaker.Saved
}

type savedKey struct{ kind, name string }

func newRegistry() *registry { return &registry{deps: make(map[string]*entry)} }

// news is what a registry learned from one standing.
type news struct {
	changed  bool // something that streams carry
	lapsed   bool // the generation went back within its epoch: the store lost writes
	standing sharedbreaker.Standing
}

// learn takes a standing that a call brought which was sent at sent. Of two standings of one epoch the higher
// generation wins; an older call never overwrites a younger one's epoch. full says that it came with its window.
func (r *registry) learn(sent time.Time, s sharedbreaker.Standing, full bool) news {
	r.mu.Lock()
	defer r.mu.Unlock()
	e := r.deps[s.Name]
	if e == nil {
		e = &entry{policy: policy.Default()}
		r.deps[s.Name] = e
		r.adopt(e, sent, s, full)
		return news{changed: true, standing: e.standing}
	}
	old := e.standing
	switch {
	case s.Epoch != old.Epoch && sent.Before(e.sent):
		return news{}
	case s.Epoch == old.Epoch && s.Breaker.Generation < old.Breaker.Generation:
		// Harmless if the call overtook the one that told of the higher generation.
		return news{lapsed: sent.After(e.learned)}
	case s.Epoch == old.Epoch && s.Breaker.Generation == old.Breaker.Generation && s.Now.Before(old.Now):
		// By the store's clock: what was sent first may have been carried out last.
		return news{}
	}
	changed := s.Epoch != old.Epoch || s.Breaker.Generation != old.Breaker.Generation ||
		s.Breaker.Ramping != old.Breaker.Ramping || s.Override.Revision != old.Override.Revision ||
		s.Override.Mode != old.Override.Mode || s.Policy.Version != old.Policy.Version ||
		!s.NotBefore.Equal(old.NotBefore)
	r.adopt(e, sent, s, full)
	return news{changed: changed, standing: e.standing}
}

// adopt must be called with mu held.
func (r *registry) adopt(e *entry, sent time.Time, s sharedbreaker.Standing, full bool) {
	if s.Policy.Version != e.standing.Policy.Version {
		e.policy = parsePolicy(s.Policy)
	}
	window := e.standing.Window
	e.standing = s
	if !full {
		e.standing.Window = window
	}
	e.standing.Transitions, e.standing.Permits = nil, nil
	e.sent, e.learned = sent, time.Now()
}

// parsePolicy reads a stored policy. One that a newer release wrote and this one does not accept counts as the
// default: a replica must not fall over what another one took.
func parsePolicy(rec sharedbreaker.Record) policy.Policy {
	var w wire.Policy
	if rec.JSON == "" || json.Unmarshal([]byte(rec.JSON), &w) != nil {
		return policy.Default()
	}
	p, err := w.Over(policy.Default())
	if err != nil {
		return policy.Default()
	}
	return p
}

// refresh takes a whole group as read and returns the names that are gone from it.
func (r *registry) refresh(sent time.Time, g sharedbreaker.Group) (gone []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	there := make(map[string]bool, len(g.Standings))
	for _, s := range g.Standings {
		there[s.Name] = true
	}
	for name, e := range r.deps {
		if keyspace.Group(name) == g.Number && !there[name] && e.sent.Before(sent) && e.learned.Before(sent) {
			delete(r.deps, name)
			gone = append(gone, name)
		}
	}
	r.groups[g.Number].epoch, r.groups[g.Number].dependencies = g.Epoch, len(g.Standings)
	return gone
}

// holds reports whether a group has dependencies, records or tombstones.
func (r *registry) holds(group int) bool {
	r.mu.RLock()
	defer r.mu.RUnlock()
	m := &r.groups[group]
	return m.dependencies > 0 || len(m.saved) > 0
}

// missing merges what the store holds of a group's overrides, policies and tombstones with what the replica holds,
// and returns what the store should hold and does not: it lost it.
func (r *registry) missing(g sharedbreaker.Group) []sharedbreaker.Saved {
	r.mu.Lock()
	defer r.mu.Unlock()
	old := r.groups[g.Number].saved
	now := make(map[savedKey]sharedbreaker.Saved, len(g.Saved))
	for _, s := range g.Saved {
		now[savedKey{s.Kind, s.Name}] = s
	}
	var lost []sharedbreaker.Saved
	for key, s := range old {
		if there, ok := now[key]; ok && there.Revision >= s.Revision {
			continue
		}
		if !s.Until.IsZero() && !g.Now.Before(s.Until) {
			continue // expired: never restored
		}
		now[key] = s
		lost = append(lost, s)
	}
	r.groups[g.Number].saved = now
	return lost
}

func (r *registry) forget(name string) {
	r.mu.Lock()
	delete(r.deps, name)
	r.mu.Unlock()
}

func (r *registry) epoch(group int) string {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.groups[group].epoch
}

// spent notes what the ledger said of a budget.
func (r *registry) spent(name string, u policy.Usage) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if e := r.deps[name]; e != nil {
		e.usage = u
	}
}

// policy is the policy in force, the default for an unknown dependency.
func (r *registry) policy(name string) policy.Policy {
	r.mu.RLock()
	defer r.mu.RUnlock()
	if e := r.deps[name]; e != nil {
		return e.policy
	}
	return policy.Default()
}

// standing returns a dependency with Now moved to the present.
func (r *registry) standing(name string) (sharedbreaker.Standing, policy.Policy, bool) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	e := r.deps[name]
	if e == nil {
		return sharedbreaker.Standing{Name: name}, policy.Default(), false
	}
	return e.present(), e.policy, true
}

func (e *entry) present() sharedbreaker.Standing {
	s := e.standing
	s.Now = s.Now.Add(time.Since(e.learned))
	return s
}

func (r *registry) names() []string {
	r.mu.RLock()
	defer r.mu.RUnlock()
	names := make([]string, 0, len(r.deps))
	for name := range r.deps {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// budgets lists a group's dependencies with their budgets.
func (r *registry) budgets(group int) map[string]policy.BudgetPolicy {
	r.mu.RLock()
	defer r.mu.RUnlock()
	out := make(map[string]policy.BudgetPolicy)
	for name, e := range r.deps {
		if keyspace.Group(name) == group {
			out[name] = e.policy.Budget
		}
	}
	return out
}
