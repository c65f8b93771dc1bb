package sharedbreaker

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/retryplane/retryplane/pkg/policy"
)

func TestObserveRegisters(t *testing.T) {
	each(t, func(t *testing.T, r *rig) {
		s := r.observe(t, report(Standing{}, 3, 1, "a"))
		wantState(t, s, policy.Closed, 1)
		if s.Epoch == "" || s.Instances != 1 || s.Failing != 0 || s.FailureRate != 0 {
			t.Errorf("got %+v", s) // what was counted under no generation is for display only
		}
		read, ok := r.read(t)
		if !ok {
			t.Fatal("Read does not list it")
		}
		if got, want := read.Window, (Display{Requests: 4, Attempts: 4, Success: 3, Failure: 1}); got != want {
			t.Errorf("window is %+v, want %+v", got, want)
		}
		if !read.LastReport.Equal(s.Now) || read.Breaker != s.Breaker || read.Epoch != s.Epoch {
			t.Errorf("Read returned %+v, Observe %+v", read, s)
		}
	})
}

// The times of a decision are Redis's, whatever the replica's clock says.
func TestObserveUsesNoClientClock(t *testing.T) {
	for _, skew := range []time.Duration{-10 * time.Minute, 0, 10 * time.Minute} {
		t.Run(skew.String(), func(t *testing.T) {
			r := embedded(t)
			r.now = func() time.Time { return r.clock().Add(skew) }
			s := r.tripped(t, r.started(t))
			if got, want := s.Breaker.Until.Sub(s.Now), 100*time.Millisecond; got != want {
				t.Errorf("open for %v, want %v", got, want)
			}
			r.elapse(99 * time.Millisecond)
			s = r.observe(t, asking(report(s, 0, 0), "a"))
			wantState(t, s, policy.Open, 2)
			r.elapse(time.Millisecond)
			s = r.observe(t, asking(report(s, 0, 0), "a"))
			wantState(t, s, policy.HalfOpen, 3)
		})
	}
}

func TestTripNeedsVolumeAndRate(t *testing.T) {
	each(t, func(t *testing.T, r *rig) {
		s := r.started(t)
		s = r.observe(t, report(s, 1, 18, "a", "b", "c", "d"))
		wantState(t, s, policy.Closed, 1) // 19 outcomes
		s = r.observe(t, report(s, 11, 0, "a", "b", "c", "d"))
		wantState(t, s, policy.Closed, 1)
		if s.FailureRate != 600_000 {
			t.Errorf("failure rate %d, want 600000", s.FailureRate)
		}
		s = r.observe(t, report(s, 0, 170, "a", "b", "c", "d"))
		wantState(t, s, policy.Open, 2) // 188 of 200
		if s.Breaker.Reason != policy.ReasonFailureRate || len(s.Transitions) != 1 || s.Transitions[0].Cause != policy.CauseTrip {
			t.Errorf("got %+v", s)
		}
		log := r.log(t)
		if len(log) != 1 || log[0] != s.Transitions[0] {
			t.Errorf("log is %+v, Observe told %+v", log, s.Transitions)
		}
	})
}

func TestThrottledAndIgnoredCountForDisplayOnly(t *testing.T) {
	each(t, func(t *testing.T, r *rig) {
		s := r.started(t)
		rep := report(s, 0, 0, "a", "b", "c", "d")
		rep.Display = Display{Attempts: 100, Throttled: 70, Ignored: 30}
		wantState(t, r.observe(t, rep), policy.Closed, 1)
		if read, _ := r.read(t); read.Window.Throttled != 70 || read.Window.Ignored != 30 {
			t.Errorf("window is %+v", read.Window)
		}
	})
}

// Results of calls that were admitted before a transition tell nothing about what came after it.
func TestLateResults(t *testing.T) {
	for _, c := range []struct {
		name             string
		success, failure int64
	}{
		{"success", 100, 0},
		{"failure", 0, 100},
	} {
		t.Run(c.name, func(t *testing.T) {
			each(t, func(t *testing.T, r *rig) {
				closed := r.started(t)
				open := r.tripped(t, closed)
				late := r.observe(t, report(closed, c.success, c.failure, "a", "b", "c", "d"))
				wantState(t, late, policy.Open, 2)
				if late.Breaker != open.Breaker || len(late.Transitions) > 0 {
					t.Errorf("open: %+v became %+v", open.Breaker, late.Breaker)
				}
				half := r.probing(t, open, "a")
				late = r.observe(t, report(closed, c.success, c.failure, "a", "b", "c", "d"),
					Report{Name: "other", Policy: quick()})
				if late.Breaker != half.Breaker {
					t.Errorf("half-open: %+v became %+v", half.Breaker, late.Breaker)
				}
				if read, _ := r.read(t); read.Window.Requests != 40+200 {
					t.Errorf("display counters hold %d requests, want all 240", read.Window.Requests)
				}
			})
		})
	}
}

