package sharedbreaker

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/retryplane/retryplane/pkg/policy"
)

func TestPermitsAreBounded(t *testing.T) {
	each(t, func(t *testing.T, r *rig) {
		var ids []string
		for i := range 100 {
			ids = append(ids, fmt.Sprint("i-", i))
		}
		s := r.probing(t, r.tripped(t, r.started(t)), ids...)
		if len(s.Permits) != len(ids) || len(granted(s)) != 5 {
			t.Fatalf("%d answers, %d permits; want 100 and 5", len(s.Permits), len(granted(s)))
		}
		for i, p := range s.Permits {
			if p.Instance != ids[i] {
				t.Fatalf("answer %d is for %s", i, p.Instance)
			}
			if p.Token == "" && (p.Hold < 50*time.Millisecond || p.Hold > time.Second) || p.Token != "" && p.Lease != 30*time.Second {
				t.Fatalf("answer %d is %+v", i, p)
			}
		}
		// A verdict takes the place of its permit: four are out, one is in.
		half := s
		s = r.observe(t, asking(result(half, granted(half)[0], policy.Success), ids...))
		if n := len(granted(s)); n != 0 {
			t.Errorf("%d further permits", n)
		}
		s = r.observe(t, result(half, granted(half)[1], policy.Success))
		wantState(t, s, policy.Closed, 4)
	})
}

func TestPermitsInTheFleet(t *testing.T) {
	each(t, func(t *testing.T, r *rig) {
		open := r.tripped(t, r.started(t))
		r.elapse(101 * time.Millisecond)
		asks := make(chan string, 50*8)
		for i := range 50 * 8 {
			asks <- fmt.Sprint("i-", i%50)
		}
		close(asks)
		var mu sync.Mutex
		permits := make(map[string]bool)
		var wg sync.WaitGroup
		for _, b := range []*Board{r.Board, r.board(t), r.board(t)} {
			for range 5 {
				wg.Go(func() {
					for id := range asks {
						got, err := b.Observe(t.Context(), group, []Report{asking(report(open, 0, 0), id)})
						if err != nil {
							t.Error(err)
							return
						}
						mu.Lock()
						for _, p := range granted(got[0]) {
							permits[p.Token] = true
						}
						mu.Unlock()
					}
				})
			}
		}
		wg.Wait()
		if len(permits) != 5 {
			t.Errorf("%d permits in the fleet, want 5", len(permits))
		}
		if got := causes(r.log(t)); got != "trip probe" {
			t.Errorf("log: %s", got)
		}
	})
}

func TestProbeHolderDies(t *testing.T) {
	each(t, func(t *testing.T, r *rig) {
		short := func(rep Report) Report {
			rep.ProbeLease = 400 * time.Millisecond
			return rep
		}
		open := r.tripped(t, r.started(t))
		r.elapse(101 * time.Millisecond)
		ids := []string{"a", "b", "c", "d", "e"}
		half := r.observe(t, short(asking(report(open, 0, 0), ids...)))
		if n := len(granted(half)); n != 5 {
			t.Fatalf("%d permits, want 5", n)
		}
		s := r.observe(t, short(asking(report(half, 0, 0), "f")))
		if n := len(granted(s)); n != 0 {
			t.Fatalf("%d permits while all are out", n)
		}
		if hold := s.Permits[0].Hold; hold > 400*time.Millisecond {
			t.Errorf("hold for %v, but the leases end before", hold)
		}
		r.elapse(401 * time.Millisecond)
		s = r.observe(t, short(asking(report(half, 0, 0), "f", "g")))
		if n := len(granted(s)); n != 2 {
			t.Fatalf("%d permits after the leases, want 2", n)
		}
		// What the dead holder still sends counts for nothing.
		r.observe(t, result(half, granted(half)[0], policy.Success), Report{Name: "x", Policy: quick()})
		late := r.observe(t, result(half, granted(half)[1], policy.Success))
		wantState(t, late, policy.HalfOpen, 3)
	})
}

