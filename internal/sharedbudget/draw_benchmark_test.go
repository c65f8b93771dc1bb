package sharedbudget

import (
	"fmt"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/retryplane/retryplane/internal/redistest"
	"github.com/retryplane/retryplane/pkg/policy"
)

// BenchmarkDraw measures a call and, as redis-us/dependency, the part of it that Redis is busy for each dependency.
func BenchmarkDraw(b *testing.B) {
	for _, n := range []int{1, 16, 128} {
		b.Run(fmt.Sprintf("dependencies=%d", n), func(b *testing.B) {
			c := redistest.Real(b).Client(b)
			l := New(c)
			var draws []Draw
			for _, name := range names(5, n) {
				draws = append(draws, Draw{Name: name, Deposits: 10, Want: 1, Budget: policy.Default().Budget})
			}
			b.ReportAllocs()
			for b.Loop() {
				if _, err := l.Draw(b.Context(), 5, draws); err != nil {
					b.Fatal(err)
				}
			}
			b.StopTimer()
			b.ReportMetric(redisMicros(b, c, "evalsha")/float64(b.N*n), "redis-us/dependency")
		})
	}
}

// redisMicros is how long the server has been busy with a command since it started.
func redisMicros(b *testing.B, c *redis.Client, command string) float64 {
	b.Helper()
	info, err := c.Info(b.Context(), "commandstats").Result()
	if err != nil {
		b.Fatal(err)
	}
	_, stat, _ := strings.Cut(info, "cmdstat_"+command+":")
	var calls, micros int64
	if _, err := fmt.Sscanf(stat, "calls=%d,usec=%d,", &calls, &micros); err != nil {
		b.Fatalf("%s in %q: %v", command, info, err)
	}
	return float64(micros)
}
