package exchange

import (
	"context"
	"log/slog"
	"maps"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/retryplane/retryplane/internal/keyspace"
	"github.com/retryplane/retryplane/internal/sharedbreaker"
	"github.com/retryplane/retryplane/internal/sharedbudget"
	"github.com/retryplane/retryplane/pkg/policy"
)

const (
	lazyFlush   = 100 * time.Millisecond // reports without anything urgent gather until the next beat of this length
	urgentEvery = 5 * time.Millisecond   // urgent flushes of a group are at least this far apart
)

// group is the pending reports about the dependencies of one keyspace group. One goroutine flushes them, so that at
// most one flush of a group is under way and everything that arrives meanwhile rides in the next.
type group struct {
	number int
	wake   chan struct{} // pending came into being, or became urgent

	mu      sync.Mutex
	pending *batch

	backlog map[string]backlog   // what the store could not take
	holds   map[string]time.Time // dependency -> no budget before; only serveGroup touches it
}

// backlog is what is kept of a dependency's reports while the store is away: what people look at, and what the budget is
// to be charged for. A flush of which nobody knows whether it arrived may count it twice: for the budget the safe side.
type backlog struct {
	display sharedbreaker.Display
	debits  int64
}

// mostBacklog bounds the dependencies of a group of which something is kept while the store is away.
const mostBacklog = 2_000

func newGroup(number int) *group {
	return &group{
		number: number, wake: make(chan struct{}, 1),
		backlog: make(map[string]backlog), holds: make(map[string]time.Time),
	}
}

// put merges reports into the pending batch.
func (g *group) put(fn func(b *batch)) *batch {
	g.mu.Lock()
	if g.pending == nil {
		g.pending = newBatch()
	}
	b := g.pending
	fn(b)
	g.mu.Unlock()
	g.signal()
	return b
}

func (g *group) signal() {
	select {
	case g.wake <- struct{}{}:
	default:
	}
}

func (g *group) isUrgent() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.pending != nil && g.pending.urgent
}

func (g *group) take() *batch {
	g.mu.Lock()
	defer g.mu.Unlock()
	b := g.pending
	g.pending = nil
	return b
}

// keep adds to what the next flush of the dependency brings along.
func (g *group) keep(name string, d sharedbreaker.Display, debits int64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if kept, ok := g.backlog[name]; ok || len(g.backlog) < mostBacklog {
		kept.display.Add(d)
		kept.debits += debits
		g.backlog[name] = kept
	}
}

func (g *group) kept(name string) backlog {
	g.mu.Lock()
	defer g.mu.Unlock()
	kept := g.backlog[name]
	delete(g.backlog, name)
	return kept
}

// serveGroup flushes a group's batches until ctx ends, and then what is left.
func (x *Exchange) serveGroup(ctx context.Context, g *group) {
	began := time.Now()
	var last time.Time
	for {
		select {
		case <-ctx.Done():
			x.flush(ctx, g, g.take())
			return
		case <-g.wake:
		}
		// Beats, and not a time after the first report, so that few instances cost about as many flushes as many.
		// Each group has its own, so that not all flush at once.
		offset := lazyFlush * time.Duration(g.number) / keyspace.Groups
		lazy := time.NewTimer(lazyFlush - (time.Since(began)+offset)%lazyFlush)
		for ready := false; !ready; {
			if g.isUrgent() {
				if rest := urgentEvery - time.Since(last); rest > 0 {
					lazy.Reset(rest)
				} else {
					break
				}
			}
			select {
			case <-ctx.Done():
				ready = true
			case <-lazy.C:
				ready = true
			case <-g.wake: // perhaps it became urgent
			}
		}
		lazy.Stop()
		last = time.Now()
		x.flush(ctx, g, g.take())
	}
}

