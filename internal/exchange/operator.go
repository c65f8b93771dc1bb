package exchange

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/retryplane/retryplane/internal/keyspace"
	"github.com/retryplane/retryplane/internal/sharedbreaker"
	"github.com/retryplane/retryplane/pkg/policy"
	"github.com/retryplane/retryplane/pkg/wire"
)

// AnyRevision as the expected revision of an operator's call accepts whatever is there.
const AnyRevision = sharedbreaker.AnyRevision

// Override is an operator's order.
type Override struct {
	Mode     policy.Mode
	Reason   string
	Actor    string
	Duration time.Duration
}

// PutOverride writes an override over a dependency, known or not yet. expected is the revision that the caller saw,
// 0 for none, or AnyRevision. Errors: ErrStore, ErrConflict.
func (x *Exchange) PutOverride(ctx context.Context, name string, o Override, expected int64) (wire.Dependency, error) {
	d, err := x.operate(ctx, name, func(ctx context.Context) (sharedbreaker.Standing, error) {
		order := policy.Override{Mode: o.Mode, Reason: o.Reason, Actor: o.Actor}
		return x.board.PutOverride(ctx, name, order, o.Duration, expected)
	})
	if err == nil {
		x.log.Info("override written", slog.String("dependency", name), slog.String("mode", string(o.Mode)),
			slog.String("reason", o.Reason), slog.String("actor", o.Actor), slog.Duration("for", o.Duration))
	}
	return d, err
}

// DeleteOverride gives a dependency back to its automatic state. Errors: ErrStore, ErrConflict, ErrNotFound.
func (x *Exchange) DeleteOverride(ctx context.Context, name, actor string, expected int64) (wire.Dependency, error) {
	d, err := x.operate(ctx, name, func(ctx context.Context) (sharedbreaker.Standing, error) {
		return x.board.DeleteOverride(ctx, name, actor, expected)
	})
	if err == nil {
		x.log.Info("override removed", slog.String("dependency", name), slog.String("actor", actor))
	}
	return d, err
}

// Reset closes a breaker and forgets its episode; an override stays. Errors: ErrStore, ErrNotFound.
func (x *Exchange) Reset(ctx context.Context, name, actor string) (wire.Dependency, error) {
	return x.operate(ctx, name, func(ctx context.Context) (sharedbreaker.Standing, error) {
		return x.board.Reset(ctx, name, actor)
	})
}

// PutPolicy sets a dependency's policy; fields that p leaves out are the defaults'. Errors: joined *policy.FieldError,
// ErrStore, ErrConflict.
func (x *Exchange) PutPolicy(ctx context.Context, name string, p wire.Policy, expected int64) (wire.Dependency, error) {
	if _, err := p.Over(policy.Default()); err != nil {
		return wire.Dependency{}, err
	}
	doc, err := json.Marshal(p)
	if err != nil {
		return wire.Dependency{}, fmt.Errorf("encode the policy of %q: %w", name, err)
	}
	return x.record(ctx, name, func(ctx context.Context) error {
		_, err := x.board.PutPolicy(ctx, name, string(doc), expected)
		return err
	})
}

// DeletePolicy brings the default policy back. Errors: ErrStore, ErrConflict, ErrNotFound.
func (x *Exchange) DeletePolicy(ctx context.Context, name string, expected int64) (wire.Dependency, error) {
	return x.record(ctx, name, func(ctx context.Context) error {
		return x.board.DeletePolicy(ctx, name, expected)
	})
}

// Forget removes everything about a dependency but its log entries. Errors: ErrStore, ErrNotFound, ErrInForce.
func (x *Exchange) Forget(ctx context.Context, name string) error {
	_, err := x.order(ctx, func(ctx context.Context) error {
		if err := x.board.Forget(ctx, name); err != nil {
			return err
		}
		return x.ledger.Forget(ctx, name)
	})
	if err != nil {
		return fmt.Errorf("forget %q: %w", name, err)
	}
	x.registry.forget(name)
	x.tally.forget(name)
	x.emit(Event{Forgotten: name})
	return nil
}

// operate carries out an order that answers with the dependency's new standing.
func (x *Exchange) operate(ctx context.Context, name string, fn func(context.Context) (sharedbreaker.Standing, error)) (wire.Dependency, error) {
	var s sharedbreaker.Standing
	sent, err := x.order(ctx, func(ctx context.Context) (err error) {
		s, err = fn(ctx)
		return err
	})
	if err != nil {
		return wire.Dependency{}, fmt.Errorf("operate %q: %w", name, err)
	}
	x.learn(sent, s, false)
	return x.registry.answer(s), nil
}

// record carries out an order about a policy, and reads the group again for the answer.
func (x *Exchange) record(ctx context.Context, name string, fn func(context.Context) error) (wire.Dependency, error) {
	_, err := x.order(ctx, func(ctx context.Context) error {
		if err := fn(ctx); err != nil {
			return err
		}
		_, err := x.readGroup(ctx, keyspace.Group(name))
		return err
	})
	if err != nil {
		return wire.Dependency{}, fmt.Errorf("policy of %q: %w", name, err)
	}
	d, _ := x.Dependency(name)
	x.log.Info("policy changed", slog.String("dependency", name), slog.Int64("version", d.Policy.Version))
	return d, nil
}

// order runs an operator's call against the store, with a deadline, and names its errors. An order is refused while
// the store is out of reach: nothing is kept that could surface later.
func (x *Exchange) order(ctx context.Context, fn func(context.Context) error) (sent time.Time, err error) {
	if h := x.store.health(); h.Degraded {
		if h.Err == nil {
			return sent, fmt.Errorf("%w: not reached yet", ErrStore)
		}
		return sent, fmt.Errorf("%w: %w", ErrStore, h.Err)
	}
	// Somebody who hangs up must not leave an order half done, nor look like a store that does not answer.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), storeTimeout)
	defer cancel()
	sent = time.Now()
	switch err = fn(ctx); {
	case err == nil:
		return sent, nil
	case errors.Is(err, sharedbreaker.ErrConflict):
		return sent, fmt.Errorf("%w: %w", ErrConflict, err)
	case errors.Is(err, sharedbreaker.ErrNotFound):
		return sent, fmt.Errorf("%w: %w", ErrNotFound, err)
	case errors.Is(err, sharedbreaker.ErrInForce):
		return sent, fmt.Errorf("%w: %w", ErrInForce, err)
	}
	x.lost(err)
	return sent, fmt.Errorf("%w: %w", ErrStore, err)
}
