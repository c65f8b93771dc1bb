package client

import (
	"log/slog"
	"sync"
	"time"

	"github.com/retryplane/retryplane/pkg/policy"
)

// EventKind says what happened.
type EventKind string

// The kinds of events.
const (
	EventBreaker     EventKind = "breaker"      // the fleet's breaker or an override changed what calls meet: From, To, Source
	EventOverride    EventKind = "override"     // an operator's override came, changed or went: Mode
	EventDegraded    EventKind = "degraded"     // the control plane is out of reach, or refuses this client ([ErrTokenRefused]): Err; local breakers and budgets apply
	EventRecovered   EventKind = "recovered"    // syncs are answered again
	EventLocalOpened EventKind = "local_opened" // this instance's own breaker opened
	EventLocalClosed EventKind = "local_closed" // it closed again
	EventRetry       EventKind = "retry"        // an attempt will be sent again: Attempt, Wait, Reason
	EventGiveUp      EventKind = "give_up"      // a call ends without success: Attempt, Reason, Err
)

// Event is something that a person or a metric may want to know. Which fields are set depends on Kind.
type Event struct {
	Kind       EventKind
	Dependency string // "" = about the client
	At         time.Time
	From, To   policy.State
	Source     Source
	Mode       policy.Mode
	Attempt    int           // attempts sent so far
	Wait       time.Duration // before the next one
	Reason     string
	Err        error
}

// events delivers events to the user's handler, in order, from one goroutine that lives while there are any.
type events struct {
	handle func(Event)
	log    *slog.Logger

	mu      sync.Mutex
	queue   []Event
	running bool
	dropped int64
	idle    chan struct{} // closed when the goroutine has ended; nil while none runs
}

// maxEvents bounds the queue behind a slow handler. Beyond it the newest are dropped and counted.
const maxEvents = 1024

// emit queues e for the handler. It never blocks and may be called under locks.
func (c *Client) emit(e Event) {
	if c.events.handle == nil {
		return
	}
	if e.At.IsZero() {
		e.At = c.now()
	}
	c.events.push(e)
}

func (q *events) push(e Event) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.queue) >= maxEvents {
		q.dropped++
		return
	}
	q.queue = append(q.queue, e)
	if !q.running {
		q.running, q.idle = true, make(chan struct{})
		go q.deliver(q.idle)
	}
}

func (q *events) deliver(idle chan struct{}) {
	defer close(idle)
	for {
		q.mu.Lock()
		if len(q.queue) == 0 {
			q.running, q.queue = false, nil
			q.mu.Unlock()
			return
		}
		batch := q.queue
		q.queue = nil
		q.mu.Unlock()
		for _, e := range batch {
			q.call(e)
		}
	}
}

// call protects the goroutine from the handler: a handler that panics harms neither the calls nor later events.
func (q *events) call(e Event) {
	defer func() {
		if p := recover(); p != nil {
			defer func() { _ = recover() }() // the log may be what panicked
			q.log.Error("event handler panicked", "panic", p, "event", string(e.Kind))
		}
	}()
	q.handle(e)
}

// wait blocks until the handler has seen what was emitted before, or until done.
func (q *events) wait(done <-chan struct{}) {
	q.mu.Lock()
	idle := q.idle
	q.mu.Unlock()
	if idle == nil {
		return
	}
	select {
	case <-idle:
	case <-done:
	}
}

func (q *events) lost() int64 {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.dropped
}