func TestFailuresBeforeAnOutageDoNotTripAgain(t *testing.T) {
	each(t, func(t *testing.T, r *rig) {
		closed := r.started(t)
		s := r.recovered(t, r.tripped(t, closed))
		wantState(t, r.observe(t, report(closed, 0, 1000, "a", "b", "c", "d")), policy.Closed, s.Breaker.Generation)
		if got := causes(r.log(t)); got != "trip probe recovered" {
			t.Errorf("log: %s", got)
		}
	})
}

// recovered takes an open breaker through a round of probes to closed.
func (r *rig) recovered(t testing.TB, s Standing) Standing {
	t.Helper()
	half := r.probing(t, s, "a", "b")
	for _, p := range granted(half) {
		s = r.observe(t, result(half, p, policy.Success))
	}
	wantState(t, s, policy.Closed, half.Breaker.Generation+1)
	return s
}

func TestNewInstancesWhileOpen(t *testing.T) {
	each(t, func(t *testing.T, r *rig) {
		open := r.tripped(t, r.started(t))
		for i := range 50 {
			rep := report(Standing{}, 1, 1, fmt.Sprint("new-", i))
			rep.Display = Display{}
			s := r.observe(t, rep)
			if s.Breaker != open.Breaker {
				t.Fatalf("%+v became %+v", open.Breaker, s.Breaker)
			}
		}
		if read, _ := r.read(t); read.Window.Requests != 40 || read.Breaker != open.Breaker {
			t.Errorf("got %+v", read)
		}
	})
}

func TestSimultaneousFailures(t *testing.T) {
	each(t, func(t *testing.T, r *rig) {
		s := r.started(t)
		other := r.board(t)
		set := quick()
		set.MinAttempts = 8
		var mu sync.Mutex
		var made []Transition
		var wg sync.WaitGroup
		for i := range 8 {
			b := r.Board
			if i%2 == 1 {
				b = other
			}
			wg.Go(func() {
				got, err := b.Observe(t.Context(), group, []Report{report(s, 0, 1, "a", "b", "c", "d").with(set)})
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				defer mu.Unlock()
				made = append(made, got[0].Transitions...)
			})
		}
		wg.Wait()
		read, _ := r.read(t)
		wantState(t, read, policy.Open, 2)
		if len(made) != 1 || len(r.log(t)) != 1 {
			t.Errorf("%d transitions were told, %d logged; want one", len(made), len(r.log(t)))
		}
		if left := read.Breaker.Remaining(read.Breaker.Since); left != set.OpenFor {
			t.Errorf("it opened for %v, want %v", left, set.OpenFor)
		}
		if read.Window.Failure != 8 {
			t.Errorf("counted %d failures, want 8", read.Window.Failure)
		}
	})
}

// Two replicas see the trip at the same time: one commits it, the other adopts it.
func TestLostCommit(t *testing.T) {
	each(t, func(t *testing.T, r *rig) {
		s := r.started(t)
		other := r.board(t)
		interfere(r.Board, commitScript, func() {
			got, err := other.Observe(t.Context(), group, []Report{report(s, 0, 40, "a", "b", "c", "d")})
			if err != nil || len(got[0].Transitions) != 1 {
				t.Errorf("the other replica: %+v, %v", got, err)
			}
		})
		lost := r.observe(t, report(s, 0, 40, "a", "b", "c", "d"))
		wantState(t, lost, policy.Open, 2)
		if len(lost.Transitions) != 0 || len(r.log(t)) != 1 {
			t.Errorf("told %d transitions, logged %d; want 0 and 1", len(lost.Transitions), len(r.log(t)))
		}
	})
}

// A success that arrives between the evidence and the commit ends the run of failures: the commit must not go by the
// old count.
func TestStaleCountDoesNotTrip(t *testing.T) {
	each(t, func(t *testing.T, r *rig) {
		s := r.started(t)
		other := r.board(t)
		interfere(r.Board, commitScript, func() {
			if _, err := other.Observe(t.Context(), group, []Report{report(s, 1, 0, "a")}); err != nil {
				t.Error(err)
			}
		})
		s = r.observe(t, report(s, 0, 10, "a", "b", "c", "d"))
		wantState(t, s, policy.Closed, 1)
		if n := len(r.log(t)); n != 0 {
			t.Errorf("%d transitions", n)
		}
	})
}

