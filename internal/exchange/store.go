package exchange

import (
	"sync"
	"time"
)

// store is what the replica knows about the reach of its Redis. One failed call puts it out of touch; only the
// reconcile, after it has read everything again, puts it back in touch, so that no sync is served from a store whose
// memory was lost and not yet written back.
type store struct {
	poke chan struct{} // asks the reconcile to look at once

	mu    sync.Mutex
	ready bool
	err   error // nil = in touch
	since time.Time
}

// lastViews is how long syncs are answered with the last known views after the store went away.
const lastViews = 10 * time.Second

func newStore() *store { return &store{poke: make(chan struct{}, 1)} }

func (s *store) up() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ready, s.err, s.since = true, nil, time.Time{}
}

// down reports whether the store was ever in touch, and whether this is news.
func (s *store) down(err error) (ready, news bool) {
	s.mu.Lock()
	ready, news = s.ready, s.err == nil
	if news {
		s.since = time.Now()
	}
	s.err = err
	s.mu.Unlock()
	select {
	case s.poke <- struct{}{}:
	default:
	}
	return ready, news
}

func (s *store) health() Health {
	s.mu.Lock()
	defer s.mu.Unlock()
	return Health{Ready: s.ready, Degraded: !s.ready || s.err != nil, Err: s.err, Since: s.since}
}
