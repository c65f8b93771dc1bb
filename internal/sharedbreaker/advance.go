package sharedbreaker

import (
	"context"
	"fmt"

	"github.com/retryplane/retryplane/internal/keyspace"
	"github.com/retryplane/retryplane/pkg/policy"
)

// Advance commits what is due in a group without traffic, and returns the transitions that this very call made: open
// breakers whose time is over become half-open, finished ramps close, expired overrides are logged. It also drops old
// tombstones and forgets dependencies that nobody reported for 24 h and that have no override; their policies stay.
// set returns the policy of a dependency.
//
// With nothing due it costs one cheap script call, whatever the size of the group. Every replica may call it at any
// time.
func (b *Board) Advance(ctx context.Context, group int, set func(name string) policy.BreakerPolicy) ([]Transition, error) {
	k := groupKeys[group]
	sent := b.now()
	r := newReply(advanceScript.Run(ctx, b.rdb,
		[]string{k.epoch, k.deps, k.overrides, k.policies, k.log, k.due}, b.newEpoch()))
	now, epoch, names, entries := moment(r.text()), r.text(), r.texts(), r.list()
	if r.err != nil {
		return nil, fmt.Errorf("advance group %d: %w", group, r.err)
	}
	var made []Transition
	for entries.more() {
		e := entries.list()
		made = append(made, Transition{
			ID: e.text(), Dependency: e.text(), From: state(e.text()), To: state(e.text()), Generation: e.int(),
			Reason: e.text(), Cause: policy.CauseExpiry, At: now,
		})
	}
	if b.clocks.jumped(group, epoch, now, sent, b.now()) {
		_, err := b.NewEpoch(ctx, group)
		return made, err
	}
	if len(names) == 0 {
		return made, nil
	}
	reports := make([]Report, len(names))
	for i, name := range names {
		reports[i] = Report{Name: name, Policy: set(name)}
	}
	dossiers, err := b.observe(ctx, group, reports, true)
	if err != nil {
		return made, err
	}
	for i := range dossiers {
		d := &dossiers[i]
		err := b.decide(ctx, d, nil, nil, true)
		made = append(made, d.standing.Transitions...)
		if err != nil {
			return made, fmt.Errorf("decide on %q: %w", d.standing.Name, err)
		}
	}
	return made, nil
}

// NewEpoch voids the automatic states of a group, because the store lost writes or its clock jumped, and returns the
// new epoch. If somebody began one since this Board last heard of the group, it is that one. Overrides and policies
// stay; breakers begin closed, in generation 1, with their next report.
func (b *Board) NewEpoch(ctx context.Context, group int) (string, error) {
	epoch, err := epochScript.Run(ctx, b.rdb, []string{groupKeys[group].epoch}, b.newEpoch(), b.clocks.epoch(group)).Text()
	if err != nil {
		return "", fmt.Errorf("begin an epoch of group %d: %w", group, err)
	}
	return epoch, nil
}

// Forget removes everything about a dependency, its policy included, but not its log entries. If it is reported again
// it is a new one; its generation goes on from where it was, so that nobody mistakes the new state for an old one.
// Errors: ErrInForce while an override stands, ErrNotFound.
func (b *Board) Forget(ctx context.Context, name string) error {
	k := groupKeys[keyspace.Group(name)]
	until, err := b.orderUntil(ctx, k.epoch)
	if err != nil {
		return fmt.Errorf("forget %q: %w", name, err)
	}
	word, err := forgetScript.Run(ctx, b.rdb, []string{
		k.epoch, k.deps, k.overrides, k.policies, k.due,
		stateKey(name), permitsKey(name), sampleKey(name), displayKey(name), historyKey(name),
	}, b.newEpoch(), name, until).Text()
	r := &reply{[]any{word}, err}
	if err := r.status(); err != nil {
		return fmt.Errorf("forget %q: %w", name, err)
	}
	return nil
}
