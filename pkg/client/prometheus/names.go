package prometheus

import (
	"maps"
	"slices"

	"github.com/retryplane/retryplane/pkg/client"
)

// names decides which dependencies have series of their own: the first that came, as long as the client remembers them. A
// name keeps its place, because a series that comes and goes is worth little.
//
// The sum of all others only grows, though the client forgets some of them and counts anew when they come back: it adds up
// what they gained since the last look.
type names struct {
	limit  int
	own    map[string]client.DependencyStats // as shown last
	others map[string]client.DependencyStats // as added last

	overflowed bool // there was another
	other      client.DependencyStats
}

func newNames(limit int) names {
	return names{limit: limit, own: map[string]client.DependencyStats{}, others: map[string]client.DependencyStats{}}
}

func (n *names) update(all map[string]client.DependencyStats) {
	forgotten := func(name string, _ client.DependencyStats) bool { _, ok := all[name]; return !ok }
	maps.DeleteFunc(n.own, forgotten)
	maps.DeleteFunc(n.others, forgotten)
	for _, name := range slices.Sorted(maps.Keys(all)) {
		now := all[name]
		if before, ok := n.own[name]; ok {
			n.own[name] = growing(before, now)
			continue
		}
		before, ok := n.others[name] // it stays there: series of its own would count again what the sum has
		if !ok && len(n.own) < n.limit {
			n.own[name] = now
			continue
		}
		n.overflowed = true
		now = growing(before, now)
		n.others[name] = now
		n.gain(before, now)
	}
}

// growing is now without what would look like a step back: while a call waits for its retry, its first attempt counts as
// a call of one attempt.
func growing(before, now client.DependencyStats) client.DependencyStats {
	if !reset(before, now) {
		now.RequestAttempts[0] = max(now.RequestAttempts[0], before.RequestAttempts[0])
	}
	return now
}

// reset reports whether the dependency was forgotten and met again in between.
func reset(before, now client.DependencyStats) bool {
	return now.Requests < before.Requests || now.Attempts < before.Attempts
}

// gain adds what a dependency counted between two looks.
func (n *names) gain(before, now client.DependencyStats) {
	if reset(before, now) {
		before = client.DependencyStats{}
	}
	add := func(to *int64, now, before int64) { *to += max(now-before, 0) }
	o := &n.other
	add(&o.Requests, now.Requests, before.Requests)
	add(&o.Attempts, now.Attempts, before.Attempts)
	add(&o.Success, now.Success, before.Success)
	add(&o.Failure, now.Failure, before.Failure)
	add(&o.Throttled, now.Throttled, before.Throttled)
	add(&o.Ignored, now.Ignored, before.Ignored)
	add(&o.Slow, now.Slow, before.Slow)
	add(&o.RejectedBreaker, now.RejectedBreaker, before.RejectedBreaker)
	add(&o.RejectedBudget, now.RejectedBudget, before.RejectedBudget)
	for i := range o.RequestAttempts {
		add(&o.RequestAttempts[i], now.RequestAttempts[i], before.RequestAttempts[i])
	}
	add(&o.LatencyCount, now.LatencyCount, before.LatencyCount)
	o.LatencySum += max(now.LatencySum-before.LatencySum, 0)
}
