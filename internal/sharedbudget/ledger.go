// Package sharedbudget keeps the fleet's retry budgets in Redis.
//
// What must be conserved is drawn in Lua, in one step: a draw credits the requests that were reported, charges the
// retries that nobody granted, and grants out of what is left. The arithmetic is [policy.Budget]'s, number for number.
package sharedbudget

import (
	"context"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/retryplane/retryplane/internal/keyspace"
	"github.com/retryplane/retryplane/pkg/policy"
)

// Ledger is the fleet's budgets. Its methods are safe for concurrent use, also with other Ledgers on the same Redis.
// Redis's clock decides; no other clock is looked at.
//
// The budgets must have valid policies ([policy.Policy.Validate]). Different policies for the same dependency, as while
// a change spreads, are no error: each call acts on its own.
type Ledger struct{ rdb redis.UniversalClient }

// New returns a Ledger over a client. It does no I/O.
func New(rdb redis.UniversalClient) *Ledger { return &Ledger{rdb: rdb} }

// Draw is what one replica brings to a dependency's budget and wants of it. Counts below zero count as none, counts
// above a billion as a billion.
type Draw struct {
	Name     string
	Deposits int64 // requests that began lately; the caller has dropped those that are too old
	Debits   int64 // retries sent without a grant
	Want     int64 // retries that instances wait for; 0 while none may be granted
	Budget   policy.BudgetPolicy
}

// Drawn is what came of a [Draw].
type Drawn struct {
	Name    string
	Granted int64         // at most Want
	Hold    time.Duration // how long not to ask again; above 0 exactly if Granted is less than Want
	Usage   policy.Usage  // after the draw
}

const (
	perCall   = 128           // dependencies of one script call: Redis does nothing else meanwhile
	mostCount = 1_000_000_000 // far above any report; keeps sums in what Lua counts exactly
)

// Draw carries out the draws of one keyspace group and answers in their order. A dependency that is named twice draws
// twice. A draw that is denied costs nothing, and its deposits stay.
//
// Draw is not idempotent, and it sends nothing twice, whatever the client is set to. After an error nobody knows
// whether the draw it failed at was carried out, and it must not be repeated; those before it, which are returned along
// with the error, were, and those after it were not.
func (l *Ledger) Draw(ctx context.Context, group int, draws []Draw) ([]Drawn, error) {
	out := make([]Drawn, 0, len(draws))
	for len(draws) > 0 {
		part := draws[:min(len(draws), perCall)]
		draws = draws[len(part):]
		drawn, _, err := l.draw(ctx, group, part)
		if err != nil {
			return out, fmt.Errorf("draw group %d: %w", group, err)
		}
		out = append(out, drawn...)
	}
	return out, nil
}

// draw also returns the time of the draw on Redis's clock.
func (l *Ledger) draw(ctx context.Context, group int, draws []Draw) ([]Drawn, time.Time, error) {
	c := call{group: group}
	for _, d := range draws {
		c.add(d.Name, count(d.Deposits), count(d.Debits), count(d.Want), d.Budget.Ratio, d.Budget.Floor,
			d.Budget.Window.Milliseconds(), d.Budget.GrantTTL.Milliseconds())
	}
	const each = 7
	reply, err := c.run(ctx, l.rdb, drawScript, 1+each*len(draws))
	if err != nil {
		return nil, time.Time{}, err
	}
	out := make([]Drawn, len(draws))
	for i, d := range draws {
		n := reply[1+each*i:]
		out[i] = Drawn{Name: d.Name, Granted: n[0], Hold: time.Duration(n[1]) * time.Millisecond, Usage: usage(n[2:])}
	}
	return out, time.UnixMilli(reply[0]), nil
}

// Ask names a budget to read.
type Ask struct {
	Name   string
	Budget policy.BudgetPolicy
}

// Read tells how the budgets of one keyspace group stand, in the order asked. It changes nothing. A budget that
// nobody has used is as good as new.
func (l *Ledger) Read(ctx context.Context, group int, asks []Ask) ([]policy.Usage, error) {
	out := make([]policy.Usage, 0, len(asks))
	for len(asks) > 0 {
		part := asks[:min(len(asks), perCall)]
		asks = asks[len(part):]
		c := call{group: group}
		for _, a := range part {
			c.add(a.Name, a.Budget.Ratio, a.Budget.Floor, a.Budget.Window.Milliseconds(), a.Budget.GrantTTL.Milliseconds())
		}
		const each = 5
		reply, err := c.run(ctx, l.rdb, readScript, each*len(part))
		if err != nil {
			return nil, fmt.Errorf("read group %d: %w", group, err)
		}
		for i := range part {
			out = append(out, usage(reply[each*i:]))
		}
	}
	return out, nil
}

// Forget removes a dependency's budget. Forgetting one that is not there is no error.
func (l *Ledger) Forget(ctx context.Context, name string) error {
	if err := l.rdb.Del(ctx, key(name)).Err(); err != nil {
		return fmt.Errorf("forget the budget of %q: %w", name, err)
	}
	return nil
}

func key(name string) string { return keyspace.DependencyKey("b", name) }

func count(n int64) int64 { return min(max(n, 0), mostCount) }

// usage reads the numbers that the scripts return in this order.
func usage(n []int64) policy.Usage {
	u := policy.Usage{Requests: n[0], Granted: n[1], Debits: n[2], Denied: n[3], Allowed: n[4]}
	u.Remaining = u.Allowed - u.Granted - u.Debits
	return u
}
