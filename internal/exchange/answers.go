package exchange

import (
	"sync"
	"time"

	"github.com/retryplane/retryplane/pkg/wire"
)

// syncKey names a sync: the same number of the same instance of the same caller gets the same answer. The caller is
// part of it, so that nobody gets an answer that was meant for another token.
type syncKey struct {
	caller, instance string
	seq              int64
}

// answer is a sync's answer, or the wait for it.
type answer struct {
	done     chan struct{}
	response *wire.SyncResponse
	err      error
}

// answers remembers the latest answers. Repeated syncs come within a few seconds if at all, so it keeps two halves and
// drops the older one when the younger is old or full.
type answers struct {
	mu         sync.Mutex
	young, old map[syncKey]*answer
	decisions  int // in young
	since      time.Time
}

const (
	answersFor    = 5 * time.Second // a half's age when it becomes the older one
	mostDecisions = 200_000         // in one half; about 60 MB
)

func newAnswers() *answers {
	return &answers{young: make(map[syncKey]*answer)}
}

// first returns mine if the sync is new, and the earlier answer otherwise. decisions is how many the answer will hold.
func (a *answers) first(key syncKey, mine *answer, decisions int, now time.Time) *answer {
	a.mu.Lock()
	defer a.mu.Unlock()
	if now.Sub(a.since) > answersFor || a.decisions > mostDecisions {
		a.young, a.old, a.decisions, a.since = make(map[syncKey]*answer), a.young, 0, now
	}
	if there := a.young[key]; there != nil {
		return there
	}
	if there := a.old[key]; there != nil {
		return there
	}
	a.young[key] = mine
	a.decisions += decisions + 1
	return mine
}

// drop forgets a sync that counted nothing: the instance may come again.
func (a *answers) drop(key syncKey) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.young, key)
	delete(a.old, key)
}
