package client

import (
	"math/bits"
	"runtime"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/retryplane/retryplane/pkg/wire"
)

// counters are what this instance counts about one dependency under one (epoch, generation) of the fleet's breaker and
// one generation of its own. A call keeps the counters that it was admitted under, so a late result lands where it
// belongs.
type counters struct {
	dep        *Dependency
	epoch      string
	generation int64
	local      int64 // generation of the local breaker

	run     atomic.Int64 // failures since the last success
	stripes []stripe     // their number is a power of two

	// Guarded by dep.mu:
	held     tally              // taken from the stripes, not yet reported
	failing  time.Time          // when the first of the failures among it ended; zero = there are none
	taken    time.Time          // when the stripes were last emptied
	inFlight int64              // admitted and not done, as of then
	quiet    time.Time          // since when nothing is in flight and nothing new comes; zero = something is
	probes   []wire.ProbeResult // ended trial requests, not yet reported
}

// stripe is the part of the counters that the goroutines of one processor write to. It fills two cache lines, because
// processors fetch lines in pairs.
type stripe struct {
	requests  atomic.Int64 // first attempts
	first     atomic.Int64 // when the oldest of them began, on the client's clock
	retries   atomic.Int64
	success   atomic.Int64
	failure   atomic.Int64
	throttled atomic.Int64
	ignored   atomic.Int64
	slow      atomic.Int64
	rejected  atomic.Int64    // by a breaker
	several   atomic.Int64    // attempts of the requests that ended after more than one
	ended     [4]atomic.Int64 // these requests, by attempts: 2, 3, 4, 5 and more
	latency   atomic.Int64    // microseconds, of the sampled attempts
	sampled   atomic.Int64
}

// stripeCount is enough that processors seldom meet on a stripe, and so few that a thousand dependencies stay small.
var stripeCount = 1 << min(bits.Len(uint(runtime.GOMAXPROCS(0)-1)), 5)

func newCounters(d *Dependency, epoch string, generation, local int64, now time.Time) *counters {
	return &counters{
		dep: d, epoch: epoch, generation: generation, local: local, taken: now, stripes: make([]stripe, stripeCount),
	}
}

// stripe picks a stripe by where the caller's stack lies: goroutines that run at the same time have different stacks,
// and looking is cheaper than drawing a random number.
func (c *counters) stripe() *stripe {
	var here byte
	const mix = 0x9E3779B97F4A7C15 // spreads the bits in which the stacks differ (Fibonacci hashing)
	h := uint64(uintptr(unsafe.Pointer(&here))>>11) * mix >> 32
	return &c.stripes[h&uint64(len(c.stripes)-1)]
}

// take moves what the stripes counted into held and returns it. It needs dep.mu.
func (c *counters) take(now time.Time) tally {
	var t tally
	for i := range c.stripes {
		s := &c.stripes[i]
		if n := drain(&s.requests); n > 0 {
			t.requests += n
			began := c.taken // between counting the first one and writing down when that was
			if offset := s.first.Swap(0); offset > 0 && !frozen(now, c.taken) {
				began = now.Add(time.Duration(offset) - now.Sub(c.dep.client.start))
			}
			t.oldest = earlier(t.oldest, began)
		}
		t.retries += drain(&s.retries)
		t.success += drain(&s.success)
		t.failure += drain(&s.failure)
		t.throttled += drain(&s.throttled)
		t.ignored += drain(&s.ignored)
		t.slow += drain(&s.slow)
		t.rejected += drain(&s.rejected)
		t.several += drain(&s.several)
		for j := range s.ended {
			t.ended[j] += drain(&s.ended[j])
		}
		t.micros += drain(&s.latency)
		t.sampled += drain(&s.sampled)
	}
	c.inFlight += t.requests + t.retries - t.outcomes()
	switch {
	case t != (tally{}):
		c.quiet = time.Time{}
		c.held.add(t)
	case c.inFlight == 0 && c.quiet.IsZero():
		c.quiet = now
	}
	c.taken = now
	return t
}

// empty reports whether there is nothing to report. It needs dep.mu.
func (c *counters) empty() bool { return c.held == (tally{}) && len(c.probes) == 0 }

// count counts the end of an attempt.
func (s *stripe) count(o Outcome) {
	switch o {
	case Success:
		s.success.Add(1)
	case Failure:
		s.failure.Add(1)
	case Throttled:
		s.throttled.Add(1)
	default:
		s.ignored.Add(1)
	}
}

// fail counts a failure. It needs dep.mu, so that the first one has its date when the counters are emptied.
func (c *counters) fail(s *stripe, now time.Time) (run int64) {
	s.failure.Add(1)
	if c.failing.IsZero() {
		c.failing = now
	}
	return c.run.Add(1)
}

// drain empties a counter. The usual case, nothing there, costs no write.
func drain(n *atomic.Int64) int64 {
	if n.Load() == 0 {
		return 0
	}
	return n.Swap(0)
}

// tally is a sum of stripes. The zero value is nothing.
type tally struct {
	requests, retries                    int64
	success, failure, throttled, ignored int64
	slow, rejected                       int64
	several                              int64
	ended                                [4]int64
	micros, sampled                      int64
	oldest                               time.Time // when the oldest of the requests began; zero = there are none
}

func (t *tally) outcomes() int64 { return t.success + t.failure + t.throttled + t.ignored }

func (t *tally) add(o tally) {
	t.requests += o.requests
	t.retries += o.retries
	t.success += o.success
	t.failure += o.failure
	t.throttled += o.throttled
	t.ignored += o.ignored
	t.slow += o.slow
	t.rejected += o.rejected
	t.several += o.several
	for j := range t.ended {
		t.ended[j] += o.ended[j]
	}
	t.micros += o.micros
	t.sampled += o.sampled
	t.oldest = earlier(t.oldest, o.oldest)
}

// earlier is the earlier of two times of which zero means none.
func earlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}