func TestIgnoredProbeGivesItsPermitBack(t *testing.T) {
	for _, o := range []policy.Outcome{policy.Ignored, policy.Throttled} {
		t.Run(o.String(), func(t *testing.T) {
			each(t, func(t *testing.T, r *rig) {
				half := r.probing(t, r.tripped(t, r.started(t)), "a", "b", "c", "d", "e", "f")
				s := r.observe(t, result(half, granted(half)[0], o))
				if s.Breaker != half.Breaker {
					t.Errorf("%+v became %+v", half.Breaker, s.Breaker)
				}
				s = r.observe(t, asking(report(half, 0, 0), "a", "f"))
				if n := len(granted(s)); n != 1 {
					t.Errorf("%d permits, want the one that came back", n)
				}
			})
		})
	}
}

func TestFailedProbes(t *testing.T) {
	each(t, func(t *testing.T, r *rig) {
		half := r.probing(t, r.tripped(t, r.started(t)), "a", "b", "c", "d", "e")
		var s Standing
		for i, p := range granted(half)[:4] {
			s = r.observe(t, result(half, p, policy.Failure))
			if i < 3 {
				wantState(t, s, policy.HalfOpen, 3)
			}
		}
		wantState(t, s, policy.Open, 4) // 4 of 5 failed: 2 successes are out of reach
		if s.Breaker.Reason != policy.ReasonProbes || s.Breaker.Reopenings != 1 || s.Breaker.Episode != half.Breaker.Episode {
			t.Errorf("got %+v", s.Breaker)
		}
		if got := causes(r.log(t)); got != "trip probe reopen" {
			t.Errorf("log: %s", got)
		}
		// Who failed gets no permit of the next round within a second, who did not gets one.
		s = r.probing(t, s, "a", "e", "a")
		if p := s.Permits; p[0].Token != "" || p[1].Token == "" || p[2].Token != "" || p[0].Hold > time.Second {
			t.Errorf("got %+v", p)
		}
		r.elapse(time.Second)
		s = r.observe(t, asking(report(s, 0, 0), "a"))
		if len(granted(s)) != 1 {
			t.Errorf("blocked for more than a second: %+v", s.Permits)
		}
	})
}

// A result needs the token, the epoch and the generation of its permit.
func TestForgedProbes(t *testing.T) {
	each(t, func(t *testing.T, r *rig) {
		half := r.probing(t, r.tripped(t, r.started(t)), "a", "b", "c", "d", "e")
		older, elsewhere := half, half
		older.Breaker.Generation--
		elsewhere.Epoch = "elsewhere"
		p := granted(half)[0]
		for _, rep := range []Report{
			result(half, Permit{Token: "forged", Instance: "a"}, policy.Success),
			result(older, p, policy.Success),
			result(elsewhere, p, policy.Success),
			result(half, p, policy.Success),
			result(half, p, policy.Success), // once only
		} {
			s := r.observe(t, rep)
			wantState(t, s, policy.HalfOpen, 3)
		}
		s := r.observe(t, result(half, granted(half)[1], policy.Success))
		wantState(t, s, policy.Closed, 4)
	})
}

func TestQuietDependencyIsProbedOnce(t *testing.T) {
	r := embedded(t)
	set := quick()
	set.ConsecutiveFailures = 3
	s := r.observe(t, report(Standing{}, 0, 0, "a"))
	for range 3 {
		r.elapse(10 * time.Second)
		s = r.observe(t, report(s, 0, 1, "a").with(set))
	}
	wantState(t, s, policy.Open, 2)
	if s.Breaker.Rate != 100 {
		t.Errorf("normal traffic is %d per 1,000 s, want 100", s.Breaker.Rate)
	}

	r.elapse(10 * time.Second)
	half := r.observe(t, asking(report(s, 0, 0), "a", "b").with(set))
	if n := len(granted(half)); n != 1 {
		t.Fatalf("%d permits, want 1", n)
	}
	s = r.observe(t, result(half, granted(half)[0], policy.Failure).with(set))
	wantState(t, s, policy.Open, 4) // one failed probe is enough to reopen

	r.elapse(10 * time.Second)
	half = r.observe(t, asking(report(s, 0, 0), "a").with(set))
	rep := result(half, granted(half)[0], policy.Success)
	rep.Policy = set
	rep.Policy.Ramp = nil
	s = r.observe(t, rep)
	wantState(t, s, policy.Closed, 6) // and one successful one to close
}

