package exchange_test

import (
	"context"
	"errors"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/retryplane/retryplane/internal/exchange"
	"github.com/retryplane/retryplane/internal/redistest"
	"github.com/retryplane/retryplane/pkg/wire"
)

// fails has four instances report failures until the breaker of payments is open.
func fails(t *testing.T, x *exchange.Exchange) (fleet []*instance, open wire.Decision) {
	t.Helper()
	for _, id := range []string{"a", "b", "c", "d"} {
		in := &instance{id: id}
		open = in.sync(t, x, wire.Report{Name: "payments", Requests: 1, Attempts: 1, Success: 1}).Dependencies[0]
		fleet = append(fleet, in)
	}
	for _, in := range fleet {
		open = in.sync(t, x, wire.Report{
			Name: "payments", Epoch: open.Epoch, Generation: open.Generation, Requests: 20, Attempts: 20, Failure: 20,
		}).Dependencies[0]
	}
	if open.State != wire.Open {
		t.Fatalf("after 80 failures: %+v", open)
	}
	return fleet, open
}

// probes lets the open time pass and has every instance ask for a permit. It returns the answers of those that got one.
func probes(t *testing.T, x *exchange.Exchange, fleet []*instance, open wire.Decision) map[*instance]wire.Decision {
	t.Helper()
	time.Sleep(time.Duration(open.RemainingMS+1) * time.Millisecond)
	got := make(map[*instance]wire.Decision)
	for _, in := range fleet {
		if d := in.sync(t, x, wire.Report{Name: "payments", WantProbe: true}).Dependencies[0]; d.Permit != nil {
			got[in] = d
		}
	}
	return got
}

func verdict(d wire.Decision, outcome string) wire.Report {
	return wire.Report{
		Name: "payments", Epoch: d.Epoch, Generation: d.Generation,
		Probes: []wire.ProbeResult{{Token: d.Permit.Token, Outcome: outcome}},
	}
}

// TestTwoReplicasOneRecovery: the verdicts that end an episode come to two replicas at the same time. One commits it,
// and the watchers of both hear of one recovery.
func TestTwoReplicasOneRecovery(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		rdb, m := redistest.Virtual(t, time.Millisecond)
		a, _ := replica(t, rdb)
		b, _ := replica(t, redistest.VirtualClient(t, m, time.Millisecond))
		awaitReady(t, a)
		awaitReady(t, b)
		fleet, open := fails(t, a)
		permits := probes(t, a, fleet, open)
		if len(permits) < 2 {
			t.Fatalf("%d permits", len(permits))
		}
		watchers := []*watcher{watch(t, a), watch(t, b)}
		var wg sync.WaitGroup
		at := []*exchange.Exchange{a, b}
		n := 0
		for in, d := range permits {
			x := at[n%2]
			n++
			wg.Go(func() {
				in.seq++
				r := &wire.SyncRequest{Instance: in.id, Seq: in.seq, Dependencies: []wire.Report{verdict(d, "success")}}
				if _, err := x.Sync(t.Context(), "test", r); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		time.Sleep(3 * time.Second)
		for i, w := range watchers {
			if got := w.transitions(); len(got) != 1 || got[0].Cause != "recovered" {
				t.Errorf("the watchers of replica %d heard %+v, want one recovery", i, got)
			}
		}
		list, err := a.Transitions(t.Context(), exchange.TransitionQuery{})
		if err != nil || len(list.Transitions) != 2 || list.Transitions[0].Cause != "recovered" || list.Transitions[1].Cause != "trip" {
			t.Errorf("the log holds %+v, %v; want a trip and a recovery", list.Transitions, err)
		}
	})
}

// TestFailedReadWhileOpen: that the store does not answer for a moment says nothing about an open breaker: nobody is
// told that it closed, and neither its generation nor its end moves.
func TestFailedReadWhileOpen(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, x *exchange.Exchange, m *miniredis.Miniredis) {
		fleet, _ := fails(t, x)
		permits := probes(t, x, fleet, wire.Decision{RemainingMS: 600})
		var half wire.Decision
		for in, d := range permits { // a longer one: the round fails
			half = in.sync(t, x, verdict(d, "failure")).Dependencies[0]
		}
		before, _ := x.Dependency("payments")
		if before.Breaker.Effective != wire.Open {
			t.Fatalf("%+v after %+v", before.Breaker, half)
		}
		w := watch(t, x)
		synctest.Wait()
		m.SetError("LOADING away")
		stranger := &instance{id: "stranger"}
		first := stranger.sync(t, x, wire.Report{Name: "payments"})
		if d := first.Dependencies[0]; !first.Degraded || d.State != wire.Open || d.Generation != before.Breaker.Automatic.Generation {
			t.Errorf("with the store away: %+v", first)
		}
		m.SetError("")
		time.Sleep(300 * time.Millisecond)
		after, _ := x.Dependency("payments")
		a, b := after.Breaker.Automatic, before.Breaker.Automatic
		if a.Generation != b.Generation || !a.Since.Equal(*b.Since) || a.Reopenings != b.Reopenings || a.RemainingMS > b.RemainingMS {
			t.Errorf("%+v became %+v", b, a)
		}
		w.mu.Lock()
		defer w.mu.Unlock()
		if len(w.events) > 0 {
			t.Errorf("told of %+v", w.events)
		}
	})
}

