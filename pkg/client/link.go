package client

import (
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/retryplane/retryplane/pkg/policy"
)

// link is how the client stands with its control plane.
type link struct {
	state atomic.Pointer[linkState]

	mu       sync.Mutex // held to replace state
	failures int        // in a row
	trouble  error      // why the last of them was not answered in full; nil = it was
	reached  time.Time  // the latest request that was answered in full
}

// linkState is the link at one moment.
type linkState struct {
	cutOff   bool          // the last sync did not reach a control plane that has its store
	failing  time.Time     // since when none was answered in full; zero = the last one was
	next     time.Duration // how often the control plane wants to hear from us; 0 = it did not say
	streamed time.Time     // the last sign of life of the stream; zero = there is no stream
	closed   bool          // by the user
}

// streamSilence is how long a stream may say nothing before it is not trusted any more: two pings and some.
const streamSilence = 35 * time.Second

// staleAt is when views may no longer be acted on, of which there is no word that they still hold; zero = they hold.
func (s linkState) staleAt(viewTTL time.Duration) time.Time {
	if s.failing.IsZero() {
		return time.Time{}
	}
	t := s.failing.Add(max(viewTTL, 3*s.next))
	if !s.streamed.IsZero() {
		t = later(t, s.streamed.Add(streamSilence))
	}
	return t
}

// old is the age beyond which the fleet's budget takes no deposits, and the fleet's breaker should take no results.
func (s linkState) old() time.Duration {
	return 2*time.Second + max(s.next, defaultInterval)*6/5
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

func (l *link) now() linkState { return *l.state.Load() }

// answered notes an answer to the request of sent. degraded is one by a control plane that has lost its store.
func (l *link) answered(sent time.Time, next time.Duration, degraded bool) (before, after linkState) {
	return l.change(func(s *linkState) {
		s.next = next
		if degraded {
			l.fail(s, sent, true, errDegraded)
			return
		}
		l.failures, l.trouble = 0, nil
		l.reached = later(l.reached, sent)
		s.cutOff, s.failing = s.closed, time.Time{}
	})
}

// failed notes that the request of sent was not answered in full. Without cutOff the control plane is there, and only
// too busy.
func (l *link) failed(sent time.Time, cutOff bool, why error) (before, after linkState) {
	return l.change(func(s *linkState) { l.fail(s, sent, cutOff, why) })
}

// shut cuts the link for good.
func (l *link) shut(now time.Time) (before, after linkState) {
	return l.change(func(s *linkState) {
		s.closed = true
		l.fail(s, later(now, l.reached), true, l.trouble)
	})
}

// heard notes a sign of life of the stream; the zero time that there is no stream any more.
func (l *link) heard(at time.Time) (before, after linkState) {
	return l.change(func(s *linkState) { s.streamed = at })
}

func (l *link) fail(s *linkState, sent time.Time, cutOff bool, why error) {
	if sent.Before(l.reached) {
		return // a later request was answered
	}
	l.failures++
	l.trouble = why
	s.cutOff = s.cutOff || cutOff
	if s.failing.IsZero() {
		s.failing = sent
	}
}

func (l *link) change(f func(*linkState)) (before, after linkState) {
	l.mu.Lock()
	defer l.mu.Unlock()
	before = l.now()
	after = before
	f(&after)
	l.state.Store(&after)
	return before, after
}

// why is what the last sync failed of; nil if it was answered in full, or if there was none.
func (l *link) why() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.trouble
}

// unreachable is why a flush does not even try.
func (l *link) unreachable() error {
	if why := l.why(); errors.Is(why, ErrTokenRefused) {
		return why
	}
	return ErrUnreachable
}

// backoff is how long to leave a failing control plane alone: full jitter below a ceiling that doubles to 5 s.
func (l *link) backoff() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	const least = 10 * time.Millisecond
	set := policy.RetryPolicy{Base: 250 * time.Millisecond, Cap: maxBackoff, Jitter: policy.JitterFull}
	return max(set.Backoff(l.failures-1, 0, rand.Float64()), least)
}

const maxBackoff = 5 * time.Second

// errDegraded is why the fleet's breakers and budgets cannot be had from a control plane that answers.
var errDegraded = errors.New("the control plane has lost its store")
