package main

import (
	"crypto/rand"
	"slices"
	"sync"
	"time"

	"github.com/retryplane/retryplane/pkg/client"
)

// maxPermits bounds the memory that programs which never report can take.
const maxPermits = 10_000

// permits are the calls that programs have begun and not reported yet. Each waits for its outcome for the same time,
// so the oldest expires first. It is safe for concurrent use.
type permits struct {
	ttl time.Duration

	mu    sync.Mutex
	byID  map[string]*client.Permit
	queue []expiry // oldest first; reported ones stay a while
}

type expiry struct {
	id string
	at time.Time
}

func newPermits(ttl time.Duration) *permits {
	return &permits{ttl: ttl, byID: map[string]*client.Permit{}}
}

// add keeps p and returns its id; false when there are too many, and then p has ended as ignored.
func (b *permits) add(p client.Permit) (id string, ok bool) {
	id = rand.Text()
	b.mu.Lock()
	ok = len(b.byID) < maxPermits
	if ok {
		b.byID[id] = &p
		b.queue = append(b.queue, expiry{id, time.Now().Add(b.ttl)})
		if len(b.queue) > 2*maxPermits {
			b.compact()
		}
	}
	b.mu.Unlock()
	if !ok {
		p.Done(client.Ignored)
	}
	return id, ok
}

// compact drops what was reported already: at thousands of calls a second it would be most of the queue. It needs b.mu.
func (b *permits) compact() {
	b.queue = slices.DeleteFunc(b.queue, func(e expiry) bool { return b.byID[e.id] == nil })
}

// end reports the outcome of a permit; false when there is none of that id, or not any more.
func (b *permits) end(id string, o client.Outcome) bool {
	b.mu.Lock()
	p, ok := b.byID[id]
	delete(b.byID, id)
	b.mu.Unlock()
	if ok {
		p.Done(o)
	}
	return ok
}

// expire ends the permits whose time is up as ignored: nobody knows how their calls ended.
func (b *permits) expire(now time.Time) {
	for {
		b.mu.Lock()
		if len(b.queue) == 0 || now.Before(b.queue[0].at) {
			b.mu.Unlock()
			return
		}
		id := b.queue[0].id
		b.queue = b.queue[1:]
		b.mu.Unlock()
		b.end(id, client.Ignored)
	}
}

// sweep expires until stop is closed. A permit may live a second longer than its time.
func (b *permits) sweep(stop <-chan struct{}) {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case <-stop:
			return
		case now := <-tick.C:
			b.expire(now)
		}
	}
}

// clear ends all permits as ignored.
func (b *permits) clear() {
	b.mu.Lock()
	all := b.byID
	b.byID, b.queue = map[string]*client.Permit{}, nil
	b.mu.Unlock()
	for _, p := range all {
		p.Done(client.Ignored)
	}
}
