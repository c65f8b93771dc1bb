package sharedbreaker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/retryplane/retryplane/internal/keyspace"
	"github.com/retryplane/retryplane/pkg/policy"
)

// Kinds of saved records.
const (
	KindOverride = "override"
	KindPolicy   = "policy"
)

var errOverride = errors.New("an override needs a mode and a time to live")

// PutOverride puts o's mode over a dependency for ttl, replaces the override that is in force, and logs it. The
// revision, the creation time and the expiry come from the store. An unknown dependency is registered: it can be
// forced before anybody calls it. expected is the revision in force that the caller saw, 0 for none, AnyRevision for
// whatever is there; otherwise ErrConflict.
func (b *Board) PutOverride(ctx context.Context, name string, o policy.Override, ttl time.Duration, expected int64) (Standing, error) {
	if !o.Mode.Valid() || ttl < time.Millisecond {
		return Standing{}, fmt.Errorf("override %q: %w", name, errOverride)
	}
	doc, err := json.Marshal(order{Mode: o.Mode, Reason: o.Reason, Actor: o.Actor})
	if err != nil {
		return Standing{}, fmt.Errorf("override %q: %w", name, err)
	}
	return b.override(ctx, name, string(doc), o.Actor, o.Reason, ttl, expected)
}

// DeleteOverride gives a dependency back to its automatic state and logs it. Errors: ErrNotFound without an override
// in force, ErrConflict if it has another revision than expected.
func (b *Board) DeleteOverride(ctx context.Context, name, actor string, expected int64) (Standing, error) {
	return b.override(ctx, name, "", actor, "", 0, expected)
}

func (b *Board) override(ctx context.Context, name, doc, actor, reason string, ttl time.Duration, expected int64) (Standing, error) {
	k := groupKeys[keyspace.Group(name)]
	until, err := b.orderUntil(ctx, k.epoch)
	if err != nil {
		return Standing{}, fmt.Errorf("override %q: %w", name, err)
	}
	r := newReply(overrideScript.Run(ctx, b.rdb,
		[]string{k.epoch, k.deps, k.overrides, k.policies, k.log, k.due, stateKey(name), permitsKey(name)},
		b.newEpoch(), name, expected, ttl.Milliseconds(), doc, actor, until))
	if err := r.status(); err != nil {
		return Standing{}, fmt.Errorf("override %q: %w", name, err)
	}
	now, epoch := moment(r.text()), r.text()
	var d dossier
	row := r.list()
	d.read(row, now, epoch, name)
	t := Transition{
		ID: r.text(), Dependency: name, From: state(r.text()), To: state(r.text()), Generation: r.int(),
		Reason: reason, Cause: policy.CauseOperator, Actor: actor, At: now,
	}
	if r.err = errors.Join(r.err, row.err); r.err != nil {
		return Standing{}, fmt.Errorf("override %q: %w", name, r.err)
	}
	d.standing.Transitions = []Transition{t}
	return d.standing, nil
}

// Reset closes a breaker, forgets its episode and starts its counters over; an override stays. It is logged even if
// the breaker was closed. ErrNotFound for an unknown dependency.
func (b *Board) Reset(ctx context.Context, name, actor string) (Standing, error) {
	const tries = 8
	d := dossier{group: keyspace.Group(name), standing: Standing{Name: name}}
	for range tries {
		if err := b.look(ctx, &d); err != nil {
			return Standing{}, fmt.Errorf("reset %q: %w", name, err)
		}
		if d.standing.LastReport.IsZero() {
			return Standing{}, fmt.Errorf("reset %q: %w", name, ErrNotFound)
		}
		if d.standing.Breaker.Generation == 0 {
			return d.standing, nil // its state was of an older epoch, so it is closed and fresh already
		}
		next := d.standing.Breaker.Reset(d.standing.Now)
		until, err := b.orderUntil(ctx, groupKeys[d.group].epoch)
		if err != nil {
			return Standing{}, fmt.Errorf("reset %q: %w", name, err)
		}
		won, err := b.commit(ctx, &d, next, policy.CauseReset, "", actor, until)
		if err != nil {
			return Standing{}, fmt.Errorf("reset %q: %w", name, err)
		}
		if won {
			d.standing.NotBefore = time.Time{}
			return d.standing, nil
		}
	}
	return Standing{}, fmt.Errorf("reset %q: %w", name, ErrConflict)
}

