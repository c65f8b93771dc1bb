package client

import (
	"context"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/retryplane/retryplane/pkg/policy"
)

// syncer decides when to talk to the control plane. It also wakes dependencies whose views change by the clock, so that
// calls need not look at it.
//
// Its goroutine lives while there is something to do: while a dependency is active, or something is asked for. Two
// exchanges can be under way at a time, an urgent one and a regular one, so that a retry that waits need not wait for a
// report that nobody waits for.
type syncer struct {
	client *Client

	mu      sync.Mutex
	active  map[*Dependency]struct{} // called lately
	urgent  map[*Dependency]struct{} // something of theirs is asked for
	wants   [asks]bool               // what is asked for
	last    [asks]time.Time          // when an exchange for it began
	regular time.Time                // when the next report is due
	hold    time.Time                // leave the control plane alone until then
	flying  [lanes]bool              // an exchange is under way
	landed  chan struct{}            // closed and replaced when one has ended
	number  int64                    // of the last exchange
	running bool
	closed  bool
	timer   time.Time     // when the goroutine looks next; zero = it is about to look
	signal  chan struct{} // buffered
	ends    sync.WaitGroup

	tended time.Time // when the goroutine, which alone has it, last looked after the local budgets
}

// ask is a reason to talk to the control plane at once.
type ask uint8

const (
	askRetry ask = iota // a retry waits for the budget
	askProbe            // a probe waits for its permit, or has its result
	askRun              // failures in a row, or a local trip
	askView             // a call met an old view, or none
	asks
)

// gaps are the least times between two exchanges for the same reason.
var gaps = [asks]time.Duration{
	askRetry: 10 * time.Millisecond,
	askProbe: probeRepeat,
	askRun:   100 * time.Millisecond,
	askView:  100 * time.Millisecond,
}

// lane is a kind of exchange; of each, one at most is under way.
type lane uint8

const (
	laneUrgent lane = iota
	laneRegular
	lanes
)

const (
	defaultInterval = time.Second
	syncTimeout     = 2 * time.Second // of one request
)

func (y *syncer) init(c *Client) {
	y.client = c
	y.active, y.urgent = map[*Dependency]struct{}{}, map[*Dependency]struct{}{}
	y.landed, y.signal = make(chan struct{}), make(chan struct{}, 1)
}

// stop begins the end: nothing new is started.
func (y *syncer) stop() {
	y.mu.Lock()
	defer y.mu.Unlock()
	y.closed = true
}

// leave leaves the control plane alone until t; the zero time ends that.
func (y *syncer) leave(t time.Time) {
	y.mu.Lock()
	defer y.mu.Unlock()
	y.hold = t
}

// add makes a dependency active.
func (y *syncer) add(d *Dependency) {
	y.mu.Lock()
	defer y.mu.Unlock()
	y.active[d] = struct{}{}
	if y.regular.IsZero() {
		y.regular = y.client.now().Add(y.interval())
	}
	if y.closed || y.client.config.serverless {
		return
	}
	y.wake()
	y.client.stream.start()
}

// demand asks for an exchange about d at once, or as soon as the gaps and a failing control plane allow it.
func (y *syncer) demand(d *Dependency, why ask) {
	y.mu.Lock()
	defer y.mu.Unlock()
	if y.closed {
		return
	}
	y.wants[why] = true
	y.urgent[d] = struct{}{}
	y.wake()
}

// sooner has the next regular report sent by t.
func (y *syncer) sooner(t time.Time) {
	y.mu.Lock()
	defer y.mu.Unlock()
	if y.running && t.Before(y.regular) {
		y.regular = t
		y.wake()
	}
}

// alarm makes sure that somebody looks after the views at t.
func (y *syncer) alarm(t time.Time) {
	y.mu.Lock()
	defer y.mu.Unlock()
	if y.running && (y.timer.IsZero() || t.Before(y.timer)) {
		y.wake()
	}
}

// wake starts the goroutine, or makes it look. It needs y.mu.
func (y *syncer) wake() {
	if y.closed {
		return
	}
	if !y.running {
		y.running = true
		y.ends.Add(1)
		go y.run()
		return
	}
	select {
	case y.signal <- struct{}{}:
	default:
	}
}

func (y *syncer) run() {
	defer y.ends.Done()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
		case <-y.signal:
		case <-y.client.life.Done():
			return
		}
		next, more := y.step()
		if !more {
			return
		}
		timer.Reset(next.Sub(y.client.now()))
	}
}

