package sharedbreaker

import (
	"testing"
	"time"

	"github.com/retryplane/retryplane/pkg/policy"
)

func TestIdleBreakerBecomesHalfOpen(t *testing.T) {
	each(t, func(t *testing.T, r *rig) {
		open := r.tripped(t, r.started(t))
		if r.Embedded != nil && len(r.advance(t)) != 0 {
			t.Fatal("too early")
		}
		r.elapse(101 * time.Millisecond)
		read, _ := r.read(t)
		if read.Breaker != open.Breaker || read.Breaker.At(read.Now).State != policy.HalfOpen {
			t.Errorf("before anybody commits, Read returns %+v", read.Breaker)
		}
		made := r.advance(t)
		if len(made) != 1 || made[0].Cause != policy.CauseProbe || made[0].To != policy.HalfOpen {
			t.Fatalf("made %+v", made)
		}
		if again := r.advance(t); len(again) != 0 {
			t.Errorf("made again: %+v", again)
		}
		read, _ = r.read(t)
		wantState(t, read, policy.HalfOpen, 3)
		if log := r.log(t); len(log) != 2 || log[0] != made[0] {
			t.Errorf("log is %+v, Advance told %+v", log, made)
		}
	})
}

func TestIdleBreakerNeverCloses(t *testing.T) {
	r := embedded(t)
	r.tripped(t, r.started(t))
	for range 23 {
		r.elapse(time.Hour)
		r.advance(t)
		read, _ := r.read(t)
		wantState(t, read, policy.HalfOpen, 3)
	}
}

func TestTwoReplicasAdvance(t *testing.T) {
	each(t, func(t *testing.T, r *rig) {
		r.tripped(t, r.started(t))
		r.elapse(101 * time.Millisecond)
		other := r.board(t)
		interfere(r.Board, commitScript, func() {
			_, err := other.Observe(t.Context(), group, []Report{asking(report(Standing{}, 0, 0), "a")})
			if err != nil {
				t.Error(err)
			}
		})
		if made := r.advance(t); len(made) != 0 {
			t.Errorf("made %+v, but the other replica was faster", made)
		}
		if got := causes(r.log(t)); got != "trip probe" {
			t.Errorf("log: %s", got)
		}
	})
}

// ramping takes dep through an episode that is long enough for a ramp.
func (r *rig) ramping(t *testing.T, set policy.BreakerPolicy) Standing {
	t.Helper()
	half := r.probing(t, r.tripped(t, r.started(t)), "a", "b")
	var s Standing
	for _, p := range granted(half) {
		s = r.observe(t, result(half, p, policy.Success).with(set))
	}
	wantState(t, s, policy.HalfOpen, 3)
	if !s.Breaker.Ramping || len(s.Transitions) != 0 {
		t.Fatalf("no ramp: %+v", s)
	}
	return s
}

func steep() policy.BreakerPolicy {
	set := quick()
	set.RampAfter = 0
	return set
}

func TestRampUp(t *testing.T) {
	each(t, func(t *testing.T, r *rig) {
		set := steep()
		s := r.ramping(t, set)
		if got := s.Breaker.Admit(s.Now, set); got != 100_000 {
			t.Errorf("the ramp begins with %d", got)
		}
		r.elapse(101 * time.Millisecond)
		s = r.observe(t, report(s, 100, 3, "a", "b", "c", "d").with(set))
		wantState(t, s, policy.HalfOpen, 3)
		r.elapse(200 * time.Millisecond)
		s = r.observe(t, report(s, 100, 3, "a", "b", "c", "d").with(set))
		wantState(t, s, policy.Closed, 4)
		if got := causes(r.log(t)); got != "trip probe recovered" {
			t.Errorf("log: %s", got)
		}
	})
}

func TestIdleRampCloses(t *testing.T) {
	each(t, func(t *testing.T, r *rig) {
		r.ramping(t, steep())
		if r.elapse(299 * time.Millisecond); r.Embedded != nil && len(r.advance(t)) != 0 {
			t.Fatal("too early")
		}
		r.elapse(2 * time.Millisecond)
		made := r.advance(t)
		if len(made) != 1 || made[0].Cause != policy.CauseRecovered {
			t.Fatalf("made %+v", made)
		}
		read, _ := r.read(t)
		wantState(t, read, policy.Closed, 4)
	})
}

func TestReopenInRamp(t *testing.T) {
	each(t, func(t *testing.T, r *rig) {
		set := steep()
		set.RampStep = 5 * time.Second
		ramp := r.ramping(t, set)
		// Failures from probing and from before are another tag's, nine of the ramp's own are too few.
		s := r.observe(t, report(ramp, 0, 9, "a", "b", "c", "d").with(set))
		wantState(t, s, policy.HalfOpen, 3)
		s = r.observe(t, report(ramp, 0, 1, "a", "b", "c", "d").with(set))
		wantState(t, s, policy.Open, 4)
		if s.Breaker.Reopenings != 1 || s.Breaker.Openings != 2 || !s.Breaker.Episode.Equal(ramp.Breaker.Episode) {
			t.Errorf("got %+v", s.Breaker)
		}
		if got := causes(r.log(t)); got != "trip probe reopen" {
			t.Errorf("log: %s", got)
		}
	})
}