// TestLookingSpendsNothing: lists, the log, totals and open dashboards leave a breaker that is being probed, and its
// permits, as they are.
func TestLookingSpendsNothing(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, x *exchange.Exchange, _ *miniredis.Miniredis) {
		fleet, open := fails(t, x)
		permits := probes(t, x, fleet[:1], open)
		if len(permits) != 1 {
			t.Fatalf("%d permits", len(permits))
		}
		before, _ := x.Dependency("payments")
		w := watch(t, x)
		for range 50 {
			x.Dependencies()
			x.Totals()
			if _, err := x.Transitions(t.Context(), exchange.TransitionQuery{Dependency: "payments", Reopenings: true}); err != nil {
				t.Fatal(err)
			}
			time.Sleep(20 * time.Millisecond)
		}
		after, _ := x.Dependency("payments")
		if a, b := after.Breaker.Automatic, before.Breaker.Automatic; a.State != wire.HalfOpen || a.Generation != b.Generation {
			t.Errorf("%+v became %+v", b, a)
		}
		if got := w.transitions(); len(got) > 0 {
			t.Errorf("told of %+v", got)
		}
		got := 0
		for range 4 {
			for _, in := range fleet[1:] {
				if d := in.sync(t, x, wire.Report{Name: "payments", WantProbe: true}).Dependencies[0]; d.Permit != nil {
					got++
				}
			}
		}
		if got != 4 {
			t.Errorf("%d permits were left, want 4 of 5", got)
		}
	})
}

// hole is a network that swallows what is sent, when it is on: no error, no answer.
type hole struct{ on atomic.Bool }

// client returns a client of m through the hole, with the short timeouts of the control plane.
func (h *hole) client(t *testing.T, m *miniredis.Miniredis) *redis.Client {
	c := redis.NewClient(&redis.Options{
		Addr: "127.0.0.1:6379", // never dialled
		Dialer: func(context.Context, string, string) (net.Conn, error) {
			conn, err := m.Dial()
			return swallowing{conn, h}, err
		},
		DialTimeout: 500 * time.Millisecond, ReadTimeout: 500 * time.Millisecond, WriteTimeout: 500 * time.Millisecond,
		ContextTimeoutEnabled: true, MaxRetries: -1, DialerRetries: 1, DisableIdentity: true,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	})
	t.Cleanup(func() { _ = c.Close() })
	return c
}

type swallowing struct {
	net.Conn
	hole *hole
}

func (c swallowing) Write(p []byte) (int, error) {
	if c.hole.on.Load() {
		return len(p), nil
	}
	return c.Conn.Write(p)
}

// TestStoreBlackHoled: a store that takes everything and says nothing costs the first syncs one deadline; from then on
// they are answered at once. Operators are refused in the same time, and what they ordered does not surface later.
func TestStoreBlackHoled(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := miniredis.NewMiniRedis()
		m.ClockTTL(true)
		t.Cleanup(m.Close)
		h := new(hole)
		x, _ := replica(t, h.client(t, m))
		awaitReady(t, x)
		in := &instance{id: "a"}
		in.sync(t, x, wire.Report{Name: "payments", Requests: 1, Attempts: 1, Success: 1})

		h.on.Store(true)
		const within = 1200 * time.Millisecond // one call of the store, and the beat before it
		began := time.Now()
		if _, err := x.PutOverride(t.Context(), "payments", maintenance, exchange.AnyRevision); !errors.Is(err, exchange.ErrStore) {
			t.Errorf("override: %v", err)
		}
		if took := time.Since(began); took > within {
			t.Errorf("an order took %v", took)
		}
		var wg sync.WaitGroup
		for i := range 20 {
			one := &instance{id: string(rune('b' + i))}
			wg.Go(func() {
				began := time.Now()
				resp, err := x.Sync(t.Context(), "test", &wire.SyncRequest{Instance: one.id, Seq: 1, Dependencies: []wire.Report{
					{Name: "payments", Requests: 1, Attempts: 1, Success: 1, Want: 1}, {Name: "crm", Requests: 1, Attempts: 1, Success: 1},
				}})
				if err != nil || !resp.Degraded {
					t.Errorf("got %+v, %v", resp, err)
				}
				if took := time.Since(began); took > within {
					t.Errorf("a sync took %v", took)
				}
			})
		}
		wg.Wait()
		began = time.Now()
		in.sync(t, x, wire.Report{Name: "payments", Requests: 1, Attempts: 1, Success: 1})
		if took := time.Since(began); took > 0 {
			t.Errorf("known to be away, it still cost %v", took)
		}

		h.on.Store(false)
		time.Sleep(2 * time.Second)
		if resp := in.sync(t, x, wire.Report{Name: "payments", Requests: 1, Attempts: 1, Success: 1}); resp.Degraded {
			t.Error("still degraded")
		} else if resp.Dependencies[0].Override != nil {
			t.Errorf("the refused order surfaced: %+v", resp.Dependencies[0].Override)
		}
	})
}

