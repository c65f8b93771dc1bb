package redistest

import (
	"context"
	"net"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// Virtual returns a client of an embedded store that lives in a testing/synctest bubble: connections are in memory,
// its clock and its TTLs follow the bubble's. Every command takes latency, the round trip of a real store.
func Virtual(t testing.TB, latency time.Duration) (*redis.Client, *miniredis.Miniredis) {
	t.Helper()
	m := miniredis.NewMiniRedis()
	m.ClockTTL(true)
	t.Cleanup(m.Close)
	return VirtualClient(t, m, latency), m
}

// VirtualClient returns one more client of such a store: another replica's.
func VirtualClient(t testing.TB, m *miniredis.Miniredis, latency time.Duration) *redis.Client {
	t.Helper()
	c := redis.NewClient(&redis.Options{
		Addr:                  "127.0.0.1:6379", // never dialled; a name would be looked up, outside the bubble
		Dialer:                func(context.Context, string, string) (net.Conn, error) { return m.Dial() },
		ContextTimeoutEnabled: true, MaxRetries: -1, DialerRetries: 1, DisableIdentity: true,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	})
	c.AddHook(delay(latency))
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// delay makes every command take its time.
type delay time.Duration

func (d delay) DialHook(next redis.DialHook) redis.DialHook { return next }

func (d delay) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		time.Sleep(time.Duration(d))
		return next(ctx, cmd)
	}
}

func (d delay) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		time.Sleep(time.Duration(d))
		return next(ctx, cmds)
	}
}
