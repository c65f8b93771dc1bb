package exchange_test

import (
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2"

	"github.com/retryplane/retryplane/internal/exchange"
	"github.com/retryplane/retryplane/internal/redistest"
	"github.com/retryplane/retryplane/pkg/policy"
	"github.com/retryplane/retryplane/pkg/wire"
)

var maintenance = exchange.Override{Mode: policy.ModeForceOpen, Reason: "provider maintenance", Actor: "alice", Duration: time.Hour}

// TestStoreAway: for 10 s the last known decisions, marked as degraded; then a refusal; afterwards all by itself back,
// with what was reported meanwhile in the display counters. Overrides are refused at once and surface nowhere.
func TestStoreAway(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, x *exchange.Exchange, m *miniredis.Miniredis) {
		in := &instance{id: "a"}
		in.sync(t, x, wire.Report{Name: "payments", Requests: 10, Attempts: 10, Success: 10})
		m.SetError("LOADING away")
		in.sync(t, x, wire.Report{Name: "payments", Requests: 5, Attempts: 5, Success: 5}) // notices
		time.Sleep(5 * time.Second)
		resp := in.sync(t, x, wire.Report{Name: "payments", Requests: 7, Attempts: 7, Success: 7, Want: 2})
		if !resp.Degraded || resp.Dependencies[0].Granted != 0 || resp.Dependencies[0].Generation != 1 {
			t.Errorf("after 5 s: %+v", resp)
		}
		if _, err := x.PutOverride(t.Context(), "payments", maintenance, exchange.AnyRevision); !errors.Is(err, exchange.ErrStore) {
			t.Errorf("override without a store: %v", err)
		}
		time.Sleep(6 * time.Second)
		if _, err := x.Sync(t.Context(), "test", &wire.SyncRequest{Instance: "a", Seq: 100, Dependencies: []wire.Report{{Name: "payments"}}}); !errors.Is(err, exchange.ErrStore) {
			t.Errorf("after 11 s: %v", err)
		}
		m.SetError("")
		awaitReady(t, x)
		if resp := in.sync(t, x, wire.Report{Name: "payments", Requests: 1, Attempts: 1, Success: 1}); resp.Degraded {
			t.Error("still degraded")
		}
		if got := x.Totals()["payments"].Requests; got != 10+5+7+1 {
			t.Errorf("counted %d requests, want 23", got)
		}
		time.Sleep(3 * time.Second)
		d, _ := x.Dependency("payments")
		if d.Breaker.Override != nil || d.Window.Requests != 13 { // the last 10 s
			t.Errorf("override %+v, %d requests in the window", d.Breaker.Override, d.Window.Requests)
		}
	})
}

// TestStoreLostItsMemory: a new epoch; overrides and policies are written back, breakers are not.
func TestStoreLostItsMemory(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, x *exchange.Exchange, m *miniredis.Miniredis) {
		in := &instance{id: "a"}
		before := in.sync(t, x, wire.Report{Name: "payments", Requests: 1, Attempts: 1, Success: 1}).Dependencies[0]
		put, err := x.PutOverride(t.Context(), "payments", maintenance, exchange.AnyRevision)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := x.PutPolicy(t.Context(), "billing", wire.Policy{Budget: &wire.BudgetPolicy{Floor: new(int64(3))}}, exchange.AnyRevision); err != nil {
			t.Fatal(err)
		}
		time.Sleep(3 * time.Second) // the reconcile has seen both
		m.FlushAll()
		time.Sleep(3 * time.Second)
		after := in.sync(t, x, wire.Report{Name: "payments", Requests: 1, Attempts: 1, Success: 1}).Dependencies[0]
		if after.Epoch == before.Epoch {
			t.Error("the same epoch")
		}
		if o := after.Override; o == nil || o.Mode != "force_open" || o.Revision != put.Breaker.Override.Revision {
			t.Errorf("override %+v", o)
		}
		if d, ok := x.Dependency("billing"); !ok || d.Budget.Floor != 3 || d.Policy.Source != "api" {
			t.Errorf("policy %+v", d.Budget)
		}
	})
}

