package exchange

import (
	"sync"
	"time"
)

// pace tells instances how often to sync, from how many syncs arrive, and remembers what it told.
type pace struct {
	mu      sync.Mutex
	second  int64 // the second that count belongs to
	count   int64
	rate    float64          // syncs per second, smoothed
	told    [2]time.Duration // longest told in this and the previous period
	period  int64
	seen    map[string]int64 // instance -> unix second
	pruned  int64
	waiting int64
}

const (
	usualSync   = time.Second
	longestSync = 5 * time.Second
	// easyRate is how many syncs a second a replica takes without asking for fewer.
	easyRate = 5_000
	// mostWaiting bounds the syncs that wait for the store at once; more are refused as busy.
	mostWaiting = 20_000
	mostSeen    = 200_000
	seenFor     = 30
	toldPeriod  = 10
)

func newPace() *pace {
	return &pace{seen: make(map[string]int64), told: [2]time.Duration{usualSync, usualSync}}
}

// enter counts an arriving sync and returns when the instance shall sync next; false = too many wait already.
func (p *pace) enter(instance string, now time.Time) (next time.Duration, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.waiting >= mostWaiting {
		return 0, false
	}
	p.waiting++
	sec := now.Unix()
	if sec != p.second {
		const weight = 0.5
		p.rate += weight * (float64(p.count) - p.rate)
		p.second, p.count = sec, 0
	}
	p.count++
	p.prune(sec)
	if _, known := p.seen[instance]; known || len(p.seen) < mostSeen {
		p.seen[instance] = sec
	}
	next = min(time.Duration(float64(usualSync)*max(p.rate/easyRate, 1)), longestSync)
	if now := sec / toldPeriod; now != p.period {
		p.told[1], p.told[0], p.period = p.told[0], usualSync, now
	}
	p.told[0] = max(p.told[0], next)
	return next, true
}

func (p *pace) leave() {
	p.mu.Lock()
	p.waiting--
	p.mu.Unlock()
}

// oldestDeposit is the age over which a reported request no longer funds the budget: 2 s and the longest interval
// told lately.
func (p *pace) oldestDeposit() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	return 2*time.Second + max(p.told[0], p.told[1])
}

func (p *pace) instances(now time.Time) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.prune(now.Unix())
	return len(p.seen)
}

// prune forgets who was silent, every few seconds. It needs mu.
func (p *pace) prune(sec int64) {
	const every = 5
	if sec-p.pruned < every {
		return
	}
	p.pruned = sec
	for id, at := range p.seen {
		if sec-at > seenFor {
			delete(p.seen, id)
		}
	}
}
