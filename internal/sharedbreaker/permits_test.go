package sharedbreaker

import (
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/retryplane/retryplane/pkg/policy"
)

// permitModel is the rule for permits, as simple as it can be told.
type permitModel struct {
	n, need   int
	good, bad int
	leases    map[string]lease
	blocked   map[string]time.Time
}

type lease struct {
	instance string
	until    time.Time
}

// begin starts a round that wants n verdicts, need of them good.
func (m *permitModel) begin(n, need int64) {
	*m = permitModel{n: int(n), need: int(need), leases: make(map[string]lease), blocked: m.blocked}
}

func (m *permitModel) expire(now time.Time) {
	maps.DeleteFunc(m.leases, func(_ string, l lease) bool { return !now.Before(l.until) })
}

func (m *permitModel) end(token string, o policy.Outcome, now time.Time) {
	l, ok := m.leases[token]
	if !ok {
		return
	}
	delete(m.leases, token)
	switch o {
	case policy.Success:
		m.good++
	case policy.Failure:
		m.bad++
		m.blocked[l.instance] = now.Add(time.Second)
	}
}

func (m *permitModel) over() (policy.State, bool) {
	if m.good >= m.need {
		return policy.Closed, true
	}
	return policy.Open, m.bad > m.n-m.need
}

// mayHave says whether an ask must be granted; sure is false too near to a deadline for two clocks.
func (m *permitModel) mayHave(instance string, now time.Time) (yes, sure bool) {
	for _, l := range m.leases {
		if now.Sub(l.until).Abs() < 20*time.Millisecond {
			return false, false
		}
	}
	if until, ok := m.blocked[instance]; ok {
		if now.Sub(until).Abs() < 20*time.Millisecond {
			return false, false
		}
		if now.Before(until) {
			return false, true
		}
	}
	return m.good+m.bad+len(m.leases) < m.n, true
}

func TestPermitsAgainstModel(t *testing.T) {
	each(t, func(t *testing.T, r *rig) {
		steps := 600
		if r.Embedded == nil {
			steps = 300
		}
		rnd := rand.New(rand.NewPCG(1, 2))
		set := quick()
		set.Probes, set.ProbeSuccesses, set.OpenMax, set.RampAfter = 8, 5, 100*time.Millisecond, time.Hour
		m := &permitModel{blocked: make(map[string]time.Time)}
		open := r.tripped(t, r.started(t))
		r.elapse(101 * time.Millisecond)
		half := r.observe(t, asking(report(open, 0, 0), "z").with(set))
		m.begin(half.Breaker.ProbeRound(set))
		adopt := func(s Standing) {
			for _, p := range granted(s) {
				m.leases[p.Token] = lease{p.Instance, s.Now.Add(p.Lease)}
			}
		}
		adopt(half)
		rounds := map[policy.State]int{}
		for i := range steps {
			rep := report(half, 0, 0).with(set)
			rep.ProbeLease = time.Duration(200+rnd.IntN(2000)) * time.Millisecond
			ids := []string{"a", "b", "c", "d", "e"}
			for range rnd.IntN(3) {
				rep.Asks = append(rep.Asks, ids[rnd.IntN(len(ids))])
			}
			held := slices.Sorted(maps.Keys(m.leases))
			if rnd.IntN(2) == 0 && len(held) > 0 {
				o := []policy.Outcome{policy.Success, policy.Failure, policy.Ignored, policy.Throttled}[rnd.IntN(4)]
				p := Permit{Token: held[rnd.IntN(len(held))]}
				rep.Probes = result(half, p, o).Probes
			}
			if r.Embedded != nil && rnd.IntN(4) == 0 {
				r.elapse(time.Duration(rnd.IntN(700)) * time.Millisecond)
			}
			s := r.observe(t, rep)
			m.expire(s.Now)
			for _, p := range rep.Probes {
				m.end(p.Token, p.Outcome, s.Now)
			}
			if state, over := m.over(); over {
				wantState(t, s, state, half.Breaker.Generation+1)
				if len(granted(s)) > 0 {
					t.Fatalf("step %d: permits of a round that is over", i)
				}
				rounds[state]++
				if state == policy.Closed {
					s = r.tripped(t, s)
				}
				r.elapse(s.Breaker.Until.Sub(s.Now) + time.Millisecond)
				half = r.observe(t, asking(report(s, 0, 0), "z").with(set))
				wantState(t, half, policy.HalfOpen, s.Breaker.Generation+1)
				m.begin(half.Breaker.ProbeRound(set))
				adopt(half)
				continue
			}
			wantState(t, s, policy.HalfOpen, half.Breaker.Generation)
			for j, p := range s.Permits {
				want, sure := m.mayHave(p.Instance, s.Now)
				if got := p.Token != ""; sure && got != want {
					t.Fatalf("step %d, ask %d of %s: permit %v, the model says %v (%+v)", i, j, p.Instance, got, want, m)
				}
				if p.Token != "" {
					m.leases[p.Token] = lease{p.Instance, s.Now.Add(p.Lease)}
				}
			}
			if len(m.leases)+m.good+m.bad > m.n {
				t.Fatalf("step %d: %d permits are out, %d verdicts are in, of %d", i, len(m.leases), m.good+m.bad, m.n)
			}
		}
		if rounds[policy.Closed] == 0 || rounds[policy.Open] == 0 {
			t.Errorf("rounds by their end: %v", rounds)
		}
	})
}
