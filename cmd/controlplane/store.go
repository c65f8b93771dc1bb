package main

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/retryplane/retryplane/internal/api"
)

// store is the Redis that the server works on, its own or somebody else's.
type store struct {
	rdb  redis.UniversalClient
	kind string // embedded, redis

	embedded *miniredis.Miniredis // nil = somebody else's
	stop     chan struct{}
	aging    sync.WaitGroup
}

// openStore does not need Redis to be up: it connects with the first command.
func openStore(target *redisTarget, log *slog.Logger) *store {
	redis.SetLogger(redisLog{log}) // one for the process: go-redis knows no other way
	if target != nil {
		log.Info("the store is Redis", "servers", target.String())
		return &store{rdb: target.client(), kind: "redis"}
	}
	m := miniredis.NewMiniRedis()
	s := &store{kind: "embedded", embedded: m, stop: make(chan struct{})}
	// Without a port: faster, and no other program on this machine gets between.
	s.rdb = redis.NewClient(&redis.Options{
		Addr:                  "embedded",
		Dialer:                func(context.Context, string, string) (net.Conn, error) { return m.Dial() },
		ContextTimeoutEnabled: true, MaxRetries: -1, DialerRetries: 1,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	})
	s.aging.Go(s.age)
	log.Warn("the store is in memory and for this one process: it forgets everything when the process ends; use --redis for a real one")
	return s
}

// agingStep is how often the embedded store lets its keys age, which it does not do by itself.
const agingStep = 100 * time.Millisecond

func (s *store) age() {
	tick := time.NewTicker(agingStep)
	defer tick.Stop()
	last := time.Now()
	for {
		select {
		case <-s.stop:
			return
		case now := <-tick.C:
			s.embedded.FastForward(now.Sub(last))
			last = now
		}
	}
}

// close ends the connections and, if it is its own, the store.
func (s *store) close() error {
	err := s.rdb.Close()
	if s.embedded != nil {
		close(s.stop)
		s.aging.Wait()
		s.embedded.Close()
	}
	return err
}

// timings is a go-redis hook that measures every command and every pipeline. The commands come from our own code, so
// their names are few.
type timings struct{ to *api.StoreTimings }

// DialHook implements [redis.Hook]. Dials are part of the command that needed them.
func (timings) DialHook(next redis.DialHook) redis.DialHook { return next }

// ProcessHook implements [redis.Hook].
func (t timings) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		began := time.Now()
		err := next(ctx, cmd)
		t.to.Observe(cmd.Name(), time.Since(began))
		return err
	}
}

// ProcessPipelineHook implements [redis.Hook].
func (t timings) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		began := time.Now()
		err := next(ctx, cmds)
		t.to.Observe("pipeline", time.Since(began))
		return err
	}
}

// redisLog passes on what go-redis says of its connections, which is no news to a human: the server itself reports
// when the store goes and comes.
type redisLog struct{ log *slog.Logger }

// Printf implements the logger that [redis.SetLogger] wants.
func (l redisLog) Printf(ctx context.Context, format string, args ...any) {
	l.log.DebugContext(ctx, "redis client", "message", fmt.Sprintf(format, args...))
}
