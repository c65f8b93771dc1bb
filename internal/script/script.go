// Package script runs Lua scripts in Redis, each call at most once.
package script

import (
	"context"

	"github.com/redis/go-redis/v9"
)

// Script is a Lua script. It is safe for concurrent use.
type Script struct {
	source string
	hash   string
}

// New returns a script. It does no I/O: Redis gets to know the source with the first call.
func New(source string) Script {
	return Script{source: source, hash: redis.NewScript(source).Hash()}
}

// Hash is the name under which Redis knows the script.
func (s Script) Hash() string { return s.hash }

// Run calls the script. What it counts and draws must not be counted and drawn twice, so a call that may have been
// carried out is never sent again, whatever the client is set to. A Redis that does not know the script, or forgot it,
// has done nothing; then the source is sent along.
func (s Script) Run(ctx context.Context, rdb redis.UniversalClient, keys []string, args ...any) *redis.Cmd {
	cmd := send(ctx, rdb, "evalsha", s.hash, keys, args)
	if redis.HasErrorPrefix(cmd.Err(), "NOSCRIPT") {
		cmd = send(ctx, rdb, "eval", s.source, keys, args)
	}
	return cmd
}

func send(ctx context.Context, rdb redis.UniversalClient, eval, payload string, keys []string, args []any) *redis.Cmd {
	const before = 3
	all := make([]any, 0, before+len(keys)+len(args))
	all = append(all, eval, payload, len(keys))
	for _, k := range keys {
		all = append(all, k)
	}
	cmd := redis.NewCmd(ctx, append(all, args...)...)
	cmd.SetFirstKeyPos(before)
	_ = rdb.Process(ctx, sentOnce{cmd}) // cmd has the error too
	return cmd
}

// sentOnce is a command that go-redis does not send again. MaxRetries does not say that for a cluster: its client
// repeats what timed out up to MaxRedirects times, and a draw that was carried out and timed out would deposit twice.
type sentOnce struct{ *redis.Cmd }

// NoRetry tells the client.
func (sentOnce) NoRetry() bool { return true }
