package sharedbudget

import (
	"context"
	_ "embed"
	"fmt"

	"github.com/redis/go-redis/v9"

	"github.com/retryplane/retryplane/internal/keyspace"
	"github.com/retryplane/retryplane/internal/script"
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
	drawScript = script.New(budgetLua + drawLua)
	readScript = script.New(budgetLua + readLua)
)

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

// run runs a script, at most once. The reply has want numbers.
func (c *call) run(ctx context.Context, rdb redis.UniversalClient, s script.Script, want int) ([]int64, error) {
	if c.err != nil {
		return nil, c.err
	}
	return numbers(s.Run(ctx, rdb, c.keys, c.args...), want)
}

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