// step does what is due, and says when to look again; more is false when there is nothing left to do.
func (y *syncer) step() (next time.Time, more bool) {
	y.mu.Lock()
	y.timer = time.Time{}
	y.mu.Unlock()
	now := y.client.now()
	var due schedule
	due.at(y.refresh(now))

	y.mu.Lock()
	defer y.mu.Unlock()
	if y.closed {
		y.running = false
		return next, false
	}
	y.launch(now, &due)
	// In the background the clock is minded while somebody calls, and who is cut off keeps knocking.
	serverless := y.client.config.serverless
	if len(y.urgent) == 0 && (serverless || len(y.active) == 0 && !y.client.link.now().cutOff) {
		y.running = false
		return next, false
	}
	due.at(now.Add(time.Hour)) // whatever lands wakes us
	y.timer = due.next
	return due.next, true
}

// refresh brings the views up to date that change by the clock, and the budgets of an instance that is cut off. It
// returns when to do so next; zero = nothing is due.
func (y *syncer) refresh(now time.Time) time.Time {
	if y.client.clocked() {
		return time.Time{} // the calls look themselves
	}
	var next time.Time
	tend, actives := false, y.actives()
	if len(actives) > 0 && y.client.link.now().cutOff {
		if tend = !now.Before(y.tended.Add(policy.BucketWidth)); tend {
			y.tended = now
		}
		next = y.tended.Add(policy.BucketWidth)
	}
	for _, d := range actives {
		d.mu.Lock()
		if tend {
			d.take(now)
		}
		if !d.due.IsZero() && passed(now, d.due) {
			d.rebuild(now)
		}
		next = earlier(next, d.due)
		d.mu.Unlock()
	}
	return next
}

func (y *syncer) actives() []*Dependency {
	y.mu.Lock()
	defer y.mu.Unlock()
	return slices.Collect(maps.Keys(y.active))
}

// launch starts the exchanges that are due, and puts into due when the next one is. It needs y.mu.
func (y *syncer) launch(now time.Time, due *schedule) {
	// ready reports whether t and the control plane's wish to be left alone have passed.
	ready := func(t time.Time) bool {
		t = later(t, y.hold)
		if now.Before(t) {
			due.at(t)
			return false
		}
		return true
	}
	background := !y.client.config.serverless
	if y.client.link.now().cutOff {
		if (background || len(y.urgent) > 0) && !y.flying[laneUrgent] && !y.flying[laneRegular] && ready(now) {
			y.asked(now)
			y.fly(laneRegular, y.knock)
		}
		return
	}
	if len(y.urgent) > 0 && !y.flying[laneUrgent] {
		var first schedule
		for why, wanted := range y.wants {
			if wanted {
				first.at(y.last[why].Add(gaps[why]))
			}
		}
		if ready(first.next) {
			deps := y.asked(now)
			y.fly(laneUrgent, func(ctx context.Context, number int64) { _ = y.report(ctx, number, deps, true) })
		}
	}
	if background && len(y.active) > 0 && !y.flying[laneRegular] && ready(y.regular) {
		y.regular = now.Add(y.interval())
		deps := slices.Collect(maps.Keys(y.active))
		y.fly(laneRegular, func(ctx context.Context, number int64) { _ = y.report(ctx, number, deps, false) })
		due.at(y.regular)
	}
}

// asked takes what is asked for. It needs y.mu.
func (y *syncer) asked(now time.Time) []*Dependency {
	deps := slices.Collect(maps.Keys(y.urgent))
	clear(y.urgent)
	for why, wanted := range y.wants {
		if wanted {
			y.wants[why], y.last[why] = false, now
		}
	}
	return deps
}

// fly runs an exchange in a goroutine of its own. It needs y.mu.
func (y *syncer) fly(l lane, exchange func(ctx context.Context, number int64)) {
	y.flying[l] = true
	y.number++
	number := y.number
	y.ends.Add(1)
	go func() {
		defer y.ends.Done()
		exchange(y.client.life, number)
		y.mu.Lock()
		defer y.mu.Unlock()
		y.flying[l] = false
		close(y.landed)
		y.landed = make(chan struct{})
		if y.running {
			y.wake()
		}
	}()
}

// interval is the time to the next regular report: what the control plane wants, +-20 %.
func (y *syncer) interval() time.Duration {
	d := max(y.client.config.interval, y.client.link.now().next)
	return d*8/10 + rand.N(d*4/10+1)
}
