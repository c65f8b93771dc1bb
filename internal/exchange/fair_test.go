package exchange_test

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2"

	"github.com/retryplane/retryplane/internal/exchange"
	"github.com/retryplane/retryplane/internal/redistest"
	"github.com/retryplane/retryplane/pkg/policy"
	"github.com/retryplane/retryplane/pkg/wire"
)

// budget gives payments a budget of its own.
func budget(t *testing.T, x *exchange.Exchange, ratioPPM, floor int64) {
	t.Helper()
	p := wire.Policy{Budget: &wire.BudgetPolicy{RatioPPM: &ratioPPM, Floor: &floor}}
	if _, err := x.PutPolicy(t.Context(), "payments", p, exchange.AnyRevision); err != nil {
		t.Fatal(err)
	}
}

// together has all instances sync at the same moment, and returns what each was granted.
func together(t *testing.T, x *exchange.Exchange, fleet []*instance, report func(i int) wire.Report) []int64 {
	t.Helper()
	granted := make([]int64, len(fleet))
	var wg sync.WaitGroup
	for i, in := range fleet {
		wg.Go(func() { granted[i] = in.sync(t, x, report(i)).Dependencies[0].Granted })
	}
	wg.Wait()
	return granted
}

func fleetOf(n int) []*instance {
	fleet := make([]*instance, n)
	for i := range fleet {
		fleet[i] = &instance{id: fmt.Sprint("i-", i)}
	}
	return fleet
}

func total(grants []int64) (sum int64) {
	for _, n := range grants {
		sum += n
	}
	return sum
}

// TestWantsThatFit: what fits together is granted in full, to everybody.
func TestWantsThatFit(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, x *exchange.Exchange, _ *miniredis.Miniredis) {
		granted := together(t, x, fleetOf(30), func(i int) wire.Report {
			return wire.Report{Name: "payments", Requests: 100, Attempts: 100, Failure: 5, Success: 95, Want: int64(i % 10)}
		})
		for i, n := range granted {
			if n != int64(i%10) {
				t.Errorf("instance %d was granted %d of %d", i, n, i%10)
			}
		}
	})
}

// TestOneWithMostWants: an instance with 90 % of the failures does not take what the others need.
func TestOneWithMostWants(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, x *exchange.Exchange, _ *miniredis.Miniredis) {
		budget(t, x, 100_000, 0)
		granted := together(t, x, fleetOf(10), func(i int) wire.Report {
			r := wire.Report{Name: "payments", Requests: 40, Attempts: 40, Success: 36, Failure: 4, Want: 2}
			if i == 0 {
				r.Want, r.Failure, r.Success = 162, 40, 0
			}
			return r
		})
		for i, n := range granted[1:] {
			if n != 2 {
				t.Errorf("instance %d was granted %d of 2", i+1, n)
			}
		}
		if sum := total(granted); sum != 40 {
			t.Errorf("granted %d in all, want a tenth of 400", sum)
		}
	})
}

// TestManyWantFew: 10,000 failing instances share 100 retries, and in the next windows other instances get theirs.
func TestManyWantFew(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, x *exchange.Exchange, _ *miniredis.Miniredis) {
		budget(t, x, 0, 100)
		fleet := fleetOf(10_000)
		const windows = 3
		lucky := make(map[int]bool)
		for range windows {
			var sum int64
			for range 2 { // and again within the window
				granted := together(t, x, fleet, func(int) wire.Report { return wire.Report{Name: "payments", Want: 1} })
				for i, n := range granted {
					if n > 0 {
						lucky[i] = true
					}
				}
				sum += total(granted)
				time.Sleep(time.Second)
			}
			if sum != 100 {
				t.Errorf("granted %d in a window, want 100", sum)
			}
			time.Sleep(13 * time.Second)
		}
		if len(lucky) < 250 {
			t.Errorf("%d instances got the %d retries of %d windows", len(lucky), windows*100, windows)
		}
	})
}

// TestRatioChangedEverywhere: an operator tells one replica of another budget. Within one sync and a grant's time to
// live it holds at the other one, too, and its instances know.
func TestRatioChangedEverywhere(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		rdb, m := redistest.Virtual(t, time.Millisecond)
		a, _ := replica(t, rdb)
		b, _ := replica(t, redistest.VirtualClient(t, m, time.Millisecond))
		awaitReady(t, a)
		awaitReady(t, b)
		in := &instance{id: "a"}
		report := wire.Report{Name: "payments", Requests: 100, Attempts: 100, Success: 100, Want: 3}
		if d := in.sync(t, b, report).Dependencies[0]; d.Granted != 3 {
			t.Fatalf("granted %d of 3", d.Granted)
		}
		budget(t, a, 0, 0)
		time.Sleep(time.Second) // the next sync
		d := in.sync(t, b, report).Dependencies[0]
		if d.Granted != 0 || d.Policy == nil || *d.Policy.Budget.RatioPPM != 0 || *d.Policy.Budget.Floor != 0 {
			t.Errorf("a second later the other replica granted %d under %+v", d.Granted, d.Policy)
		}
		budget(t, a, 500_000, 0)
		time.Sleep(time.Second + policy.Default().Budget.GrantTTL)
		if d := in.sync(t, b, report).Dependencies[0]; d.Granted != 3 {
			t.Errorf("raised again, the other replica granted %d of 3", d.Granted)
		}
	})
}

// TestRatesStayInBounds: however instances and readers come together, a rate is between 0 and 100 %, and nothing counted
// is negative.
func TestRatesStayInBounds(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, x *exchange.Exchange, _ *miniredis.Miniredis) {
		budget(t, x, policy.Whole, 10_000)
		var wg sync.WaitGroup
		for i, in := range fleetOf(40) {
			random := rand.New(rand.NewPCG(uint64(i), 5))
			wg.Go(func() {
				var told wire.Decision
				for range 60 {
					success, failure := random.Int64N(20), random.Int64N(20)
					told = in.sync(t, x, wire.Report{
						Name: "payments", Epoch: told.Epoch, Generation: told.Generation - random.Int64N(2),
						Requests: success, Attempts: success + failure, Success: success, Failure: failure, Want: random.Int64N(5),
					}).Dependencies[0]
					if told.FailurePPM < 0 || told.FailurePPM > policy.Whole || told.AdmitPPM < 0 || told.AdmitPPM > policy.Whole || told.Granted < 0 {
						t.Errorf("told %+v", told)
					}
					time.Sleep(time.Duration(random.Int64N(int64(200 * time.Millisecond))))
				}
			})
		}
		for range 300 {
			d, ok := x.Dependency("payments")
			if w := d.Window; ok && (w.RetryRatio < 0 || w.Success < 0 || w.Failure < 0 || w.FailingInstances > w.Instances ||
				w.Success+w.Failure > w.Attempts) {
				t.Errorf("window %+v", w)
			}
			time.Sleep(20 * time.Millisecond)
		}
		wg.Wait()
	})
}
