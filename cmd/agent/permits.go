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

// add keeps p and returns its id. Where there are too many, the oldest one ends as ignored: it is the likeliest that
// nobody will report.
func (b *permits) add(p client.Permit) (id string) {
	id = rand.Text()
	b.mu.Lock()
	oldest := b.makeRoom()
	b.byID[id] = &p
	b.queue = append(b.queue, expiry{id, time.Now().Add(b.ttl)})
	if len(b.queue) > 2*maxPermits {
		b.compact()
	}
	b.mu.Unlock()
	if oldest != nil {
		oldest.Done(client.Ignored)
	}
	return id
}

// makeRoom takes the oldest permit out, if there are as many as there may be. It needs b.mu.
func (b *permits) makeRoom() *client.Permit {
	if len(b.byID) < maxPermits {
		return nil
	}
	for len(b.queue) > 0 {
		id := b.queue[0].id
		b.queue = b.queue[1:]
		if p := b.byID[id]; p != nil {
			delete(b.byID, id)
			return p
		}
	}
	return nil
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
