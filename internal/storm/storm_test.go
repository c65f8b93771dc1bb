package storm

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/retryplane/retryplane/internal/exchange"
	"github.com/retryplane/retryplane/internal/simulation"
	"github.com/retryplane/retryplane/pkg/client"
	"github.com/retryplane/retryplane/pkg/policy"
)

const (
	load  = 700 // requests a second, 70 % of what the dependency can do
	fault = 10  // the second in which it begins
)

// scenario is what happens to the dependency; it runs in the bubble beside the fleet.
type scenario func(t *testing.T, p *Plane, d *simulation.Dependency)

func stall(_ *testing.T, _ *Plane, d *simulation.Dependency) {
	time.Sleep(fault * time.Second)
	d.Stall(2 * time.Second)
}

// storm runs a fleet of n instances for length seconds. plane nil = the rival without a control plane.
func storm(t *testing.T, n, length int, happens scenario, product bool, prepare func(*testing.T, *Plane)) (m *simulation.Meter) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		var callers []simulation.Caller
		var plane *Plane
		if product {
			plane = NewPlane(t, 1)
			if prepare != nil {
				prepare(t, plane)
			}
		}
		m = simulation.NewMeter()
		d := simulation.NewDependency(m, 1)
		for i := range n {
			attempt := func(ctx context.Context) error { return d.Call(ctx, i) }
			if !product {
				callers = append(callers, simulation.FullJitter(attempt, uint64(i)))
				continue
			}
			callers = append(callers, Guarded(newClient(t, plane.Replicas[0], i), attempt))
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Duration(length)*time.Second)
		defer cancel()
		go happens(t, plane, d)
		simulation.Drive(ctx, m, callers, load, 1)
	})
	return m
}

// fleetPolicy is the client's part of the published scenarios: 3 attempts of 1 s within 10 s, 100 ms to 3 s, full jitter.
func fleetPolicy() policy.Policy {
	p := policy.Default()
	p.Retry.AttemptTimeout = time.Second
	return p
}

func newClient(t *testing.T, r *Replica, i int, opts ...client.Option) *client.Client {
	t.Helper()
	opts = append([]client.Option{client.WithHTTPClient(r.Client()), client.WithPolicy(fleetPolicy()), client.WithService("storm", fmt.Sprint(i))}, opts...)
	c, err := client.New("http://plane", opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_ = c.Close(ctx)
	})
	return c
}

// Guarded makes an instance's requests with the product.
func Guarded(c *client.Client, attempt func(ctx context.Context) error) simulation.Caller {
	d := c.Dependency("payments")
	return func(ctx context.Context) (bool, error) {
		sent := false
		err := d.Do(ctx, func(ctx context.Context) error {
			sent = true
			return attempt(ctx)
		})
		return !sent && errors.Is(err, client.ErrOpen), err
	}
}

// TestStormStall: the dependency stalls for two seconds. With Retryplane its load is back to what is offered, and
// success at 99 %, within five seconds of the stall's end; with full jitter alone it does not recover in a minute,
// so the scenario can tell.
func TestStormStall(t *testing.T) {
	t.Parallel()
	const over, length = fault + 2, fault + 2 + 62
	t.Run("retryplane", func(t *testing.T) {
		t.Parallel()
		m := storm(t, 200, over+20, stall, true, nil)
		report(t, m, over-3, over+8)
		recovered := m.Recovered(over, over+19, 0.99)
		if recovered < 0 || recovered > over+5 {
			t.Errorf("success is at 99 %% from second %d, want at most %d s after the stall's end at %d", recovered, 5, over)
		}
		for s := over + 5; s < over+19; s++ {
			// The offered load is a Poisson stream itself: of 700 a second, 3 standard deviations are 11 %.
			if sum := m.Sum(s, s+5); s+5 <= over+19 && float64(sum.Arrived) > 1.1*float64(sum.Offered) {
				t.Errorf("second %d on: %d attempts for %d requests", s, sum.Arrived, sum.Offered)
			}
		}
		lost := m.Sum(over, over+19)
		t.Logf("recovered %d s after the stall's end, %d requests lost after it", recovered-over, lost.Failed)
	})
	t.Run("full jitter alone", func(t *testing.T) {
		t.Parallel()
		m := storm(t, 200, length, stall, false, nil)
		report(t, m, over-3, over+5)
		if recovered := m.Recovered(over, length-1, 0.99); recovered >= 0 && recovered < over+60 {
			t.Errorf("recovered in second %d: the scenario cannot tell anything", recovered)
		}
	})
}