func TestReopenInRampNeedsQuorum(t *testing.T) {
	each(t, func(t *testing.T, r *rig) {
		set := steep()
		set.RampStep = 5 * time.Second
		ramp := r.ramping(t, set)
		r.observe(t, report(ramp, 1, 0, "b", "c", "d").with(set))
		s := r.observe(t, report(ramp, 0, 50, "a").with(set))
		wantState(t, s, policy.HalfOpen, 3)
	})
}

func TestOpenTimes(t *testing.T) {
	r := embedded(t)
	set := quick()
	set.OpenMax = 500 * time.Millisecond
	s := r.started(t)
	s = r.observe(t, report(s, 0, 40, "a", "b", "c", "d").with(set))
	for i, want := range []time.Duration{100, 100, 100, 200, 400, 500, 500} {
		if got := s.Breaker.Until.Sub(s.Breaker.Since); got != want*time.Millisecond {
			t.Fatalf("opening %d lasts %v, want %v ms", i+1, got, int(want))
		}
		r.elapse(s.Breaker.Remaining(s.Now))
		half := r.observe(t, asking(report(s, 0, 0), "a", "b", "c", "d", "e").with(set))
		for _, p := range granted(half)[:4] {
			s = r.observe(t, result(half, p, policy.Failure).with(set))
		}
		r.elapse(time.Second)
	}
	// Closed for HealthyReset, it starts over.
	half := r.observe(t, asking(report(s, 0, 0), "a", "b").with(set))
	for _, p := range granted(half) {
		s = r.observe(t, result(half, p, policy.Success).with(quick()))
	}
	for s.Breaker.State != policy.Closed {
		r.elapse(time.Second)
		s = r.observe(t, report(s, 0, 0, "a"))
	}
	r.elapse(time.Minute)
	s = r.observe(t, report(s, 0, 40, "a", "b", "c", "d").with(set))
	if got := s.Breaker.Until.Sub(s.Breaker.Since); got != 100*time.Millisecond || s.Breaker.Openings != 1 {
		t.Errorf("after a minute of health it opens for %v, opening %d", got, s.Breaker.Openings)
	}
}

func TestRateBeforeTheEpisode(t *testing.T) {
	r := embedded(t)
	s := r.started(t)
	for range 40 {
		r.elapse(time.Second)
		s = r.observe(t, report(s, 50, 0, "a", "b", "c", "d"))
	}
	r.elapse(time.Second)
	s = r.observe(t, report(s, 0, 5000, "a", "b", "c", "d"))
	wantState(t, s, policy.Open, 2)
	if got, want := s.Breaker.Rate, int64((29*50+5000)*1000/30); got != want {
		t.Errorf("rate %d per 1,000 s, want %d", got, want)
	}
}

func TestReset(t *testing.T) {
	each(t, func(t *testing.T, r *rig) {
		if _, err := r.Reset(t.Context(), dep, "alice"); !isNotFound(err) {
			t.Errorf("unknown dependency: %v", err)
		}
		open := r.tripped(t, r.started(t))
		s, err := r.Reset(t.Context(), dep, "alice")
		if err != nil {
			t.Fatal(err)
		}
		wantState(t, s, policy.Closed, 3)
		if s.Breaker.Openings != 0 || len(s.Transitions) != 1 || s.Transitions[0].Actor != "alice" ||
			s.Transitions[0].From != policy.Open || s.Transitions[0].Cause != policy.CauseReset {
			t.Errorf("got %+v", s)
		}
		wantState(t, r.observe(t, report(open, 0, 100, "a", "b", "c", "d")), policy.Closed, 3)
		r.elapse(101 * time.Millisecond)
		if made := r.advance(t); len(made) != 0 {
			t.Errorf("the old open time is over: %+v", made)
		}
		if got := causes(r.log(t)); got != "trip reset" {
			t.Errorf("log: %s", got)
		}
	})
}

func TestReadingChangesNothing(t *testing.T) {
	each(t, func(t *testing.T, r *rig) {
		dump := func() map[string]string {
			keys, err := r.rdb.Keys(t.Context(), "*").Result()
			if err != nil {
				t.Fatal(err)
			}
			out := make(map[string]string)
			for _, k := range keys {
				out[k] = r.rdb.Dump(t.Context(), k).Val()
			}
			return out
		}
		if r.Embedded != nil {
			dump = func() map[string]string { return map[string]string{"": r.Embedded.Dump()} }
		}
		look := func() {
			if _, err := r.Read(t.Context(), group); err != nil {
				t.Fatal(err)
			}
			if _, err := r.Transitions(t.Context(), group, "", 10, ""); err != nil {
				t.Fatal(err)
			}
		}
		empty := dump()
		look()
		equal(t, dump(), empty)
		half := r.probing(t, r.tripped(t, r.started(t)), "a")
		before := dump()
		for range 20 {
			look()
		}
		equal(t, dump(), before)
		s := r.observe(t, asking(report(half, 0, 0), "b", "c", "d", "e", "f"))
		if n := len(granted(s)); n != 4 {
			t.Errorf("%d permits left, want 4", n)
		}
	})
}
