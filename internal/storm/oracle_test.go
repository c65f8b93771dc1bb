package storm

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/retryplane/retryplane/internal/exchange"
	"github.com/retryplane/retryplane/internal/simulation"
	"github.com/retryplane/retryplane/pkg/client"
	"github.com/retryplane/retryplane/pkg/policy"
)

// arrival is one attempt as the dependency received it.
type arrival struct {
	at        time.Time
	retry     bool
	ungranted bool // sent by an instance that was cut off, out of its own budget
}

// trouble is what happens to a fleet while it runs.
type trouble func(t *testing.T, p *Plane, fleet []*member, random *rand.Rand)

// TestBudgetOracle runs fleets at random against a dependency that fails half of the time: answers of the control plane
// are lost, instances die with their grants, two replicas share the store; replicas crash, or the clocks of instances
// jump by up to ten minutes. For every moment t the dependency must have received
//
//	retries(t-W, t] - ungranted(t-W, t] <= ratio * max over u in (t-W-L, t] of requests(u-W-d, u] + floor
func TestBudgetOracle(t *testing.T) {
	t.Parallel()
	for _, seed := range []uint64{1, 2} {
		for name, trouble := range map[string]trouble{
			"replicas crash": func(t *testing.T, p *Plane, _ []*member, random *rand.Rand) {
				for range 4 {
					time.Sleep(time.Duration(3+random.IntN(4)) * time.Second)
					p.Restart(t, random.IntN(2))
				}
			},
			"clocks of instances jump": func(_ *testing.T, _ *Plane, fleet []*member, random *rand.Rand) {
				for range 100 {
					time.Sleep(250 * time.Millisecond)
					m := fleet[random.IntN(len(fleet))]
					m.skew.Store(int64(time.Duration(random.IntN(1200)-600) * time.Second))
				}
			},
		} {
			t.Run(fmt.Sprintf("%s, seed %d", name, seed), func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) { holdBudget(t, seed, trouble) })
			})
		}
	}
}

func holdBudget(t *testing.T, seed uint64, happens trouble) {
	const instances, seconds, perSecond = 25, 35, 200
	random := rand.New(rand.NewPCG(seed, 9))
	plane := NewPlane(t, 2)
	// The breaker is kept out of it: the budget alone holds the retries down.
	o := exchange.Override{Mode: policy.ModeForceClosed, Reason: "budget alone", Duration: time.Hour}
	if _, err := plane.Replicas[0].Exchange.PutOverride(t.Context(), "payments", o, exchange.AnyRevision); err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	var seen []arrival
	failing := rand.New(rand.NewPCG(seed, 10))
	receive := func(retry, ungranted bool) error {
		mu.Lock()
		defer mu.Unlock()
		seen = append(seen, arrival{time.Now(), retry, ungranted})
		if failing.IntN(2) == 0 {
			return simulation.ErrDown
		}
		return nil
	}

	fleet := make([]*member, instances)
	for i := range fleet {
		fleet[i] = &member{number: i, plane: plane, seed: seed}
		fleet[i].born(t)
	}
	ctx, cancel := context.WithTimeout(t.Context(), seconds*time.Second)
	defer cancel()
	var wg sync.WaitGroup
	wg.Go(func() { happens(t, plane, fleet, rand.New(rand.NewPCG(seed, 11))) })
	for ctx.Err() == nil {
		_ = simulation.Wait(ctx, time.Duration(random.ExpFloat64()/perSecond*float64(time.Second)))
		m := fleet[random.IntN(len(fleet))]
		if random.IntN(1500) == 0 {
			m.born(t) // dies, and comes back as somebody else
		}
		d, c := m.dependency, m.client
		wg.Go(func() {
			attempts := 0
			_ = d.Do(context.WithoutCancel(ctx), func(context.Context) error {
				attempts++
				// A retry of an instance that is cut off is paid out of its own budget. Asked before the sending, the
				// client may come back or drop off just then; such a retry counts as granted, against us.
				return receive(attempts > 1, attempts > 1 && c.Stats().Degraded)
			})
		})
	}
	wg.Wait()
	set := policy.Default().Budget
	retries, worst := checkOracle(t, seen, set, 3*time.Second)
	t.Logf("%d attempts, %d of them retries; the tightest window used %.0f %% of its bound", len(seen), retries, 100*worst)
	if retries < 100 {
		t.Errorf("only %d retries: the budget was not put to the test", retries)
	}
}

// member is one instance of the fleet, with a network of its own that loses answers.
type member struct {
	number     int
	seed       uint64
	lives      uint64
	plane      *Plane
	skew       atomic.Int64 // of the instance's clock, in ns
	client     *client.Client
	dependency *client.Dependency
}

// born replaces the instance; the one before dies without a word, with whatever it holds.
func (m *member) born(t *testing.T) {
	t.Helper()
	m.lives++
	lossy := &lossy{
		replicas: m.plane.Replicas, random: rand.New(rand.NewPCG(m.seed<<20|m.lives<<8|uint64(m.number), 12)),
	}
	if m.client != nil {
		dead := m.client
		ctx, cancel := context.WithCancel(context.Background())
		cancel() // no flush
		_ = dead.Close(ctx)
	}
	c, err := client.New("http://plane", client.WithHTTPClient(&http.Client{Transport: lossy}), client.WithPolicy(fleetPolicy()),
		client.WithClock(func() time.Time { return time.Now().Add(time.Duration(m.skew.Load())) }))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		_ = c.Close(ctx)
	})
	m.client, m.dependency = c, c.Dependency("payments")
}

// lossy is a network that spreads requests over the replicas and loses one answer in twenty.
type lossy struct {
	replicas []*Replica
	mu       sync.Mutex
	random   *rand.Rand
}

func (l *lossy) RoundTrip(req *http.Request) (*http.Response, error) {
	l.mu.Lock()
	r, lose := l.replicas[l.random.IntN(len(l.replicas))], l.random.IntN(20) == 0
	l.mu.Unlock()
	resp, err := r.RoundTrip(req)
	if err == nil && lose {
		_ = resp.Body.Close()
		return nil, errAway
	}
	return resp, err
}

// checkOracle holds the bound for every moment at which an attempt arrived. d is the age at which a deposit may still
// arrive. It returns how many retries there were, and the largest share of its bound that a window used.
func checkOracle(t *testing.T, seen []arrival, set policy.BudgetPolicy, d time.Duration) (retries int, worst float64) {
	t.Helper()
	w, l := set.Window, set.GrantTTL
	count := func(from, to time.Time, of func(arrival) bool) (n int64) {
		for _, a := range seen {
			if a.at.After(from) && !a.at.After(to) && of(a) {
				n++
			}
		}
		return n
	}
	first := func(a arrival) bool { return !a.retry }
	granted := func(a arrival) bool { return a.retry && !a.ungranted }
	for i, a := range seen {
		if a.retry {
			retries++
		}
		if !granted(a) || i%7 != 0 { // every window that ends between two of these differs by a few retries
			continue
		}
		var most int64
		for u := a.at; u.After(a.at.Add(-w - l)); u = u.Add(-250 * time.Millisecond) {
			most = max(most, count(u.Add(-w-d), u, first))
		}
		got, bound := count(a.at.Add(-w), a.at, granted), policy.Allowed(set, most)
		worst = max(worst, float64(got)/float64(bound))
		if got > bound {
			t.Fatalf("%d retries within %v, at most %d were allowed", got, w, bound)
		}
	}
	return retries, worst
}
