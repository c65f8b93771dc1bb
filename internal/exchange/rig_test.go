package exchange_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/retryplane/retryplane/internal/exchange"
	"github.com/retryplane/retryplane/pkg/wire"
)

// cut lets a client's commands fail, as a broken network does.
type cut struct{ off atomic.Bool }

var errCut = errors.New("network is down")

func (c *cut) DialHook(next redis.DialHook) redis.DialHook { return next }

func (c *cut) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if c.off.Load() {
			cmd.SetErr(errCut)
			return errCut
		}
		return next(ctx, cmd)
	}
}

func (c *cut) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

// watcher collects what a replica tells its watchers.
type watcher struct {
	mu     sync.Mutex
	events []exchange.Event
}

func watch(t *testing.T, x *exchange.Exchange) *watcher {
	t.Helper()
	w := new(watcher)
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() {
		x.Watch(ctx, func(e exchange.Event) {
			w.mu.Lock()
			w.events = append(w.events, e)
			w.mu.Unlock()
		})
	})
	t.Cleanup(func() {
		cancel()
		wg.Wait()
	})
	return w
}

func (w *watcher) transitions() (out []wire.Transition) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, e := range w.events {
		if e.Transition != nil {
			out = append(out, *e.Transition)
		}
	}
	return out
}
