package sharedbreaker

import (
	"hash/fnv"
	"math/bits"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/retryplane/retryplane/pkg/policy"
)

// The store keeps a sample of the instances that report a dependency. Every instance has a rank by its hashed id:
// half of all have at least rank 1, a quarter at least rank 2, and so on. A sample of level n takes those of at least
// rank n; the level rises when the sample is full and falls when there is room. So small fleets are known exactly,
// large ones by estimate, and what a sync costs does not grow with the fleet.
const sampleSize = 128

func rank(id string) int {
	const most = 24
	h := fnv.New64a()
	_, _ = h.Write([]byte(id)) // never fails
	x := h.Sum64()
	// FNV mixes the upper bits of short, similar ids badly; this is the finalizer of MurmurHash3.
	x = (x ^ x>>33) * 0xff51afd7ed558ccd
	x = (x ^ x>>33) * 0xc4ceb9fe1a85ec53
	return min(bits.LeadingZeros64(x^x>>33), most)
}

// levels remembers the levels of samples that are not exact, so that instances outside of them are not even sent.
type levels struct {
	mu    sync.Mutex
	known map[string]int
}

func (l *levels) set(name string, level int) {
	const most = 4096 // forgetting one costs one larger report
	l.mu.Lock()
	defer l.mu.Unlock()
	if level == 0 {
		delete(l.known, name)
		return
	}
	if l.known == nil || len(l.known) >= most {
		l.known = make(map[string]int)
	}
	l.known[name] = level
}

// sample returns those of the reporting instances that may be in the sample, and the level that this takes: more than
// a full sample is never sent. A level of 0 says nothing.
func (l *levels) sample(name string, all []Instance) (in []Instance, level int) {
	l.mu.Lock()
	known := l.known[name]
	l.mu.Unlock()
	if known == 0 && len(all) <= sampleSize {
		return all, 0
	}
	in = slices.Clone(all)
	for at := known; ; at++ {
		in = slices.DeleteFunc(in, func(x Instance) bool { return rank(x.ID) < at })
		if len(in) <= sampleSize {
			return in, level
		}
		level = at + 1
	}
}

// quorum counts the sampled instances that reported under the current generation since the span began. f says how
// much of the fleet the sample is.
func quorum(sample []string, f fleet, tag string, now, since time.Time) policy.Quorum {
	level := f.level
	if now.Sub(f.since) < policy.MaxSpan {
		level = max(level, f.older) // not everybody of the new ranks had the time to report
	}
	var q policy.Quorum
	for _, s := range sample {
		x := strings.Split(s, ",")
		if len(x) < 6 { // rank, seen, verdict at, failing, epoch:tag, revision
			continue
		}
		silent := now.Sub(moment(x[1]))
		if integer(x[0]) < level || silent > policy.MaxSpan || silent < -time.Second {
			continue
		}
		q.Live++
		if x[4] == tag && !moment(x[2]).Before(since) {
			q.Reported++
			if x[3] == "1" {
				q.Failing++
			}
		}
	}
	q.Live <<= level
	q.Reported <<= level
	q.Failing <<= level
	return q
}

// requestRate is the requests per 1,000 s over the last 30 s of display slots, or over the time since the first of
// them or since the registration if that is shorter.
func requestRate(slots []string, registered, now time.Time) int64 {
	var requests int64
	begin := now
	if !registered.IsZero() {
		begin = registered
	}
	for _, s := range slots {
		second, d := decodeDisplay(s)
		at := time.Unix(second, 0)
		if now.Sub(at) >= policy.MaxSpan || at.After(now) {
			continue
		}
		requests += d.Requests
		if at.Before(begin) {
			begin = at
		}
	}
	span := min(max(now.Sub(begin), time.Second), policy.MaxSpan)
	return requests * 1_000_000 / span.Milliseconds()
}
