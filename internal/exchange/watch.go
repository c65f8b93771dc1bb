package exchange

import (
	"context"
	"slices"
	"sync"

	"github.com/retryplane/retryplane/pkg/wire"
)

// Event is a change that streams carry: exactly one field is set.
type Event struct {
	Change     *wire.Dependency // state, override or policy changed
	Transition *wire.Transition
	Forgotten  string // name
}

// watchers are the queues between who learns of a change, who must not wait, and who is told.
type watchers struct {
	mu     sync.Mutex
	queues []*queue
}

type queue struct {
	events []Event
	wake   chan struct{}
}

// mostQueued bounds a watcher that does not keep up; then it misses the oldest events.
const mostQueued = 10_000

// emit queues an event for every watcher.
func (x *Exchange) emit(e Event) {
	x.watchers.mu.Lock()
	defer x.watchers.mu.Unlock()
	for _, q := range x.watchers.queues {
		if len(q.events) >= mostQueued {
			q.events = q.events[1:]
		}
		q.events = append(q.events, e)
		select {
		case q.wake <- struct{}{}:
		default:
		}
	}
}

// Watch calls fn for every change that the replica learns of, in order per dependency, from one goroutine, until ctx
// ends. fn must not block for long. The state of everything at the start is Dependencies, read after Watch began.
// Counters are not changes: readers who want them live ask Dependencies every second.
func (x *Exchange) Watch(ctx context.Context, fn func(Event)) {
	q := &queue{wake: make(chan struct{}, 1)}
	x.watchers.mu.Lock()
	x.watchers.queues = append(x.watchers.queues, q)
	x.watchers.mu.Unlock()
	defer func() {
		x.watchers.mu.Lock()
		x.watchers.queues = slices.DeleteFunc(x.watchers.queues, func(o *queue) bool { return o == q })
		x.watchers.mu.Unlock()
	}()
	for {
		select {
		case <-ctx.Done():
			return
		case <-q.wake:
		}
		x.watchers.mu.Lock()
		events := q.events
		q.events = nil
		x.watchers.mu.Unlock()
		for _, e := range events {
			fn(e)
		}
	}
}
