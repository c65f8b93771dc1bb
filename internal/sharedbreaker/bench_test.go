package sharedbreaker

import (
	"fmt"
	"strings"
	"testing"

	"github.com/retryplane/retryplane/internal/redistest"
	"github.com/retryplane/retryplane/pkg/policy"
)

// One flush of a replica: ten instances report each of n busy dependencies of a group. What Redis itself spends of it
// is reported as redis-us/dep.
func BenchmarkObserve(b *testing.B) {
	for _, n := range []int{1, 10, 50} {
		b.Run(fmt.Sprintf("dependencies=%d", n), func(b *testing.B) {
			r := newRig(b, redistest.Real(b))
			reports := make([]Report, n)
			for i := range reports {
				reports[i] = report(Standing{}, 1, 0, ids(0, 10)...)
				reports[i].Name = fmt.Sprint("d", i)
			}
			standings, err := r.Observe(b.Context(), group, reports)
			if err != nil {
				b.Fatal(err)
			}
			for i, s := range standings {
				reports[i] = report(s, 95, 5, ids(0, 10)...)
				reports[i].Name = s.Name
			}
			r.benchmark(b, n, func() error {
				_, err := r.Observe(b.Context(), group, reports)
				return err
			})
		})
	}
}

func BenchmarkRead(b *testing.B) {
	const n = 50
	r := newRig(b, redistest.Real(b))
	reports := make([]Report, n)
	for i := range reports {
		reports[i] = report(Standing{}, 1, 0, ids(0, 10)...)
		reports[i].Name = fmt.Sprint("d", i)
	}
	if _, err := r.Observe(b.Context(), group, reports); err != nil {
		b.Fatal(err)
	}
	r.benchmark(b, n, func() error {
		_, err := r.Read(b.Context(), group)
		return err
	})
}

// Nothing is due.
func BenchmarkAdvance(b *testing.B) {
	r := newRig(b, redistest.Real(b))
	r.started(b)
	r.benchmark(b, 1, func() error {
		_, err := r.Advance(b.Context(), group, func(string) policy.BreakerPolicy { return quick() })
		return err
	})
}

func (r *rig) benchmark(b *testing.B, dependencies int, fn func() error) {
	b.Helper()
	if err := r.rdb.ConfigResetStat(b.Context()).Err(); err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		if err := fn(); err != nil {
			b.Fatal(err)
		}
	}
	stats := r.rdb.Info(b.Context(), "commandstats").Val()
	var calls, usec int64
	for _, name := range []string{"evalsha", "eval"} {
		var c, u int64
		if _, rest, ok := strings.Cut(stats, "cmdstat_"+name+":"); ok {
			_, _ = fmt.Sscanf(rest, "calls=%d,usec=%d", &c, &u)
		}
		calls, usec = calls+c, usec+u
	}
	if calls > 0 {
		b.ReportMetric(float64(usec)/float64(calls)/float64(dependencies), "redis-us/dep")
	}
}