// evals tells scripts that were sent by name from those that were sent in full.
type evals struct{ byName, inFull atomic.Int64 }

func (e *evals) DialHook(next redis.DialHook) redis.DialHook { return next }

func (e *evals) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		switch strings.ToLower(cmd.Name()) {
		case "evalsha":
			e.byName.Add(1)
		case "eval":
			e.inFull.Add(1)
		}
		return next(ctx, cmd)
	}
}

func (e *evals) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

// TestScriptsForgottenUnderTraffic: a store that forgets its scripts again and again fails no sync, and a script is
// sent in full once per call at most: there is no loop of reloads.
func TestScriptsForgottenUnderTraffic(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		rdb, m := redistest.Virtual(t, time.Millisecond)
		count := new(evals)
		rdb.AddHook(count)
		x, _ := replica(t, rdb)
		awaitReady(t, x)
		flusher := redistest.VirtualClient(t, m, time.Millisecond)
		var wg sync.WaitGroup
		for i := range 10 {
			in := &instance{id: string(rune('a' + i))}
			wg.Go(func() {
				for range 30 {
					r := in.sync(t, x, wire.Report{Name: "payments", Requests: 10, Attempts: 10, Success: 10, Want: 1})
					if r.Degraded || r.Dependencies[0].Granted != 1 {
						t.Errorf("sync %d of %s: %+v", in.seq, in.id, r)
						return
					}
					time.Sleep(100 * time.Millisecond)
				}
			})
		}
		for range 60 {
			time.Sleep(50 * time.Millisecond)
			if err := flusher.ScriptFlush(t.Context()).Err(); err != nil {
				t.Fatal(err)
			}
		}
		wg.Wait()
		if got := x.Totals()["payments"].Requests; got != 10*30*10 {
			t.Errorf("counted %d requests, want 3000", got)
		}
		if full, named := count.inFull.Load(), count.byName.Load(); full == 0 || full > named {
			t.Errorf("%d scripts in full for %d by name", full, named)
		}
		time.Sleep(2100 * time.Millisecond) // every script that the reconcile uses is known again
		before := count.inFull.Load()
		time.Sleep(10 * time.Second)
		if more := count.inFull.Load() - before; more > 0 {
			t.Errorf("%d scripts were sent in full though nobody flushed", more)
		}
	})
}

// TestDebitsOutliveTheStore: retries that nobody granted are charged to the budget also if they were reported while the
// store was away: to a replica that had noticed, or to one that had not.
func TestDebitsOutliveTheStore(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, x *exchange.Exchange, m *miniredis.Miniredis) {
		in := &instance{id: "a"}
		in.sync(t, x, wire.Report{Name: "payments", Requests: 1, Attempts: 1, Success: 1})
		m.SetError("LOADING away")
		for range 2 {
			if resp := in.sync(t, x, wire.Report{Name: "payments", Ungranted: 20}); !resp.Degraded {
				t.Errorf("with the store away: %+v", resp)
			}
		}
		m.SetError("")
		awaitReady(t, x)
		if d := in.sync(t, x, wire.Report{Name: "payments", Want: 1}).Dependencies[0]; d.Granted != 0 {
			t.Errorf("granted %d from a budget that is overdrawn", d.Granted)
		}
		if d, _ := x.Dependency("payments"); d.Budget.Retries != 40 || d.Budget.Remaining != -30 {
			t.Errorf("budget %+v, want 40 retries and -30 left", d.Budget)
		}
	})
}
