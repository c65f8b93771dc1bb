package storm

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/retryplane/retryplane/internal/exchange"
	"github.com/retryplane/retryplane/internal/sharedbreaker"
	"github.com/retryplane/retryplane/internal/simulation"
	"github.com/retryplane/retryplane/pkg/client"
	"github.com/retryplane/retryplane/pkg/policy"
	"github.com/retryplane/retryplane/pkg/wire"
)

// TestProbesOfAFleet: when the open time is over, 50 instances with eight calls each want to know whether the dependency
// works again. As many reach it as a round has probes, not one more.
func TestProbesOfAFleet(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const instances, each = 50, 8
		plane := NewPlane(t, 2)
		var down, hanging atomic.Bool
		var reached atomic.Int64
		attempt := func(ctx context.Context) error {
			switch {
			case hanging.Load():
				reached.Add(1)
				<-ctx.Done()
				return ctx.Err()
			case down.Load():
				return client.Permanent(simulation.ErrDown)
			}
			return simulation.Wait(ctx, 10*time.Millisecond)
		}
		fleet := make([]*client.Dependency, instances)
		for i := range fleet {
			fleet[i] = newClient(t, plane.Replicas[i%2], i).Dependency("payments")
		}
		ctx, stop := context.WithTimeout(t.Context(), 10*time.Second)
		defer stop()
		var wg sync.WaitGroup
		for _, d := range fleet {
			for range each {
				wg.Go(func() {
					for ctx.Err() == nil {
						_ = d.Do(t.Context(), attempt)
						time.Sleep(100 * time.Millisecond)
					}
				})
			}
		}
		time.Sleep(2 * time.Second)
		down.Store(true)
		if !awaitState(plane.Replicas[0], wire.Open, 2*time.Second) {
			t.Fatal("the breaker did not open")
		}
		time.Sleep(300 * time.Millisecond) // the fleet knows, and the open time is not over
		hanging.Store(true)
		time.Sleep(1100 * time.Millisecond)
		got, want := reached.Load(), policy.Default().Breaker.Probes
		stop()
		wg.Wait()
		// Attempts end after a second, and their leases half a second later: until then nobody replaces a probe.
		if got != want {
			t.Errorf("%d probes reached the dependency, want %d", got, want)
		}
	})
}

// awaitState waits until the replica knows the breaker in a state, for a limited time.
func awaitState(r *Replica, state string, limit time.Duration) bool {
	for end := time.Now().Add(limit); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		if d, ok := r.Exchange.Dependency("payments"); ok && d.Breaker.Automatic.State == state {
			return true
		}
	}
	return false
}

// TestOneEpisode: 20 instances at two replicas see the same outage. It is one episode, with one beginning and one end,
// in the log and in the counters; and it is the same when the clocks of the instances are ten minutes off either way.
func TestOneEpisode(t *testing.T) {
	t.Parallel()
	const instances = 20
	for name, skew := range map[string]time.Duration{"clocks that agree": 0, "clocks ten minutes off": 10 * time.Minute} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				began := time.Now()
				plane := NewPlane(t, 2)
				m := simulation.NewMeter()
				d := simulation.NewDependency(m, 1)
				var callers []simulation.Caller
				for i := range instances {
					off := time.Duration(i%3-1) * skew
					c, err := client.New("http://plane", client.WithHTTPClient(&http.Client{Transport: plane.Replicas[i%2]}),
						client.WithPolicy(fleetPolicy()), client.WithClock(func() time.Time { return time.Now().Add(off) }))
					if err != nil {
						t.Fatal(err)
					}
					closeAtEnd(t, c)
					callers = append(callers, Guarded(c, func(ctx context.Context) error { return d.Call(ctx, i) }))
				}
				ctx, cancel := context.WithTimeout(t.Context(), 45*time.Second)
				defer cancel()
				go func() {
					time.Sleep(10 * time.Second)
					d.Break(simulation.Down)
					time.Sleep(12 * time.Second)
					d.Break(nil)
				}()
				simulation.Drive(ctx, m, callers, 300, 1)

				list, err := plane.Replicas[1].Exchange.Transitions(t.Context(), exchange.TransitionQuery{})
				if err != nil {
					t.Fatal(err)
				}
				var told []string
				for _, tr := range slices.Backward(list.Transitions) {
					told = append(told, fmt.Sprintf("%s to %s", tr.Cause, tr.To))
				}
				if want := []string{"trip to open", "recovered to closed"}; !slices.Equal(told, want) {
					t.Fatalf("the log tells of %q, want %q", told, want)
				}
				for i, limits := range [][2]time.Duration{{10 * time.Second, 12 * time.Second}, {22 * time.Second, 32 * time.Second}} {
					if at := list.Transitions[1-i].At.Sub(began); at < limits[0] || at > limits[1] {
						t.Errorf("%s after %v, want between %v and %v", told[i], at, limits[0], limits[1])
					}
				}
				for kind := range map[sharedbreaker.Transition]bool{
					{To: policy.Open, Cause: policy.CauseTrip}: true, {To: policy.Closed, Cause: policy.CauseRecovered}: true,
				} {
					n := int64(0)
					for _, r := range plane.Replicas {
						n += r.Exchange.Totals()["payments"].Transitions[exchange.TransitionKind{To: kind.To, Cause: kind.Cause}]
					}
					if n != 1 {
						t.Errorf("counted %d of %s, want 1", n, kind.Cause)
					}
				}
				if sum := m.Sum(36, 45); sum.Failed > 0 {
					t.Errorf("after it: %+v", sum)
				}
			})
		})
	}
}

// TestRejectedSpendsNothing: what an open breaker rejects neither funds retries nor uses them.
func TestRejectedSpendsNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		plane := NewPlane(t, 1)
		x := plane.Replicas[0].Exchange
		d := newClient(t, plane.Replicas[0], 0).Dependency("payments")
		if err := d.Do(t.Context(), func(context.Context) error { return nil }); err != nil {
			t.Fatal(err)
		}
		o := exchange.Override{Mode: policy.ModeForceOpen, Reason: "maintenance", Duration: time.Hour}
		if _, err := x.PutOverride(t.Context(), "payments", o, exchange.AnyRevision); err != nil {
			t.Fatal(err)
		}
		time.Sleep(15 * time.Second) // that request has left the window
		_ = d.Do(t.Context(), func(context.Context) error { return nil })
		time.Sleep(14 * time.Second) // and one that was perhaps sent before it was told
		for range 50 {
			if err := d.Do(t.Context(), func(context.Context) error { return nil }); !errors.Is(err, client.ErrOpen) {
				t.Fatalf("got %v", err)
			}
			time.Sleep(100 * time.Millisecond)
		}
		time.Sleep(3 * time.Second)
		dep, _ := x.Dependency("payments")
		if b := dep.Budget; b.Requests != 0 || b.Retries != 0 || b.Denied != 0 || dep.Window.RejectedBreaker < 40 {
			t.Errorf("budget %+v, window %+v", b, dep.Window)
		}
	})
}
