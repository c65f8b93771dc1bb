package storm

import (
	"context"
	"math"
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

// TestPlaneRestarts: the control plane is killed and started again under a running fleet, twice. No call fails for it,
// the fleet finds back by itself, and the next outage opens the breaker as ever.
func TestPlaneRestarts(t *testing.T) {
	t.Parallel()
	m := storm(t, 20, 40, func(t *testing.T, p *Plane, d *simulation.Dependency) {
		for range 2 {
			time.Sleep(8 * time.Second)
			p.Replicas[0].Away(true)
			time.Sleep(4 * time.Second)
			p.Restart(t, 0)
			p.Replicas[0].Away(false)
		}
		time.Sleep(6 * time.Second) // it is second 30
		d.Break(simulation.Down)
	}, true, nil)
	if sum := m.Sum(0, 30); sum.Failed > sum.Offered/100 {
		t.Errorf("%d of %d requests failed while only the control plane was away", sum.Failed, sum.Offered)
	}
	if sum := m.Sum(33, 40); float64(sum.Rejected) < 0.9*float64(sum.Offered) {
		t.Errorf("only %d of %d requests were refused in the outage after it", sum.Rejected, sum.Offered)
	}
}

// TestStoreRestarts: the same with the store, which comes back empty the second time.
func TestStoreRestarts(t *testing.T) {
	t.Parallel()
	m := storm(t, 20, 50, func(_ *testing.T, p *Plane, d *simulation.Dependency) {
		time.Sleep(5 * time.Second)
		p.Store.SetError("LOADING away")
		time.Sleep(15 * time.Second)
		p.Store.SetError("")
		time.Sleep(5 * time.Second)
		p.Store.FlushAll()
		time.Sleep(10 * time.Second) // it is second 35
		d.Break(simulation.Down)
		time.Sleep(5 * time.Second)
		p.Store.FlushAll() // in the middle of the episode: the breaker forms anew
	}, true, nil)
	if sum := m.Sum(0, 35); sum.Failed > sum.Offered/100 {
		t.Errorf("%d of %d requests failed while only the store was away", sum.Failed, sum.Offered)
	}
	for _, s := range []int{38, 45} {
		if sum := m.Sum(s, s+2); float64(sum.Rejected) < 0.9*float64(sum.Offered) {
			t.Errorf("second %d on: only %d of %d requests were refused", s, sum.Rejected, sum.Offered)
		}
	}
}

// TestAlone: the control plane is out of reach for 15 minutes, and the dependency down for half a minute of it. Every
// instance goes on with its own budget: together they stay within the ratio and one floor on average, not a floor
// each; they recover by themselves, and what they sent is charged to the fleet's budget on return.
func TestAlone(t *testing.T) {
	t.Parallel()
	const instances, perSecond = 40, 100
	synctest.Test(t, func(t *testing.T) {
		plane := NewPlane(t, 1)
		// No breakers, neither the fleet's nor the instances' own: the budgets are what is looked at.
		free := fleetPolicy()
		free.Breaker.LocalFailures = 0
		m := simulation.NewMeter()
		d := simulation.NewDependency(m, 1)
		var degraded, recovered atomic.Int64
		var callers []simulation.Caller
		for range instances {
			c, err := client.New("http://plane", client.WithHTTPClient(plane.Replicas[0].Client()), client.WithPolicy(free),
				client.WithEvents(func(e client.Event) {
					switch e.Kind {
					case client.EventDegraded:
						degraded.Add(1)
					case client.EventRecovered:
						recovered.Add(1)
					}
				}))
			if err != nil {
				t.Fatal(err)
			}
			closeAtEnd(t, c)
			callers = append(callers, Guarded(c, func(ctx context.Context) error { return d.Call(ctx, 0) }))
		}
		drive := func(length time.Duration) {
			ctx, cancel := context.WithTimeout(t.Context(), length)
			defer cancel()
			simulation.Drive(ctx, m, callers, perSecond, 3)
		}
		drive(15 * time.Second) // everybody is told the fleet's size
		plane.Replicas[0].Away(true)
		drive(15 * time.Second)
		from := len(m.Seconds())
		d.Break(simulation.Down)
		drive(30 * time.Second)
		d.Break(nil)
		sum := m.Sum(from, from+30)
		floor := float64(policy.Default().Budget.Floor)
		retries := float64(sum.Arrived - sum.Offered)
		// Three windows of floor; what was saved up when the outage began counts for one more.
		bound := 0.1*float64(sum.Offered)*4/3 + 3*(floor+4*math.Sqrt(floor))
		t.Logf("alone: %.0f retries for %d requests, at most %.0f", retries, sum.Offered, bound)
		if retries > bound {
			t.Errorf("%.0f retries for %d requests, at most %.0f", retries, sum.Offered, bound)
		}
		time.Sleep(15*time.Minute - 45*time.Second)
		plane.Replicas[0].Away(false)
		drive(10 * time.Second)
		if sum := m.Sum(len(m.Seconds())-5, len(m.Seconds())); sum.Failed > 0 {
			t.Errorf("afterwards: %+v", sum)
		}
		if got := plane.Replicas[0].Exchange.Instances(); got != instances {
			t.Errorf("%d instances are back, want %d", got, instances)
		}
		if degraded.Load() != instances || recovered.Load() != instances {
			t.Errorf("%d events degraded and %d recovered, want %d each", degraded.Load(), recovered.Load(), instances)
		}
	})
}

// TestColdStarts: a thousand instances start while the dependency is down, each with one request. Nobody has a floor of
// their own: the retries of all stay within what the fleet's budget allows.
func TestColdStarts(t *testing.T) {
	t.Parallel()
	const instances = 1000
	synctest.Test(t, func(t *testing.T) {
		plane := NewPlane(t, 1)
		o := exchange.Override{Mode: policy.ModeForceClosed, Reason: "budget alone", Duration: time.Hour}
		if _, err := plane.Replicas[0].Exchange.PutOverride(t.Context(), "payments", o, exchange.AnyRevision); err != nil {
			t.Fatal(err)
		}
		var received atomic.Int64
		var wg sync.WaitGroup
		for i := range instances {
			c := newClient(t, plane.Replicas[0], i)
			wg.Go(func() {
				_ = c.Dependency("payments").Do(t.Context(), func(context.Context) error {
					received.Add(1)
					return simulation.ErrDown
				})
			})
		}
		wg.Wait()
		retries := received.Load() - instances
		t.Logf("%d retries of %d cold starts", retries, instances)
		if allowed := policy.Allowed(policy.Default().Budget, instances); retries > allowed {
			t.Errorf("%d retries, at most %d were funded", retries, allowed)
		}
	})
}

// TestIdleInstance: an instance that calls every ten seconds, under a healthy control plane, is never on its own.
func TestIdleInstance(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		plane := NewPlane(t, 1)
		c := newClient(t, plane.Replicas[0], 0)
		d := c.Dependency("payments")
		for range 20 {
			if err := d.Do(t.Context(), func(context.Context) error { return nil }); err != nil {
				t.Fatal(err)
			}
			if c.Stats().Degraded {
				t.Fatal("on its own")
			}
			time.Sleep(10 * time.Second)
		}
		if got := plane.Replicas[0].Exchange.Totals()["payments"].Requests; got < 19 {
			t.Errorf("the control plane heard of %d requests, want about 20", got)
		}
	})
}

