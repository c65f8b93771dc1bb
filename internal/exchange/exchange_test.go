package exchange_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/retryplane/retryplane/internal/exchange"
	"github.com/retryplane/retryplane/internal/redistest"
	"github.com/retryplane/retryplane/internal/sharedbreaker"
	"github.com/retryplane/retryplane/internal/sharedbudget"
	"github.com/retryplane/retryplane/pkg/wire"
)

// replica starts a replica on a client and stops it with the test, or before by the returned function.
func replica(t *testing.T, rdb redis.UniversalClient) (*exchange.Exchange, func()) {
	t.Helper()
	x := exchange.New(exchange.Config{Board: sharedbreaker.New(rdb), Ledger: sharedbudget.New(rdb)})
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() { _ = x.Run(ctx) })
	stop := sync.OnceFunc(func() {
		cancel()
		wg.Wait()
	})
	t.Cleanup(stop)
	return x, stop
}

// inBubble runs fn with one replica on an embedded store, in virtual time.
func inBubble(t *testing.T, fn func(t *testing.T, x *exchange.Exchange, m *miniredis.Miniredis)) {
	synctest.Test(t, func(t *testing.T) {
		rdb, m := redistest.Virtual(t, time.Millisecond)
		x, _ := replica(t, rdb)
		awaitReady(t, x)
		fn(t, x, m)
	})
}

func awaitReady(t *testing.T, x *exchange.Exchange) {
	t.Helper()
	for range 100 {
		if !x.Health().Degraded {
			return
		}
		time.Sleep(50 * time.Millisecond) // virtual
	}
	t.Fatalf("not ready: %+v", x.Health())
}

// instance is one instance's side of the syncs.
type instance struct {
	id  string
	seq int64
}

func (i *instance) sync(t *testing.T, x *exchange.Exchange, reports ...wire.Report) *wire.SyncResponse {
	t.Helper()
	i.seq++
	resp, err := x.Sync(t.Context(), "test", &wire.SyncRequest{Instance: i.id, Seq: i.seq, Dependencies: reports})
	if err != nil {
		t.Fatalf("sync %d of %s: %v", i.seq, i.id, err)
	}
	return resp
}

// commands counts what a client sends to Redis.
type commands struct{ n atomic.Int64 }

func (c *commands) DialHook(next redis.DialHook) redis.DialHook { return next }

func (c *commands) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if strings.HasPrefix(strings.ToLower(cmd.Name()), "eval") {
			c.n.Add(1)
		}
		return next(ctx, cmd)
	}
}

func (c *commands) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		c.n.Add(int64(len(cmds)))
		return next(ctx, cmds)
	}
}

// TestRedisCallsDoNotGrow: the same dependencies under the same load over the same time cost about the same number of
// Redis calls, whether 10 or 1,000 instances carry it.
func TestRedisCallsDoNotGrow(t *testing.T) {
	t.Parallel()
	const seconds, deps, perSecond = 5, 5, 1000
	calls := func(instances int) (n int64) {
		synctest.Test(t, func(t *testing.T) {
			rdb, _ := redistest.Virtual(t, time.Millisecond)
			count := new(commands)
			rdb.AddHook(count)
			x, _ := replica(t, rdb)
			awaitReady(t, x)
			count.n.Store(0)
			var wg sync.WaitGroup
			for i := range instances {
				wg.Go(func() {
					in := &instance{id: fmt.Sprintf("i-%d", i)}
					time.Sleep(time.Duration(i) * time.Second / time.Duration(instances))
					for range seconds {
						var reports []wire.Report
						for d := range deps {
							each := perSecond / int64(instances)
							reports = append(reports, wire.Report{Name: fmt.Sprintf("dep-%d", d), Requests: each, Attempts: each, Success: each})
						}
						in.sync(t, x, reports...)
						time.Sleep(time.Second)
					}
				})
			}
			wg.Wait()
			n = count.n.Load()
			if got, want := x.Syncs()["ok"], int64(instances*seconds); got != want {
				t.Errorf("%d of %d syncs were answered in full", got, want)
			}
		})
		return n
	}
	few, many := calls(10), calls(1000)
	ratio := float64(many) / float64(few)
	t.Logf("Redis calls: %d with 10 instances, %d with 1,000: %.2fx", few, many, ratio)
	if ratio > 1.5 {
		t.Errorf("calls grew from %d to %d", few, many)
	}
}

// TestSameSequenceSameAnswer: a repeated sync is answered as before and counts once.
func TestSameSequenceSameAnswer(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, x *exchange.Exchange, _ *miniredis.Miniredis) {
		r := &wire.SyncRequest{Instance: "a", Seq: 1, Dependencies: []wire.Report{{Name: "payments", Requests: 100, Attempts: 100, Success: 90, Failure: 10, Want: 3}}}
		first, err := x.Sync(t.Context(), "test", r)
		if err != nil {
			t.Fatal(err)
		}
		again, err := x.Sync(t.Context(), "test", r)
		if err != nil {
			t.Fatal(err)
		}
		if first != again {
			t.Errorf("another answer: %+v, %+v", first, again)
		}
		if got := first.Dependencies[0].Granted; got != 3 {
			t.Errorf("granted %d of 3", got)
		}
		if got := x.Totals()["payments"].Requests; got != 100 {
			t.Errorf("counted %d requests, want 100", got)
		}
		if got := x.Syncs()["repeated"]; got != 1 {
			t.Errorf("repeated: %d", got)
		}
	})
}