// PutPolicy stores a dependency's policy and returns it with its version. An unknown dependency is registered.
// expected is the version that the caller saw, 0 for none, or AnyRevision; otherwise ErrConflict. The state of the
// breaker stays; its next decision follows the policy that its report brings.
func (b *Board) PutPolicy(ctx context.Context, name, json string, expected int64) (Record, error) {
	version, err := b.policy(ctx, name, json, expected)
	if err != nil {
		return Record{}, err
	}
	return Record{Version: version, JSON: json}, nil
}

// DeletePolicy removes a dependency's policy. Errors: ErrNotFound, ErrConflict.
func (b *Board) DeletePolicy(ctx context.Context, name string, expected int64) error {
	_, err := b.policy(ctx, name, "", expected)
	return err
}

func (b *Board) policy(ctx context.Context, name, doc string, expected int64) (int64, error) {
	k := groupKeys[keyspace.Group(name)]
	until, err := b.orderUntil(ctx, k.epoch)
	if err != nil {
		return 0, fmt.Errorf("policy of %q: %w", name, err)
	}
	r := newReply(policyScript.Run(ctx, b.rdb,
		[]string{k.epoch, k.deps, k.policies, k.due, stateKey(name), permitsKey(name)},
		b.newEpoch(), name, expected, doc, until))
	err = r.status()
	version := r.int()
	if err == nil {
		err = r.err
	}
	if err != nil {
		return 0, fmt.Errorf("policy of %q: %w", name, err)
	}
	return version, nil
}

// Restore writes back what a store lost. Of two records the higher revision wins, so it may be called by every
// replica, at any time; overrides and tombstones whose time is up are not written. Breakers are not restored.
func (b *Board) Restore(ctx context.Context, group int, saved []Saved) error {
	const most = 128
	k := groupKeys[group]
	for lot := range slices.Chunk(saved, most) {
		args := []any{b.newEpoch()}
		for _, s := range lot {
			deleted := 0
			if s.Deleted {
				deleted = 1
			}
			var until int64
			if !s.Until.IsZero() {
				until = s.Until.UnixMilli()
			}
			doc, err := json.Marshal([]any{s.Kind, s.Name, s.Revision, deleted, until, s.JSON})
			if err != nil {
				return fmt.Errorf("restore group %d: %w", group, err)
			}
			args = append(args, doc)
		}
		if err := restoreScript.Run(ctx, b.rdb, []string{k.epoch, k.deps, k.overrides, k.policies, k.due}, args...).Err(); err != nil {
			return fmt.Errorf("restore group %d: %w", group, err)
		}
	}
	return nil
}

// orderLife is how long an operator's order may take to be carried out, if ctx allows it that long. It is shorter than
// the read timeout of any sensible client.
const orderLife = 400 * time.Millisecond

var errLate = errors.New("the store was too slow and did not carry it out")

// orderUntil asks Redis for its time and returns when an order that is given now is too old. A Redis that hung has the
// order in its queue when it goes on; by then the operator has been told that it failed, so it must not surface.
func (b *Board) orderUntil(ctx context.Context, key string) (string, error) {
	now, err := clockScript.Run(ctx, b.rdb, []string{key}).Text()
	if err != nil {
		return "", err
	}
	life := orderLife
	if deadline, ok := ctx.Deadline(); ok {
		life = min(life, time.Until(deadline))
	}
	return millis(moment(now).Add(life)), nil
}

// status reads the word with which scripts for operators begin their replies.
func (r *reply) status() error {
	switch word := r.text(); {
	case r.err != nil:
		return r.err
	case word == "conflict":
		return ErrConflict
	case word == "missing":
		return ErrNotFound
	case word == "in_force":
		return ErrInForce
	case word == "late":
		return errLate
	}
	return nil
}

func state(word string) policy.State {
	switch word {
	case policy.Open.String():
		return policy.Open
	case policy.HalfOpen.String():
		return policy.HalfOpen
	}
	return policy.Closed
}
