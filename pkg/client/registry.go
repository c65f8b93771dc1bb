package client

import (
	"sync"
	"time"
	"weak"

	"github.com/hashicorp/golang-lru/v2/simplelru"

	"github.com/retryplane/retryplane/pkg/policy"
)

// registry finds handles by name. It keeps those that were asked for lately, beyond that those that must not be
// forgotten, and it finds those that somebody else keeps: the program, or the syncer while there is something to
// report.
type registry struct {
	mu     sync.Mutex
	recent *simplelru.LRU[string, *Dependency]
	pinned map[string]*Dependency              // no longer recent, but open or overridden
	known  map[string]weak.Pointer[Dependency] // all of them, while they live
	sweep  int                                 // size of known at which the dead are removed
}

func (r *registry) init(size int) {
	r.pinned = map[string]*Dependency{}
	r.known = map[string]weak.Pointer[Dependency]{}
	r.sweep = 2 * size
	var err error
	r.recent, err = simplelru.NewLRU(size, func(name string, d *Dependency) {
		if d.memorable() {
			r.pinned[name] = d
		}
	})
	if err != nil {
		panic(err) // the size was checked
	}
}

func (r *registry) get(c *Client, name string) *Dependency {
	if !policy.ValidName(name) {
		return newDependency(c, name)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if d, ok := r.recent.Get(name); ok {
		return d
	}
	d := r.known[name].Value()
	if d == nil {
		d = newDependency(c, name)
		r.known[name] = weak.Make(d)
	}
	delete(r.pinned, name)
	r.recent.Add(name, d)
	if len(r.known) > r.sweep {
		r.clean()
	}
	return d
}

// keep remembers a dependency that nothing else may hold any more, if it is to be.
func (r *registry) keep(d *Dependency) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.recent.Contains(d.name) && d.memorable() {
		r.pinned[d.name] = d
	}
}

// find returns the handle of a name that the client knows, nil for others.
func (r *registry) find(name string) *Dependency {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.known[name].Value()
}

// clean forgets what nobody keeps, and lets go of what need not be remembered any more.
func (r *registry) clean() {
	for name, d := range r.pinned {
		if !d.memorable() {
			delete(r.pinned, name)
		}
	}
	for name, p := range r.known {
		if p.Value() == nil {
			delete(r.known, name)
		}
	}
	r.sweep = 2 * max(len(r.known), r.recent.Len())
}

// each calls f for every dependency that lives, in no order.
func (r *registry) each(f func(*Dependency)) {
	r.mu.Lock()
	all := make([]*Dependency, 0, len(r.known))
	for _, p := range r.known {
		if d := p.Value(); d != nil {
			all = append(all, d)
		}
	}
	r.mu.Unlock()
	for _, d := range all {
		f(d)
	}
}

// memory is how long a dependency that was not closed is remembered if nobody calls it: longer than any open time.
const memory = 15 * time.Minute

// memorable reports whether forgetting the dependency would let calls through that are to be rejected.
func (d *Dependency) memorable() bool {
	now := d.client.now()
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.override.at(now) != policy.ModeNone || d.local.Breaker.State != policy.Closed {
		return true
	}
	return d.told.state != policy.Closed && since(now, d.told.sent) < memory
}
