package api

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/retryplane/retryplane/internal/exchange"
	"github.com/retryplane/retryplane/pkg/policy"
	"github.com/retryplane/retryplane/pkg/wire"
)

// hub spreads what the exchange learns to the open streams. An event is encoded once, whatever the number of streams.
//
// A stream's queue is bounded. When a burst overflows it, the queue is given up and the stream gets the whole state
// once more, which says all that the lost changes said; only transitions are then missing, and the log has them. A
// client that does not read at all is dropped by the deadline of the write that it blocks. Neither delays the others.
type hub struct {
	exchange *exchange.Exchange
	most     int

	drained chan struct{} // closed by drain
	writers sync.WaitGroup

	mu       sync.Mutex
	streams  map[*subscriber]struct{}
	draining bool
	whole    *snapshot           // for those who watch everything; nil after an event
	before   map[string]counters // of the last tick; nil while nobody wants counters
	pushed   map[string]outline  // of the last change of each dependency; nil while nobody listens
}

// outline is what instances are told at once. Reopenings and probings within an episode are not in it: instances learn
// them when they next ask, and a fleet that is told of every one would be told every few seconds.
type outline struct {
	epoch      string
	generation int64 // only while closed: calls count under it
	closed     bool
	ramping    bool
	mode       string
	revision   int64
	policy     int64
}

func outlineOf(d *wire.Dependency) outline {
	a := d.Breaker.Automatic
	o := outline{epoch: a.Epoch, closed: a.State == wire.Closed, policy: d.Policy.Version}
	if o.closed {
		o.generation = a.Generation
	} else {
		o.ramping = a.AdmitPPM > 0
	}
	if v := d.Breaker.Override; v != nil {
		o.mode, o.revision = v.Mode, v.Revision
	}
	return o
}

// mostQueued bounds the frames that wait for one client.
const mostQueued = 64

// counters are what a tick compares.
type counters struct {
	window wire.Window
	budget wire.BudgetStatus
}

// subscriber is one open stream.
type subscriber struct {
	only     map[string]bool // nil = all that the caller may see
	caller   *caller
	counters bool
	reopens  bool // also what happens within an episode
	frames   chan []byte
	late     chan struct{} // tells the writer that the queue overflowed
	lagging  bool          // the next state covers everything; guarded by hub.mu
}

// snapshot is the state of a stream's dependencies, encoded when the first stream sends it.
type snapshot struct {
	at    time.Time
	frame func() ([]byte, error)
}

func newHub(x *exchange.Exchange, most int) *hub {
	return &hub{exchange: x, most: most, drained: make(chan struct{}), streams: make(map[*subscriber]struct{})}
}

func newSubscriber(who *caller, only map[string]bool, counters, reopens bool) *subscriber {
	return &subscriber{
		only: only, caller: who, counters: counters, reopens: reopens,
		frames: make(chan []byte, mostQueued), late: make(chan struct{}, 1),
	}
}

func (u *subscriber) everything() bool { return u.only == nil && u.caller.seesAll() }

func (u *subscriber) watches(name string) bool {
	return (u.only == nil || u.only[name]) && u.caller.sees(name)
}

// offer must be called with the hub's mu held. It never waits.
func (u *subscriber) offer(frame []byte) {
	if u.lagging {
		return
	}
	select {
	case u.frames <- frame:
	default:
		u.lagging = true
		u.late <- struct{}{} // has room: the writer took the last one before it reset lagging
	}
}

// run feeds the streams until ctx ends.
func (h *hub) run(ctx context.Context) {
	var wg sync.WaitGroup
	wg.Go(func() { h.exchange.Watch(ctx, h.publish) })
	wg.Go(func() {
		tick := time.NewTicker(time.Second)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
				h.tick()
			}
		}
	})
	wg.Wait()
}

// join adds a stream and returns the state that it begins with. Errors: exchange.ErrClosed, exchange.ErrBusy. Whoever
// joined must leave.
func (h *hub) join(u *subscriber) (*snapshot, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case h.draining:
		return nil, exchange.ErrClosed
	case len(h.streams) >= h.most:
		return nil, problem(http.StatusServiceUnavailable, wire.CodeBusy, fmt.Sprintf("this replica holds at most %d streams", h.most))
	}
	h.streams[u] = struct{}{}
	h.writers.Add(1)
	return h.state(u), nil
}

func (h *hub) leave(u *subscriber) {
	h.mu.Lock()
	delete(h.streams, u)
	h.mu.Unlock()
	h.writers.Done()
}

