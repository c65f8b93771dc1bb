package sharedbudget

import (
	"context"
	_ "embed"
	"fmt"

	"github.com/redis/go-redis/v9"

	"github.com/retryplane/retryplane/internal/keyspace"
)

var (
	//go:embed budget.lua
	budgetLua string
	//go:embed draw.lua
	drawLua string
	//go:embed read.lua
	readLua string
)

var (
	drawScript = newScript(budgetLua + drawLua)
	readScript = newScript(budgetLua + readLua)
)

// script is a Lua script and its source.
type script struct {
	*redis.Script
	source string
}

func newScript(source string) script { return script{redis.NewScript(source), source} }

// call is one call of a script, for dependencies of one keyspace group.
type call struct {
	group int
	keys  []string
	args  []any
	err   error // a dependency is not of the group
}

// add names a dependency and its numbers, which every dependency of the call has as many of.
func (c *call) add(name string, numbers ...int64) {
	if g := keyspace.Group(name); g != c.group && c.err == nil {
		c.err = fmt.Errorf("%q belongs to group %d", name, g) // a Redis Cluster would refuse it, one Redis would not
	}
	c.keys = append(c.keys, key(name))
	for _, n := range numbers {
		c.args = append(c.args, n)
	}
}

// read runs a script that changes nothing. The reply has want numbers.
//
// It does not say so to Redis (EVALSHA_RO): the embedded store takes TIME for a write.
func (c *call) read(ctx context.Context, rdb redis.UniversalClient, s script, want int) ([]int64, error) {
	if c.err != nil {
		return nil, c.err
	}
	return numbers(s.Run(ctx, rdb, c.keys, c.args...), want)
}

// once runs a script at most once. The reply has want numbers.
func (c *call) once(ctx context.Context, rdb redis.UniversalClient, s script, want int) ([]int64, error) {
	if c.err != nil {
		return nil, c.err
	}
	cmd := c.send(ctx, rdb, "evalsha", s.Hash())
	if redis.HasErrorPrefix(cmd.Err(), "NOSCRIPT") { // nothing ran: the script is not there yet, or any more
		cmd = c.send(ctx, rdb, "eval", s.source)
	}
	return numbers(cmd, want)
}

func (c *call) send(ctx context.Context, rdb redis.UniversalClient, eval, payload string) *redis.Cmd {
	const before = 3
	args := make([]any, 0, before+len(c.keys)+len(c.args))
	args = append(args, eval, payload, len(c.keys))
	for _, k := range c.keys {
		args = append(args, k)
	}
	cmd := redis.NewCmd(ctx, append(args, c.args...)...)
	cmd.SetFirstKeyPos(before)
	_ = rdb.Process(ctx, sentOnce{cmd}) // cmd has the error too
	return cmd
}

// sentOnce is a command that go-redis does not send again. MaxRetries does not say that for a cluster: its client
// repeats what timed out up to MaxRedirects times, and a draw that was carried out and timed out would deposit twice.
type sentOnce struct{ *redis.Cmd }

// NoRetry tells the client.
func (sentOnce) NoRetry() bool { return true }

func numbers(cmd *redis.Cmd, want int) ([]int64, error) {
	reply, err := cmd.Int64Slice()
	if err != nil {
		return nil, err
	}
	if len(reply) != want {
		return nil, fmt.Errorf("a script returned %d numbers, not %d", len(reply), want)
	}
	return reply, nil
}
