package sharedbreaker

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/retryplane/retryplane/internal/keyspace"
	"github.com/retryplane/retryplane/internal/redistest"
	"github.com/retryplane/retryplane/pkg/policy"
)

// TestSeries: every second's counters are in the step that it belongs to, whether the step is under way, was folded
// when the next one began, or long ago before a silence; and nothing else is.
func TestSeries(t *testing.T) {
	t.Parallel()
	srv := redistest.Embedded(t)
	b := New(srv.Client(t))
	want := make(map[int64]int64) // step -> requests
	for i, pause := range []time.Duration{
		time.Second, time.Second, 7 * time.Second, 4 * time.Second, 3 * time.Second, 9 * time.Second, 9 * time.Second,
		9 * time.Second, 9 * time.Second, 9 * time.Second, 9 * time.Second, 9 * time.Second, 9 * time.Second, time.Second,
	} {
		requests := int64(i + 1)
		s, err := b.Observe(t.Context(), keyspace.Group("payments"), []Report{{
			Name: "payments", Policy: policy.Default().Breaker, Display: Display{Requests: requests, Failure: 1, AttemptsPerRequest: [5]int64{0, 0, 3}},
		}})
		if err != nil {
			t.Fatal(err)
		}
		want[s[0].Now.Unix()/15] += requests
		srv.Elapse(pause)
	}
	series, err := b.Series(t.Context(), "payments", time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	if len(series.Steps) != 240 || series.Start.Unix()%15 != 0 {
		t.Fatalf("%d steps from %v", len(series.Steps), series.Start)
	}
	got := make(map[int64]int64)
	for i, d := range series.Steps {
		if d != (Display{}) {
			got[series.Start.Unix()/15+int64(i)] = d.Requests
			if d.AttemptsPerRequest[2] != 3*d.Failure {
				t.Errorf("step %d: %+v", i, d)
			}
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	short, err := b.Series(t.Context(), "payments", 31*time.Second)
	if err != nil || len(short.Steps) != 3 {
		t.Errorf("31 s are %d steps: %v", len(short.Steps), err)
	}
}

// TestSeriesOfRedis: the same on a real server, a replica's restart included; and what it takes.
func TestSeriesOfRedis(t *testing.T) {
	t.Parallel()
	srv := redistest.Real(t)
	for range 3 { // a new Board each: replicas come and go
		if _, err := New(srv.Client(t)).Observe(t.Context(), keyspace.Group("payments"), []Report{{
			Name: "payments", Policy: policy.Default().Breaker, Display: Display{Requests: 5},
		}}); err != nil {
			t.Fatal(err)
		}
	}
	s, err := New(srv.Client(t)).Series(t.Context(), "payments", time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	var sum int64
	for _, d := range s.Steps {
		sum += d.Requests
	}
	if sum != 15 {
		t.Errorf("%d requests, want 15: %+v", sum, s.Steps)
	}
	if _, err := New(srv.Client(t)).Series(t.Context(), "unknown", time.Minute); !errors.Is(err, ErrNotFound) {
		t.Errorf("unknown: %v", err)
	}
	c := srv.Client(t)
	for step := range 240 { // a full hour
		c.HSet(t.Context(), historyKey("payments"), fmt.Sprint(step), fmt.Sprintf("%d,12345,12345,12345,123,1,1,100,100,12000,300,45,1,1,123456,12345", 118_000_000+step))
	}
	size, err := c.MemoryUsage(t.Context(), historyKey("payments")).Result()
	if err != nil || size > 48<<10 {
		t.Errorf("an hour of history takes %d bytes: %v", size, err)
	}
	t.Logf("an hour of history takes %d bytes", size)
}