// restart empties the queue of a stream that fell behind and returns the state from which it goes on.
func (h *hub) restart(u *subscriber) *snapshot {
	h.mu.Lock()
	defer h.mu.Unlock()
	for range len(u.frames) {
		<-u.frames
	}
	u.lagging = false
	return h.state(u)
}

// state must be called with mu held: an event that is published later must not be older than the state.
func (h *hub) state(u *subscriber) *snapshot {
	const freshFor = time.Second // counters in it may be this old
	switch {
	case u.everything():
		if h.whole == nil || time.Since(h.whole.at) > freshFor {
			h.whole = newSnapshot(h.exchange.Dependencies())
		}
		return h.whole
	case u.only == nil:
		all := h.exchange.Dependencies()
		seen := make([]wire.Dependency, 0, len(all))
		for _, d := range all {
			if u.watches(d.Name) {
				seen = append(seen, d)
			}
		}
		return newSnapshot(seen)
	}
	seen := make([]wire.Dependency, 0, len(u.only))
	for _, name := range slices.Sorted(maps.Keys(u.only)) {
		if d, ok := h.exchange.Dependency(name); ok && u.watches(name) {
			seen = append(seen, d)
		}
	}
	return newSnapshot(seen)
}

func newSnapshot(deps []wire.Dependency) *snapshot {
	return &snapshot{at: time.Now(), frame: sync.OnceValues(func() ([]byte, error) {
		return frame(wire.EventState, wire.StreamState{Dependencies: deps})
	})}
}

// publish brings an event to the streams that watch its dependency.
func (h *hub) publish(e exchange.Event) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.whole = nil
	if len(h.streams) == 0 {
		h.pushed = nil
		return
	}
	var name string
	var data []byte
	var within bool // an episode
	var err error
	switch {
	case e.Change != nil:
		// Not the event's own copy, which may be older than a state that a stream began with meanwhile.
		name = e.Change.Name
		d, ok := h.exchange.Dependency(name)
		if !ok {
			return // its forget comes next
		}
		if h.pushed == nil {
			h.pushed = make(map[string]outline)
		}
		is := outlineOf(&d)
		was, known := h.pushed[name]
		within = known && is == was && !is.closed
		h.pushed[name] = is
		data, err = frame(wire.EventChange, d)
	case e.Transition != nil:
		name = e.Transition.Dependency
		cause := policy.Cause(e.Transition.Cause)
		within = cause == policy.CauseReopen || cause == policy.CauseProbe
		data, err = frame(wire.EventTransition, e.Transition)
	default:
		name = e.Forgotten
		delete(h.pushed, name)
		data, err = frame(wire.EventForget, wire.Forgotten{Name: name})
	}
	if err != nil {
		return // only a number that JSON cannot hold, and the exchange divides by nothing that is zero
	}
	for u := range h.streams {
		if (!within || u.reopens) && u.watches(name) {
			u.offer(data)
		}
	}
}

// tick sends the dependencies whose counters moved to the streams that want counters, as one frame each.
func (h *hub) tick() {
	h.mu.Lock()
	defer h.mu.Unlock()
	var want []*subscriber
	for u := range h.streams {
		if u.counters {
			want = append(want, u)
		}
	}
	if len(want) == 0 {
		h.before = nil
		return
	}
	type piece struct {
		name string
		data []byte
	}
	var moved []piece
	var all []byte
	now := make(map[string]counters, len(h.before))
	for _, d := range h.exchange.Dependencies() {
		is := counters{d.Window, d.Budget}
		now[d.Name] = is
		was, known := h.before[d.Name]
		if known && is == was || !known && is.window == (wire.Window{}) {
			continue
		}
		data, err := frame(wire.EventChange, d)
		if err != nil {
			continue // as in publish
		}
		moved = append(moved, piece{d.Name, data})
		all = append(all, data...)
	}
	h.before = now
	for _, u := range want {
		mine := all
		if !u.everything() {
			mine = nil
			for _, p := range moved {
				if u.watches(p.name) {
					mine = append(mine, p.data...)
				}
			}
		}
		if len(mine) > 0 {
			u.offer(mine)
		}
	}
}

func (h *hub) count() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.streams)
}

func (h *hub) drain() {
	h.mu.Lock()
	if !h.draining {
		h.draining = true
		close(h.drained)
	}
	h.mu.Unlock()
	h.writers.Wait()
}

// frame is one event as it goes over the wire.
func frame(event string, v any) ([]byte, error) {
	data, err := json.Marshal(v)
	if err != nil {
		return nil, fmt.Errorf("encode the event %q: %w", event, err)
	}
	return fmt.Appendf(nil, "event: %s\ndata: %s\n\n", event, data), nil
}
