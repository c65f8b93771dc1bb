package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/retryplane/retryplane/internal/simulation"
	"github.com/retryplane/retryplane/pkg/client"
	"github.com/retryplane/retryplane/pkg/policy"
)

const (
	stallAt   = 10 * time.Second // into each phase, and every minute afterwards
	stallFor  = 2 * time.Second
	deadFor   = 20 * time.Second
	flushTime = 2 * time.Second
)

// show runs the two phases and reports whether they differ as they should.
func show(ctx context.Context, f flags, stdin *os.File, out io.Writer) (bool, error) {
	p, err := startPlane(ctx, f.ControlPlane, f.Listen)
	if err != nil {
		return false, err
	}
	defer p.stop()
	fmt.Fprintf(out, `%d instances send %.0f requests a second to "payments", which can do 1000. After %s it stands still for %s.
A request is tried up to 3 times, 1 s each. Watch the load: at 700/s asked for, anything above is retries.

Dashboard: %s

`, f.Instances, f.Rate, stallAt, stallFor, p.url)

	fmt.Fprintf(out, "WITHOUT Retryplane: backoff with full jitter, as the textbooks say. %s.\n", f.Phase)
	without := phase(ctx, out, f, f.Phase, nil, func(d *simulation.Dependency, i int) simulation.Caller {
		return simulation.FullJitter(func(ctx context.Context) error { return d.Call(ctx, i) }, uint64(i))
	})
	if ctx.Err() != nil {
		return false, ctx.Err()
	}

	fleet, err := newFleet(p.url, f.Instances)
	if err != nil {
		return false, err
	}
	defer fleet.close()
	fmt.Fprintf(out, "\nWITH Retryplane: the same fleet, the same stall, one breaker and one retry budget for all. %s.\n", f.Phase)
	with := phase(ctx, out, f, f.Phase, fleet, fleet.caller)
	if ctx.Err() != nil {
		return false, ctx.Err()
	}
	ok := compare(out, judge(without, f), judge(with, f))
	if f.Keep == "yes" {
		fmt.Fprintf(out, "\nThe fleet goes on, with a stall every minute. d and Enter lets payments die for %s; ctrl-C ends it all.\n", deadFor)
		keep(ctx, out, f, stdin, fleet)
	}
	return ok, nil
}

// fleet is the guarded instances. They are processes of their own in real life.
type fleet struct {
	clients []*client.Client
	deps    []*client.Dependency
}

func newFleet(url string, n int) (*fleet, error) {
	p := policy.Default()
	p.Retry.AttemptTimeout = time.Second
	f := &fleet{}
	for range n {
		c, err := client.New(url, client.WithService("demo", "1"), client.WithPolicy(p))
		if err != nil {
			f.close()
			return nil, err
		}
		f.clients, f.deps = append(f.clients, c), append(f.deps, c.Dependency("payments"))
	}
	return f, nil
}

func (f *fleet) close() {
	ctx, cancel := context.WithTimeout(context.Background(), flushTime)
	defer cancel()
	var wg sync.WaitGroup
	for _, c := range f.clients {
		wg.Go(func() { _ = c.Close(ctx) }) // the last counts of a demo
	}
	wg.Wait()
}

func (f *fleet) caller(d *simulation.Dependency, i int) simulation.Caller {
	return func(ctx context.Context) (bool, error) {
		sent := false
		err := f.deps[i].Do(ctx, func(ctx context.Context) error {
			sent = true
			return d.Call(ctx, i)
		})
		return !sent, err
	}
}

// state is the breaker as an instance knows it; "-" without Retryplane.
func (f *fleet) state() string {
	if f == nil {
		return "-"
	}
	return f.deps[0].State().State.String()
}

// phase runs callers against a fresh dependency that stalls once, with a line per second.
func phase(ctx context.Context, out io.Writer, f flags, length time.Duration, guarded *fleet, caller func(*simulation.Dependency, int) simulation.Caller) *simulation.Meter {
	m := simulation.NewMeter()
	d := simulation.NewDependency(m, 1)
	ctx, cancel := context.WithTimeout(ctx, length)
	defer cancel()
	var wg sync.WaitGroup
	wg.Go(func() {
		if simulation.Wait(ctx, stallAt) == nil {
			d.Stall(stallFor)
		}
	})
	wg.Go(func() { lines(ctx, out, m, guarded) })
	simulation.Drive(ctx, m, callers(d, f.Instances, caller), f.Rate, 1)
	wg.Wait()
	return m
}

func callers(d *simulation.Dependency, n int, caller func(*simulation.Dependency, int) simulation.Caller) []simulation.Caller {
	all := make([]simulation.Caller, n)
	for i := range all {
		all[i] = caller(d, i)
	}
	return all
}

// keep goes on with the guarded fleet until ctx ends: a stall every minute, and an outage when somebody asks for one.
func keep(ctx context.Context, out io.Writer, f flags, stdin *os.File, guarded *fleet) {
	m := simulation.NewMeter()
	d := simulation.NewDependency(m, 2)
	var wg sync.WaitGroup
	wg.Go(func() {
		for simulation.Wait(ctx, time.Minute) == nil {
			d.Stall(stallFor)
		}
	})
	wg.Go(func() { lines(ctx, out, m, guarded) })
	die := make(chan struct{})
	go func() { // ends with the process: a terminal's read cannot be called off
		for keys := bufio.NewScanner(stdin); keys.Scan(); {
			if strings.TrimSpace(keys.Text()) == "d" {
				select {
				case die <- struct{}{}:
				case <-ctx.Done():
					return
				}
			}
		}
	}()
	wg.Go(func() {
		for {
			select {
			case <-ctx.Done():
				return
			case <-die:
				fmt.Fprintf(out, "payments dies for %s\n", deadFor)
				d.Break(simulation.Down)
				_ = simulation.Wait(ctx, deadFor) // the end of it all is an end too
				d.Break(nil)
			}
		}
	})
	simulation.Drive(ctx, m, callers(d, f.Instances, guarded.caller), f.Rate, 3)
	wg.Wait()
}

// lines prints one line per second.
func lines(ctx context.Context, out io.Writer, m *simulation.Meter, guarded *fleet) {
	fmt.Fprintf(out, "%6s %12s %14s %9s %10s %10s  %s\n", "second", "asked for/s", "reach it/s", "retries/s", "answered", "refused", "breaker")
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for second := 0; ; second++ {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		seconds := m.Seconds()
		if second >= len(seconds) {
			continue
		}
		s := seconds[second]
		answered := "-"
		if s.Ended > 0 {
			answered = fmt.Sprintf("%d %%", 100*s.EndedOK/s.Ended)
		}
		retries := max(s.Arrived-(s.Offered-s.Rejected), 0)
		fmt.Fprintf(out, "%6d %12d %14d %9d %10s %10d  %s\n", second, s.Offered, s.Arrived, retries, answered, s.Rejected, guarded.state())
	}
}