func TestConsecutiveFailures(t *testing.T) {
	r := embedded(t)
	set := quick()
	set.ConsecutiveFailures = 5
	s := r.observe(t, report(Standing{}, 0, 0, "a"))
	for i := range 4 {
		s = r.observe(t, report(s, 0, 1, "a").with(set))
		wantState(t, s, policy.Closed, 1)
		if i == 1 { // a success ends the run
			r.observe(t, report(s, 1, 0, "a").with(set))
		}
		r.elapse(19 * time.Second)
	}
	for range 2 {
		s = r.observe(t, report(s, 0, 1, "a").with(set))
		wantState(t, s, policy.Closed, 1)
		r.elapse(19 * time.Second)
	}
	s = r.observe(t, report(s, 0, 1, "a").with(set))
	wantState(t, s, policy.Open, 2)
	if s.Breaker.Reason != policy.ReasonConsecutive {
		t.Errorf("reason %q", s.Breaker.Reason)
	}
}

// However the outcomes are spread over time, the span that the store returns is the one that the rules look at.
func TestSpanReachesBack(t *testing.T) {
	r := embedded(t)
	s := r.started(t)
	for range 19 {
		r.elapse(1400 * time.Millisecond)
		s = r.observe(t, report(s, 0, 1, "a", "b", "c", "d").with(withoutRun()))
		wantState(t, s, policy.Closed, 1)
	}
	r.elapse(1400 * time.Millisecond)
	s = r.observe(t, report(s, 0, 1, "a", "b", "c", "d").with(withoutRun())) // 20 in 26.6 s
	wantState(t, s, policy.Open, 2)

	s = r.recovered(t, s)
	for range 40 { // 18 in 30 s never are enough
		r.elapse(1700 * time.Millisecond)
		s = r.observe(t, report(s, 0, 1, "a", "b", "c", "d").with(withoutRun()))
		wantState(t, s, policy.Closed, 4)
	}
}

func withoutRun() policy.BreakerPolicy {
	set := quick()
	set.ConsecutiveFailures = 0
	return set
}

func TestSlowCalls(t *testing.T) {
	each(t, func(t *testing.T, r *rig) {
		s := r.started(t)
		set := quick()
		set.SlowCall, set.SlowRate = time.Second, 500_000
		rep := report(s, 0, 1, "a", "b", "c", "d").with(set)
		rep.Counts[0].Success, rep.Counts[0].Slow = 39, 30
		s = r.observe(t, rep)
		wantState(t, s, policy.Open, 2)
		if s.Breaker.Reason != policy.ReasonSlow {
			t.Errorf("reason %q", s.Breaker.Reason)
		}
	})
}

func TestManyReportsInOneCall(t *testing.T) {
	each(t, func(t *testing.T, r *rig) {
		reports := make([]Report, 300)
		for i := range reports {
			reports[i] = report(Standing{}, 1, 0, "a")
			reports[i].Name = fmt.Sprint("d", i) // the group does not matter to one Redis
		}
		got, err := r.Observe(t.Context(), group, reports)
		if err != nil {
			t.Fatal(err)
		}
		for i, s := range got {
			if s.Name != reports[i].Name || s.Breaker.Generation != 1 {
				t.Fatalf("standing %d is %+v", i, s)
			}
		}
	})
}

// Whatever instances send, the store stays readable.
func TestAbsurdReports(t *testing.T) {
	each(t, func(t *testing.T, r *rig) {
		s := r.started(t)
		rep := report(s, 1, 1, "x,y", `"`, "é", "", "\x00\xff")
		rep.Display = Display{Requests: 1 << 62, LatencySumMS: 1 << 62, Ignored: -5}
		rep.Counts = append(rep.Counts, Counts{Epoch: `a"b,c`, Generation: -1, Success: -1, Failure: 1 << 62})
		for range 200 {
			s = r.observe(t, rep)
		}
		r.elapse(time.Second)
		s = r.observe(t, report(s, 1, 1, "a"))
		wantState(t, s, policy.Closed, 1)
		read, ok := r.read(t)
		if !ok || read.Window.Requests <= 0 || read.Window.Ignored != 0 {
			t.Errorf("got %+v", read)
		}
	})
}