// flush brings a batch to the store and fills in its results.
func (x *Exchange) flush(ctx context.Context, g *group, b *batch) {
	if b == nil {
		return
	}
	defer close(b.done)
	reports := make([]sharedbreaker.Report, len(b.order))
	for i, m := range b.order {
		m.policy = x.registry.policy(m.name)
		kept := g.kept(m.name)
		m.display.Add(kept.display)
		m.debits += kept.debits
		reports[i] = m.report()
	}
	// A flush that has begun is finished, also at shutdown: its syncs are waiting for it.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), storeTimeout)
	defer cancel()
	sent, epoch := time.Now(), x.registry.epoch(g.number)
	standings, err := x.board.Observe(ctx, g.number, reports)
	if err == nil && epoch != "" && len(standings) > 0 && standings[0].Epoch != epoch {
		err = x.recall(ctx, g.number, standings)
	}
	if err != nil {
		b.err = err
		x.lost(err)
		for _, m := range b.order {
			g.keep(m.name, m.display, m.debits) // the answer will say "degraded" and the instance will not report it again
		}
		return
	}
	for i, m := range b.order {
		m.standing = standings[i]
		m.permits = make(map[syncKey]sharedbreaker.Permit, len(m.asks))
		for n, p := range standings[i].Permits {
			m.permits[m.asks[n]] = p // in the order of the asks
		}
		x.learn(sent, standings[i], false)
		x.tally.report(m.name, m.display)
	}
	x.draw(ctx, g, b)
}

// recall writes back what a store lost that answers all the same, before anybody is told that no override is in force.
func (x *Exchange) recall(ctx context.Context, group int, standings []sharedbreaker.Standing) error {
	if _, err := x.readGroup(ctx, group); err != nil {
		return err
	}
	for i := range standings {
		if s, _, ok := x.registry.standing(standings[i].Name); ok {
			standings[i].Override, standings[i].Policy = s.Override, s.Policy
		}
	}
	return nil
}

// draw brings the batch's deposits to the ledger and shares out what it grants. Breakers come first: while one is not
// closed, nothing is granted.
func (x *Exchange) draw(ctx context.Context, g *group, b *batch) {
	now := time.Now()
	maps.DeleteFunc(g.holds, func(_ string, until time.Time) bool { return !now.Before(until) })
	var draws []sharedbudget.Draw
	var drawn []*merged
	for _, m := range b.order {
		want := m.wanted()
		if !policy.Grants(m.standing.Breaker, m.standing.Override, m.standing.Now) {
			const killed = time.Second // the state travels with the answer; this only keeps asks apart
			want, m.hold = 0, killed
		}
		if until, holding := g.holds[m.name]; holding {
			want, m.hold = 0, max(m.hold, until.Sub(now)) // answered from memory: an exhausted budget costs the store nothing
		}
		if m.deposits > 0 || m.debits > 0 || want > 0 {
			draws = append(draws, sharedbudget.Draw{
				Name: m.name, Deposits: m.deposits, Debits: m.debits, Want: want, Budget: m.policy.Budget,
			})
			drawn = append(drawn, m)
		}
	}
	if len(draws) == 0 {
		return
	}
	results, err := x.ledger.Draw(ctx, g.number, draws)
	if err != nil {
		x.lost(err)
		for _, m := range drawn {
			m.degraded = true // the breaker's part is in the store; of the budget nobody knows
			g.keep(m.name, sharedbreaker.Display{}, m.debits)
		}
		return
	}
	for i, m := range drawn {
		m.share(results[i].Granted)
		if want := draws[i].Want; want > 0 && results[i].Granted < want {
			m.hold = results[i].Hold
			g.holds[m.name] = now.Add(m.hold)
		}
		x.registry.spent(m.name, results[i].Usage)
	}
}

// share divides what the ledger granted between the instances that wait.
func (m *merged) share(granted int64) {
	wants := make([]policy.Want, len(m.wants))
	for i, w := range m.wants {
		wants[i] = policy.Want{N: w.count, Waited: w.waited, Draw: rand.Float64()}
	}
	m.grants = make(map[syncKey]int64, len(m.wants))
	for i, n := range policy.MaxMin(granted, wants) {
		m.grants[m.wants[i].by] += n
	}
}

// lost notes that a call of the store failed.
func (x *Exchange) lost(err error) {
	switch ready, news := x.store.down(err); {
	case !news:
	case ready:
		x.log.Error("store does not answer: serving last known decisions", slog.Any("error", err))
	default:
		x.log.Error("store was not reached yet: not ready, trying again", slog.Any("error", err))
	}
}
