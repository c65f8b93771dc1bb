// Package simulation holds what a retry storm is made of: a dependency with workers and a queue, callers, and a meter.
// It runs in real time for the demo and in virtual time for the published scenarios.
package simulation

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"time"
)

// Errors of the simulated dependency.
var (
	ErrDown = errors.New("dependency is down")
	ErrFull = errors.New("dependency's queue is full")
)

// Dependency is the service that everybody calls: workers with exponentially distributed service times behind
// a first-in-first-out queue. It works on requests whose callers have given up, which is what makes storms last.
type Dependency struct {
	Workers int           // 100
	Service time.Duration // mean time of one request at a worker: 100 ms
	Queue   int           // longest queue: 5,000
	Network time.Duration // one way: 5 ms

	meter   *Meter
	mu      sync.Mutex
	fail    Fault
	jobs    []*job
	idle    int
	stalled time.Time // workers stand still until then
	rand    *rand.Rand
}

type job struct{ done chan struct{} }

// NewDependency returns the dependency of the published scenarios: capacity 1,000 requests a second.
func NewDependency(meter *Meter, seed uint64) *Dependency {
	d := &Dependency{
		Workers: 100, Service: 100 * time.Millisecond, Queue: 5_000, Network: 5 * time.Millisecond,
		meter: meter, rand: rand.New(rand.NewPCG(seed, 1)),
	}
	d.idle = d.Workers
	return d
}

// Fault decides about each arriving attempt of an instance; a non-nil error is the answer.
type Fault func(now time.Time, instance int) error

// Down is the fault of a dependency that answers every attempt with an error at once.
func Down(time.Time, int) error { return ErrDown }

// Break lets a fault begin; nil ends it.
func (d *Dependency) Break(f Fault) {
	d.mu.Lock()
	d.fail = f
	d.mu.Unlock()
}

// Stall makes every worker stand still for a time, whatever it is working on.
func (d *Dependency) Stall(length time.Duration) {
	d.mu.Lock()
	d.stalled = time.Now().Add(length)
	d.mu.Unlock()
}

// Call is one attempt of an instance; it returns when the answer is there or the caller has given up.
func (d *Dependency) Call(ctx context.Context, instance int) error {
	if err := Wait(ctx, d.Network); err != nil {
		return err
	}
	d.meter.arrived(time.Now())
	d.mu.Lock()
	fail := d.fail
	d.mu.Unlock()
	if fail != nil {
		if err := fail(time.Now(), instance); err != nil {
			if werr := Wait(ctx, d.Network); werr != nil {
				return werr
			}
			return err
		}
	}
	j := &job{done: make(chan struct{})}
	if !d.enqueue(j) {
		return ErrFull
	}
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-j.done:
		return Wait(ctx, d.Network)
	}
}

func (d *Dependency) enqueue(j *job) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.idle > 0 {
		d.idle--
		d.startLocked(j)
		return true
	}
	if len(d.jobs) >= d.Queue {
		return false
	}
	d.jobs = append(d.jobs, j)
	return true
}

// startLocked puts a worker on j; mu is held.
func (d *Dependency) startLocked(j *job) {
	service := time.Duration(d.rand.ExpFloat64() * float64(d.Service))
	service += max(time.Until(d.stalled), 0)
	time.AfterFunc(service, func() { d.finish(j) })
}

func (d *Dependency) finish(j *job) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if rest := time.Until(d.stalled); rest > 0 { // the stall began while this was worked on
		time.AfterFunc(rest, func() { d.finish(j) })
		return
	}
	close(j.done)
	if len(d.jobs) == 0 {
		d.idle++
		return
	}
	next := d.jobs[0]
	d.jobs = d.jobs[1:]
	d.startLocked(next)
}

// Wait lets time pass, or returns ctx's error when that ends first.
func Wait(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C:
		return nil
	}
}
