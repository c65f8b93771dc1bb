package sharedbreaker

import (
	"context"
	"slices"
	"strconv"

	"github.com/retryplane/retryplane/internal/keyspace"
)

// Notices returns the numbers of groups that somebody changed, from soon until ctx ends; then the channel closes. It
// is a hint: a notice may be late or lost, so readers reconcile without it as well. Notices of one group that wait to
// be received are one, and a slow receiver delays nobody. The subscription renews itself when the connection breaks.
func (b *Board) Notices(ctx context.Context) <-chan int {
	out := make(chan int)
	go func() {
		defer close(out)
		sub := b.rdb.Subscribe(ctx, keyspace.Notice)
		defer func() { _ = sub.Close() }() // nothing is left to lose
		messages := sub.Channel()
		var waiting []int
		for {
			var to chan int // nil: nothing to send
			first := 0
			if len(waiting) > 0 {
				to, first = out, waiting[0]
			}
			select {
			case <-ctx.Done():
				return
			case m, ok := <-messages:
				if !ok {
					return
				}
				group, err := strconv.Atoi(m.Payload)
				if err == nil && group >= 0 && group < keyspace.Groups && !slices.Contains(waiting, group) {
					waiting = append(waiting, group)
				}
			case to <- first:
				waiting = waiting[1:]
			}
		}
	}()
	return out
}