func TestAsksThatNeedNoPermit(t *testing.T) {
	each(t, func(t *testing.T, r *rig) {
		s := r.started(t)
		s = r.observe(t, asking(report(s, 0, 0), "a"))
		if p := s.Permits[0]; p.Token != "" || p.Hold != 0 {
			t.Errorf("closed: %+v", p)
		}
		set := quick()
		set.OpenFor = 5 * time.Second
		s = r.observe(t, report(s, 0, 40, "a", "b", "c", "d").with(set))
		s = r.observe(t, asking(report(s, 0, 0), "a"))
		if p := s.Permits[0]; p.Token != "" || p.Hold != s.Breaker.Until.Sub(s.Now) {
			t.Errorf("open: %+v", p)
		}
		wantState(t, s, policy.Open, 2)
	})
}

func TestForceOpenStopsProbing(t *testing.T) {
	each(t, func(t *testing.T, r *rig) {
		half := r.probing(t, r.tripped(t, r.started(t)), "a")
		other := r.board(t)
		force := func() {
			o := policy.Override{Mode: policy.ModeForceOpen, Reason: "maintenance", Actor: "alice"}
			if _, err := other.PutOverride(t.Context(), dep, o, time.Hour, AnyRevision); err != nil {
				t.Error(err)
			}
		}
		interfere(r.Board, probeScript, force) // after this replica has looked
		for range 2 {
			s := r.observe(t, asking(report(half, 0, 0), "b", "c"))
			if n := len(granted(s)); n != 0 {
				t.Fatalf("%d permits against the operator", n)
			}
			if hold := s.Permits[0].Hold; hold < 50*time.Millisecond {
				t.Errorf("hold for %v", hold)
			}
		}
	})
}

// Two replicas bring the last verdicts of a round at the same time.
func TestRecoveryCommittedOnce(t *testing.T) {
	each(t, func(t *testing.T, r *rig) {
		half := r.probing(t, r.tripped(t, r.started(t)), "a", "b", "c")
		p := granted(half)
		other := r.board(t)
		interfere(r.Board, commitScript, func() {
			got, err := other.Observe(t.Context(), group, []Report{result(half, p[2], policy.Success)})
			if err != nil {
				t.Error(err)
				return
			}
			wantState(t, got[0], policy.Closed, 4)
		})
		r.observe(t, result(half, p[0], policy.Success))
		s := r.observe(t, result(half, p[1], policy.Success))
		wantState(t, s, policy.Closed, 4)
		if got := causes(r.log(t)); got != "trip probe recovered" {
			t.Errorf("log: %s", got)
		}
	})
}

// A replica that dies between the last verdict and the commit leaves a finished round: the next ask finishes it.
func TestUncommittedRoundIsFinished(t *testing.T) {
	each(t, func(t *testing.T, r *rig) {
		half := r.probing(t, r.tripped(t, r.started(t)), "a", "b")
		d := dossier{group: group, set: quick(), lease: time.Second, standing: half}
		var results []Probe
		for _, p := range granted(half) {
			results = append(results, result(half, p, policy.Success).Probes...)
		}
		if _, _, current, err := r.probe(t.Context(), &d, results, nil); !current || err != nil {
			t.Fatal(current, err)
		}
		s := r.observe(t, asking(report(half, 0, 0), "c"))
		wantState(t, s, policy.Closed, 4)
		if s.Permits[0].Token != "" || s.Permits[0].Hold != 0 {
			t.Errorf("got %+v", s.Permits[0])
		}
	})
}
