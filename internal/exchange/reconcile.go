package exchange

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/retryplane/retryplane/internal/keyspace"
	"github.com/retryplane/retryplane/internal/sharedbreaker"
	"github.com/retryplane/retryplane/internal/sharedbudget"
	"github.com/retryplane/retryplane/pkg/policy"
)

const (
	reconcileEvery = 2 * time.Second        // a lost change notice costs at most this
	lookAgain      = 250 * time.Millisecond // while the store is away
)

// reconcile keeps the registry in step with the store until ctx ends: everything every 2 s, a group at once when
// a notice says that it changed, everything soon when the store does not answer.
func (x *Exchange) reconcile(ctx context.Context) {
	notices := x.board.Notices(ctx)
	next := time.NewTimer(0)
	defer next.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-next.C:
			if x.refreshAll(ctx) {
				next.Reset(reconcileEvery)
			} else {
				next.Reset(lookAgain)
			}
		case g, ok := <-notices:
			if !ok {
				notices = nil
				continue
			}
			if err := x.refreshGroup(ctx, g, true); err != nil && ctx.Err() == nil {
				x.lost(err)
			}
		case <-x.store.poke:
			next.Reset(lookAgain)
		}
	}
}

// refreshAll reports whether the store answered for every group.
func (x *Exchange) refreshAll(ctx context.Context) bool {
	for g := range keyspace.Groups {
		if err := x.refreshGroup(ctx, g, false); err != nil {
			if ctx.Err() == nil {
				x.lost(err)
			}
			return false
		}
	}
	if h := x.store.health(); h.Degraded {
		x.store.up()
		if h.Ready {
			x.log.Info("store answers again", slog.Duration("away", time.Since(h.Since)))
		}
	}
	return true
}

// refreshGroup reads a group, writes back what the store lost of it, and commits what is due in it. noticed says that
// somebody changed it.
func (x *Exchange) refreshGroup(ctx context.Context, number int, noticed bool) error {
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	changed, err := x.readGroup(ctx, number)
	if err != nil {
		return err
	}
	if !x.registry.holds(number) { // nothing is known here that time could change
		if noticed || !x.timeline.following(number) {
			return x.followLog(ctx, number)
		}
		return nil
	}
	committed, err := x.board.Advance(ctx, number, func(name string) policy.BreakerPolicy {
		return x.registry.policy(name).Breaker
	})
	for _, t := range committed {
		x.committed(t)
	}
	if err != nil {
		return err
	}
	if len(committed) > 0 {
		again, err := x.readGroup(ctx, number)
		if err != nil {
			return err
		}
		changed = changed || again
	}
	if changed || noticed || !x.timeline.following(number) {
		if err := x.followLog(ctx, number); err != nil {
			return err
		}
	}
	return x.readBudgets(ctx, number)
}

// readGroup reports whether it learned of a change.
func (x *Exchange) readGroup(ctx context.Context, number int) (changed bool, err error) {
	sent := time.Now()
	g, err := x.board.Read(ctx, number)
	if err != nil {
		return false, err
	}
	if lost := x.registry.missing(g); len(lost) > 0 {
		x.log.Warn("the store lost records: writing them back",
			slog.Int("group", number), slog.Int("records", len(lost)))
		if err := x.board.Restore(ctx, number, lost); err != nil {
			return false, err
		}
		sent = time.Now()
		if g, err = x.board.Read(ctx, number); err != nil {
			return false, err
		}
	}
	if old := x.registry.epoch(number); old != "" && old != g.Epoch {
		x.log.Warn("the store started a new epoch", slog.Int("group", number))
	}
	lapsed := false
	for _, s := range g.Standings {
		n := x.learn(sent, s, true)
		changed = changed || n.changed
		lapsed = lapsed || n.lapsed
	}
	for _, name := range x.registry.refresh(sent, g) {
		x.tally.forget(name)
		x.emit(Event{Forgotten: name})
	}
	if lapsed {
		x.log.Warn("a generation went back: the store lost writes, starting a new epoch", slog.Int("group", number))
		if _, err := x.board.NewEpoch(ctx, number); err != nil {
			return changed, fmt.Errorf("start a new epoch of group %d: %w", number, err)
		}
	}
	return changed, nil
}

func (x *Exchange) readBudgets(ctx context.Context, number int) error {
	budgets := x.registry.budgets(number)
	if len(budgets) == 0 {
		return nil
	}
	asks := make([]sharedbudget.Ask, 0, len(budgets))
	for name, b := range budgets {
		asks = append(asks, sharedbudget.Ask{Name: name, Budget: b})
	}
	usages, err := x.ledger.Read(ctx, number, asks)
	if err != nil {
		return err
	}
	for i, u := range usages {
		x.registry.spent(asks[i].Name, u)
	}
	return nil
}

// learn takes a standing into the registry and tells what changed. full says that the standing came with its window.
func (x *Exchange) learn(sent time.Time, s sharedbreaker.Standing, full bool) news {
	n := x.registry.learn(sent, s, full)
	for _, t := range s.Transitions {
		x.committed(t)
	}
	if n.changed {
		if d, ok := x.Dependency(s.Name); ok {
			x.emit(Event{Change: &d})
		}
	}
	return n
}
