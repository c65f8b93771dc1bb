package sharedbreaker

import (
	"fmt"
	"testing"
	"time"

	"github.com/retryplane/retryplane/pkg/policy"
)

// low trips at half.
func low() policy.BreakerPolicy {
	set := quick()
	set.FailureRate = 500_000
	return set
}

func ids(from, to int) []string {
	var out []string
	for i := from; i < to; i++ {
		out = append(out, fmt.Sprint("instance-", i))
	}
	return out
}

func TestOneSickInstanceKeepsTheFleetClosed(t *testing.T) {
	each(t, func(t *testing.T, r *rig) {
		s := r.observe(t, report(Standing{}, 0, 0, ids(0, 10)...))
		for range 5 {
			s = r.observe(t, report(s, 40, 0, ids(1, 10)...).with(low()))
			s = r.observe(t, report(s, 0, 60, ids(0, 1)...).with(low())) // 60 % of the traffic
			wantState(t, s, policy.Closed, 1)
		}
		if s.FailureRate != 600_000 {
			t.Errorf("failure rate %d", s.FailureRate)
		}
		r.elapse(1010 * time.Millisecond)
		s = r.observe(t, report(s, 0, 60, ids(0, 1)...).with(low()))
		if s.Instances != 10 || s.Failing != 1 {
			t.Errorf("%d of %d instances fail, want 1 of 10", s.Failing, s.Instances)
		}
	})
}

func TestQuorum(t *testing.T) {
	for _, c := range []struct {
		name             string
		healthy, failing int
		trips            bool
	}{
		{"alone", 0, 1, true},
		{"both of two", 0, 2, true},
		{"one of two", 1, 1, false},
		{"two of three", 1, 2, false},
		{"three of three", 0, 3, true},
		{"three of six", 3, 3, true},
		{"three of seven", 4, 3, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			each(t, func(t *testing.T, r *rig) {
				all := ids(0, c.healthy+c.failing)
				s := r.observe(t, report(Standing{}, 0, 0, all...))
				s = r.observe(t, report(s, 10, 0, all[:c.healthy]...).with(low()))
				s = r.observe(t, report(s, 0, 100, all[c.healthy:]...).with(low()))
				if got := s.Breaker.State == policy.Open; got != c.trips {
					t.Errorf("state %v", s.Breaker.State)
				}
			})
		})
	}
}

func TestRecoveredInstancesAreNotFailing(t *testing.T) {
	each(t, func(t *testing.T, r *rig) {
		s := r.started(t)
		s = r.observe(t, report(s, 0, 8, "a", "b", "c", "d").with(low())) // all failing, too few outcomes
		s = r.observe(t, report(s, 9, 0, "b", "c", "d").with(low()))      // healthy again
		s = r.observe(t, report(s, 0, 100, "a").with(low()))
		wantState(t, s, policy.Closed, 1)
	})
}

// A failing verdict of an older generation does not count, though its instance reports on.
func TestVerdictsBelongToAGeneration(t *testing.T) {
	each(t, func(t *testing.T, r *rig) {
		closed := r.started(t)
		s := r.recovered(t, r.tripped(t, closed))
		s = r.observe(t, report(s, 0, 0, "b", "c", "d"), report(Standing{}, 0, 0))
		late := report(closed, 0, 100, "b", "c", "d")
		r.observe(t, late)
		s = r.observe(t, report(s, 5, 0, "b", "c", "d").with(low()))
		s = r.observe(t, report(s, 0, 100, "a").with(low()))
		wantState(t, s, policy.Closed, 4)
	})
}

// Who has been silent for 30 s is no part of the fleet any more.
func TestSilentInstances(t *testing.T) {
	r := embedded(t)
	s := r.observe(t, report(Standing{}, 1, 0, ids(0, 10)...))
	r.elapse(29 * time.Second)
	s = r.observe(t, report(s, 1, 0, ids(0, 1)...))
	if s.Instances != 10 {
		t.Errorf("%d instances, want 10", s.Instances)
	}
	r.elapse(2 * time.Second)
	s = r.observe(t, report(s, 0, 100, ids(0, 1)...))
	if s.Instances != 1 {
		t.Errorf("%d instances, want 1", s.Instances)
	}
	wantState(t, s, policy.Open, 2)
	r.elapse(31 * time.Second)
	if read, _ := r.read(t); read.Instances != 0 || read.Failing != 0 || read.FailureRate != 0 {
		t.Errorf("after everybody left: %+v", read)
	}
}

// A large fleet is estimated from a sample, at a cost that does not grow with it.
func TestLargeFleet(t *testing.T) {
	r := embedded(t)
	const fleet = 5000
	all := ids(0, fleet)
	boards := []*Board{r.Board, r.board(t)}
	s := r.observe(t, report(Standing{}, 0, 0, all[0]))
	sync := func(n int) { // everybody reports, 100 at a time, through two replicas, over a second; a third fails
		for i := 0; i < n; i += 100 {
			healthy, failing := report(s, 1, 0, all[i:i+67]...), report(s, 0, 1, all[i+67:i+100]...)
			healthy.Counts[0].Success, healthy.Counts[0].Failure = 67, 33
			healthy.Instances = append(healthy.Instances, failing.Instances...)
			got, err := boards[i/100%2].Observe(t.Context(), group, []Report{healthy})
			if err != nil {
				t.Fatal(err)
			}
			s = got[0]
			r.elapse(time.Second * 100 / time.Duration(n))
		}
	}
	near := func(what string, got, want int64) {
		t.Helper()
		if tolerance := want * 30 / 100; got < want-tolerance || got > want+tolerance {
			t.Errorf("%s: %d, want about %d", what, got, want)
		}
	}
	for range 3 {
		sync(fleet)
	}
	near("instances", s.Instances, fleet)
	near("failing", s.Failing, fleet*33/100)
	wantState(t, s, policy.Closed, 1)
	if size := r.rdb.HLen(t.Context(), sampleKey(dep)).Val(); size > sampleSize {
		t.Errorf("the sample holds %d", size)
	}

	// All in one report, to a replica that knows nothing of the sample.
	got, err := r.board(t).Observe(t.Context(), group, []Report{report(s, 1, 0, all...)})
	if err != nil {
		t.Fatal(err)
	}
	near("instances", got[0].Instances, fleet)

	// The fleet shrinks: the estimate follows and ends up exact.
	for range 65 {
		sync(200)
	}
	near("instances of the small fleet", s.Instances, 200)
	for range 65 {
		s = r.observe(t, report(s, 1, 0, ids(0, 60)...))
		r.elapse(time.Second)
	}
	if s.Instances != 60 {
		t.Errorf("%d instances, want exactly 60", s.Instances)
	}

	// It trips when most of a large fleet fail, and not when a tenth does with most of the traffic.
	for range 2 {
		for i := 0; i < fleet; i += 500 {
			s = r.observe(t, report(s, 1, 0, all[i:i+450]...).with(low()))
			s = r.observe(t, report(s, 0, 10, all[i+450:i+500]...).with(low()))
		}
	}
	wantState(t, s, policy.Closed, 1)
	for i := 0; i < fleet && s.Breaker.State == policy.Closed; i += 500 {
		s = r.observe(t, report(s, 0, 500, all[i:i+500]...).with(low()))
	}
	wantState(t, s, policy.Open, 2)
}