// TestDeletedStaysDeleted: one replica was cut off while an override was deleted; then the store loses its memory.
func TestDeletedStaysDeleted(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		rdb, m := redistest.Virtual(t, time.Millisecond)
		a, _ := replica(t, rdb)
		gate := new(cut)
		apart := redistest.VirtualClient(t, m, time.Millisecond)
		apart.AddHook(gate)
		b, _ := replica(t, apart)
		awaitReady(t, a)
		awaitReady(t, b)
		if _, err := a.PutOverride(t.Context(), "payments", maintenance, 0); err != nil {
			t.Fatal(err)
		}
		time.Sleep(3 * time.Second)
		if d, ok := b.Dependency("payments"); !ok || d.Breaker.Override == nil {
			t.Fatalf("the other replica knows nothing of the override: %+v", d)
		}
		gate.off.Store(true)
		if _, err := a.DeleteOverride(t.Context(), "payments", "alice", exchange.AnyRevision); err != nil {
			t.Fatal(err)
		}
		time.Sleep(3 * time.Second)
		m.FlushAll()
		gate.off.Store(false)
		time.Sleep(10 * time.Second)
		for name, x := range map[string]*exchange.Exchange{"a": a, "b": b} {
			if d, ok := x.Dependency("payments"); ok && d.Breaker.Override != nil {
				t.Errorf("replica %s: the override is back: %+v", name, d.Breaker.Override)
			}
		}
	})
}

// TestTwoReplicasOneTransition: both see the failures, one commits, both tell their watchers once.
func TestTwoReplicasOneTransition(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		rdb, m := redistest.Virtual(t, time.Millisecond)
		a, _ := replica(t, rdb)
		b, _ := replica(t, redistest.VirtualClient(t, m, time.Millisecond))
		awaitReady(t, a)
		awaitReady(t, b)
		watchA, watchB := watch(t, a), watch(t, b)
		var wg sync.WaitGroup
		for i, x := range []*exchange.Exchange{a, b, a, b} {
			in := &instance{id: string(rune('a' + i))}
			d := in.sync(t, x, wire.Report{Name: "payments", Requests: 1, Attempts: 1, Success: 1}).Dependencies[0]
			failures := wire.Report{Name: "payments", Epoch: d.Epoch, Generation: d.Generation, Requests: 100, Attempts: 100, Failure: 100}
			wg.Go(func() {
				if _, err := x.Sync(t.Context(), "test", &wire.SyncRequest{Instance: in.id, Seq: 2, Dependencies: []wire.Report{failures}}); err != nil {
					t.Errorf("sync of %s: %v", in.id, err)
				}
			})
		}
		wg.Wait()
		time.Sleep(300 * time.Millisecond)
		for name, w := range map[string]*watcher{"a": watchA, "b": watchB} {
			if got := w.transitions(); len(got) != 1 || got[0].Cause != "trip" {
				t.Errorf("replica %s told of %+v, want one trip", name, got)
			}
		}
		list, err := a.Transitions(t.Context(), exchange.TransitionQuery{Reopenings: true})
		if err != nil || len(list.Transitions) != 1 {
			t.Errorf("the log holds %+v: %v", list.Transitions, err)
		}
		count := int64(0)
		for _, x := range []*exchange.Exchange{a, b} {
			for _, n := range x.Totals()["payments"].Transitions {
				count += n
			}
		}
		if count != 1 {
			t.Errorf("counted %d transitions over both replicas, want 1", count)
		}
	})
}

// TestShutdownAnswersWhatIsPending: what a replica has taken it answers, and then refuses.
func TestShutdownAnswersWhatIsPending(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		rdb, _ := redistest.Virtual(t, time.Millisecond)
		x, stop := replica(t, rdb)
		awaitReady(t, x)
		got := make(chan error, 1)
		go func() {
			_, err := x.Sync(t.Context(), "test", &wire.SyncRequest{Instance: "a", Seq: 1, Dependencies: []wire.Report{{Name: "payments", Requests: 1}}})
			got <- err
		}()
		synctest.Wait()
		stop()
		if err := <-got; err != nil {
			t.Errorf("pending at shutdown: %v", err)
		}
		if _, err := x.Sync(t.Context(), "test", &wire.SyncRequest{Instance: "a", Seq: 2}); !errors.Is(err, exchange.ErrClosed) {
			t.Errorf("after shutdown: %v", err)
		}
	})
}