// TestQuietDependencyRecovers: one call every ten seconds. Failures open the breaker; when the dependency works again
// it closes, with rounds of one probe.
func TestQuietDependencyRecovers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		plane := NewPlane(t, 1)
		p := fleetPolicy()
		p.Breaker.LocalFailures = 0 // the fleet's breaker is what is looked at
		c, err := client.New("http://plane", client.WithHTTPClient(plane.Replicas[0].Client()), client.WithPolicy(p))
		if err != nil {
			t.Fatal(err)
		}
		closeAtEnd(t, c)
		d := c.Dependency("payments")
		call := func(err error) {
			_ = d.Do(t.Context(), func(context.Context) error { return client.Permanent(err) })
			time.Sleep(10 * time.Second)
		}
		state := func() string {
			dep, _ := plane.Replicas[0].Exchange.Dependency("payments")
			return dep.Breaker.Effective
		}
		call(nil)
		for range 12 {
			call(simulation.ErrDown)
		}
		if got := state(); got == "closed" {
			t.Fatalf("after 12 failures in a row it is %s", got)
		}
		for range 6 {
			call(nil)
		}
		if got := state(); got != "closed" {
			t.Errorf("after 6 good calls it is %s", got)
		}
	})
}

func closeAtEnd(t *testing.T, c *client.Client) {
	t.Helper()
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_ = c.Close(ctx)
	})
}