// TestStormDown: the dependency is down for a minute. Twenty times the instances send it at most twice the calls.
func TestStormDown(t *testing.T) {
	t.Parallel()
	calls := make(map[int]int)
	t.Run("fleets", func(t *testing.T) {
		for _, n := range []int{10, 200} {
			m := storm(t, n, fault+60, down, true, nil)
			report(t, m, fault-1, fault+5)
			calls[n] = m.Sum(fault, fault+60).Arrived
		}
	})
	t.Logf("calls that reached the dead dependency in 60 s: %d from 10 instances, %d from 200: %.2fx", calls[10], calls[200], float64(calls[200])/float64(calls[10]))
	if calls[200] > 2*calls[10] || calls[10] > 2*calls[200] {
		t.Errorf("%d calls from 10 instances, %d from 200", calls[10], calls[200])
	}
}

func down(_ *testing.T, _ *Plane, d *simulation.Dependency) {
	time.Sleep(fault * time.Second)
	d.Break(simulation.Down)
}

// TestStormBudget: the dependency is down and the breaker forced closed. The fleet retries at most a tenth of its
// requests, and the floor, whatever its size; and in no window of 10 s more than that of the requests of one that began
// up to d = 3 s earlier, because requests reach the budget with the next sync.
func TestStormBudget(t *testing.T) {
	t.Parallel()
	const length, window, lag, ratio = 40, 10, 3, 0.1
	for _, n := range []int{10, 200} {
		t.Run(fmt.Sprintf("%d instances", n), func(t *testing.T) {
			t.Parallel()
			m := storm(t, n, fault+length, down, true, func(t *testing.T, p *Plane) {
				o := exchange.Override{Mode: policy.ModeForceClosed, Reason: "budget alone", Duration: time.Hour}
				if _, err := p.Replicas[0].Exchange.PutOverride(t.Context(), "payments", o, exchange.AnyRevision); err != nil {
					t.Fatal(err)
				}
			})
			report(t, m, fault-1, fault+5)
			floor := float64(policy.Default().Budget.Floor)
			worst := 0.0
			for s := fault; s+window <= fault+length; s++ {
				sum := m.Sum(s, s+window)
				retries := float64(sum.Arrived - sum.Offered)
				worst = max(worst, retries/float64(sum.Offered))
				if most := m.Sum(max(s-lag, 0), s+window).Offered; retries > ratio*float64(most)+floor {
					t.Errorf("seconds %d to %d: %.0f retries for %d requests", s, s+window, retries, most)
				}
			}
			all := m.Sum(fault, fault+length)
			got := float64(all.Arrived-all.Offered) / float64(all.Offered)
			t.Logf("retries per request: %.3f, worst 10 s: %.3f", got, worst)
			if got > 0.11+floor/float64(all.Offered) {
				t.Errorf("%.3f retries per request", got)
			}
			if got < 0.05 {
				t.Errorf("only %.3f retries per request: the budget was not used", got)
			}
		})
	}
}

func report(t *testing.T, m *simulation.Meter, from, to int) {
	t.Helper()
	for i, s := range m.Seconds() {
		if i >= from && i < to {
			t.Logf("second %2d: offered %4d, arrived %4d, ok %4d, failed %4d, rejected %4d", i, s.Offered, s.Arrived, s.OK, s.Failed, s.Rejected)
		}
	}
}
