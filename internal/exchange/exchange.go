// Package exchange is what a replica thinks with: it merges the syncs of many instances into few Redis calls, keeps a
// view of all dependencies in memory, and carries out what operators decide.
package exchange

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/retryplane/retryplane/internal/keyspace"
	"github.com/retryplane/retryplane/internal/sharedbreaker"
	"github.com/retryplane/retryplane/internal/sharedbudget"
)

// Errors that the API turns into problems.
var (
	ErrStore    = errors.New("the store does not answer")    // wraps the cause; 503 store_unavailable
	ErrBusy     = errors.New("too many syncs wait")          // 503 busy, with Retry-After
	ErrClosed   = errors.New("the replica is shutting down") // 503 shutting_down
	ErrNotFound = errors.New("no such dependency or record") // 404
	ErrConflict = errors.New("somebody else was faster")     // 409, or 412 when a revision was expected
	ErrInForce  = errors.New("an override stands")           // 409: Forget refuses
)

// Config is what an Exchange needs. All fields but Log are required.
type Config struct {
	Board  *sharedbreaker.Board
	Ledger *sharedbudget.Ledger
	Log    *slog.Logger // nil = discard
}

// Exchange serves the syncs of one replica. Its methods are safe for concurrent use; Run must be running for Sync to
// be answered.
type Exchange struct {
	board  *sharedbreaker.Board
	ledger *sharedbudget.Ledger
	log    *slog.Logger

	groups   [keyspace.Groups]*group
	registry *registry
	store    *store
	pace     *pace
	tally    *tally
	answers  *answers
	timeline timeline
	chains   chains
	watchers watchers
	closed   chan struct{} // closed when Run has ended
}

// storeTimeout bounds one call of the store. A store that takes longer counts as away.
const storeTimeout = time.Second

// New returns an Exchange that does nothing until Run.
func New(c Config) *Exchange {
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	x := &Exchange{
		board: c.Board, ledger: c.Ledger, log: c.Log,
		registry: newRegistry(), store: newStore(), pace: newPace(), tally: newTally(), answers: newAnswers(),
		closed: make(chan struct{}),
	}
	for i := range x.groups {
		x.groups[i] = newGroup(i)
	}
	return x
}

// Run works until ctx ends: it flushes what syncs brought to Redis, reconciles with what other replicas did and
// commits what is due. Before it returns it flushes what is pending, which
// takes at most 2 s. It returns nil after ctx ended.
func (x *Exchange) Run(ctx context.Context) error {
	var wg sync.WaitGroup
	for _, g := range x.groups {
		wg.Go(func() { x.serveGroup(ctx, g) })
	}
	wg.Go(func() { x.reconcile(ctx) })
	wg.Go(func() { x.noteChains(ctx) })
	wg.Wait()
	close(x.closed)
	return nil
}

// Health is how the replica stands with its store.
type Health struct {
	Ready    bool // has been in touch with the store at least once
	Degraded bool // is out of touch now
	Err      error
	Since    time.Time // of Degraded
}

// Health costs nothing.
func (x *Exchange) Health() Health { return x.store.health() }

// Syncs returns how many syncs were answered since the start, by result: ok, degraded, unavailable, busy, repeated.
func (x *Exchange) Syncs() map[string]int64 { return x.tally.syncResults() }

// Instances is how many instances were in touch with this replica within 30 s.
func (x *Exchange) Instances() int { return x.pace.instances(time.Now()) }
