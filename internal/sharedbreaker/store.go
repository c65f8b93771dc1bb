package sharedbreaker

import (
	"context"
	"crypto/rand"
	"fmt"
	mathrand "math/rand/v2"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/retryplane/retryplane/internal/keyspace"
)

// Board is the fleet's breakers in Redis. Its methods are safe for concurrent use, also with other Boards on the same
// Redis: every decision is made by one atomic script, and all times are Redis's.
//
// A method that fails has not told whether its scripts ran. Reports must not be sent again after an error, and writes
// of operators count as failed.
type Board struct {
	rdb    redis.UniversalClient
	clocks clocks
	levels levels

	draw     func() float64   // in [0, 1), spreads open times
	newEpoch func() string    // id of an epoch: letters and digits
	newToken func() string    // token of a probe permit
	now      func() time.Time // this process's monotonic clock; decides nothing but whether Redis's clock jumped
}

// New returns a Board on a client. It does no I/O. The client must not repeat what failed (MaxRetries: -1), because
// reports would count twice, and must honour contexts (ContextTimeoutEnabled).
func New(rdb redis.UniversalClient) *Board {
	return &Board{rdb: rdb, draw: mathrand.Float64, newEpoch: randomID, newToken: randomID, now: time.Now}
}

// Ping returns nil if Redis answers.
func (b *Board) Ping(ctx context.Context) error {
	if err := b.rdb.Ping(ctx).Err(); err != nil {
		return fmt.Errorf("ping the store: %w", err)
	}
	return nil
}

func randomID() string {
	const length = 12 // 60 bits
	return strings.ToLower(rand.Text()[:length])
}

// clocks compares Redis's clock with this process's, group by group. Redis's clock decides everything; one that jumps
// would end open times and leases at once.
type clocks struct {
	mu   sync.Mutex
	last [keyspace.Groups]reading
}

// reading is what a call that was sent at sent told of Redis.
type reading struct {
	epoch string
	redis time.Time
	sent  time.Time
}

// tolerance is how much faster than ours Redis's clock may run between two calls: the longest budget window.
const tolerance = 10 * time.Second

// jumped takes what a call told that was sent and answered at these times of our clock, and reports whether Redis's
// clock ran forward by more than tolerance within an epoch.
func (c *clocks) jumped(group int, epoch string, redisNow, sent, answered time.Time) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	old := c.last[group]
	if sent.Before(old.sent) {
		return false // a later call told more
	}
	c.last[group] = reading{epoch, redisNow, sent}
	return epoch == old.epoch && redisNow.Sub(old.redis)-answered.Sub(old.sent) > tolerance
}

func (c *clocks) epoch(group int) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.last[group].epoch
}
