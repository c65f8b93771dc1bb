package exchange

import (
	"maps"
	"sync"

	"github.com/retryplane/retryplane/internal/sharedbreaker"
	"github.com/retryplane/retryplane/pkg/policy"
)

// Totals are one dependency's counters since this replica started: what instances reported to this very replica and
// what it committed itself. Summed over the replicas they are the fleet's.
type Totals struct {
	sharedbreaker.Display
	Transitions map[TransitionKind]int64
}

// TransitionKind is what transitions are counted by.
type TransitionKind struct {
	To    policy.State
	Cause policy.Cause
}

// tally holds the counters that only ever rise.
type tally struct {
	mu    sync.Mutex
	deps  map[string]*Totals
	syncs map[string]int64
}

func newTally() *tally {
	t := &tally{deps: make(map[string]*Totals), syncs: make(map[string]int64)}
	for _, result := range []string{"ok", "degraded", "unavailable", "busy", "repeated"} {
		t.syncs[result] = 0 // born at 0, so that the first one shows as an increase
	}
	return t
}

func (t *tally) sync(result string) {
	t.mu.Lock()
	t.syncs[result]++
	t.mu.Unlock()
}

func (t *tally) syncResults() map[string]int64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	return maps.Clone(t.syncs)
}

func (t *tally) report(name string, d sharedbreaker.Display) {
	t.mu.Lock()
	t.dep(name).Add(d)
	t.mu.Unlock()
}

func (t *tally) transition(tr sharedbreaker.Transition) {
	t.mu.Lock()
	t.dep(tr.Dependency).Transitions[TransitionKind{tr.To, tr.Cause}]++
	t.mu.Unlock()
}

func (t *tally) forget(name string) {
	t.mu.Lock()
	delete(t.deps, name)
	t.mu.Unlock()
}

// dep must be called with mu held.
func (t *tally) dep(name string) *Totals {
	d := t.deps[name]
	if d == nil {
		d = &Totals{Transitions: make(map[TransitionKind]int64)}
		t.deps[name] = d
	}
	return d
}

// Totals returns the counters by dependency, every known dependency included. It costs Redis nothing.
func (x *Exchange) Totals() map[string]Totals {
	names := x.registry.names()
	x.tally.mu.Lock()
	defer x.tally.mu.Unlock()
	out := make(map[string]Totals, len(names))
	for _, name := range names {
		d := x.tally.deps[name]
		if d == nil {
			out[name] = Totals{}
			continue
		}
		out[name] = Totals{Display: d.Display, Transitions: maps.Clone(d.Transitions)}
	}
	return out
}
