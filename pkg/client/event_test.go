package client

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/retryplane/retryplane/pkg/policy"
	"github.com/retryplane/retryplane/pkg/wire"
)

// TestEvents: in order, outside locks; a handler may read the breaker, be slow and panic.
func TestEvents(t *testing.T) {
	var c *Client
	var got []EventKind
	var states []policy.State
	handle := func(e Event) {
		got = append(got, e.Kind)
		if e.Kind == EventBreaker {
			states = append(states, e.To)
			c.Dependency(e.Dependency).State()
			c.Stats()
		}
		time.Sleep(time.Second)
		panic("handler")
	}
	bubble(t, func(t *testing.T, p *plane, client *Client) {
		c = client
		d := c.Dependency("a")
		learn(t, d)
		for generation, dec := range []wire.Decision{
			{State: wire.Open, RemainingMS: 60_000},
			{State: wire.HalfOpen},
			{State: wire.HalfOpen, AdmitPPM: 500_000},
			{State: wire.Closed},
			{State: wire.Closed, Override: &wire.Override{Mode: "force_open", Revision: 1, RemainingMS: 60_000}},
			{State: wire.Closed},
		} {
			dec.Epoch, dec.Generation = "e", int64(generation+2)
			d.tell(&parcel{dep: d}, &dec, time.Now(), false)
			time.Sleep(time.Millisecond)
		}
		if err := call(t, d, Success); err != nil {
			t.Errorf("a panicking handler harmed a call: %v", err)
		}
		time.Sleep(10 * time.Second)
		synctest.Wait()
		want := []policy.State{policy.Open, policy.HalfOpen, policy.Closed, policy.Open, policy.Closed}
		if !slices.Equal(states, want) {
			t.Errorf("states %v, want %v", states, want)
		}
		if n := len(got); n != 7 {
			t.Errorf("events %v", got)
		}
	}, WithEvents(handle))
}

// TestEventsLocal: one event per opening and closing of the local breaker, whatever the number of failures.
func TestEventsLocal(t *testing.T) {
	var got []EventKind
	bubble(t, func(t *testing.T, p *plane, c *Client) {
		d := c.Dependency("a")
		learn(t, d)
		var late []Permit
		for range 10 {
			permit, _ := d.Acquire(t.Context())
			late = append(late, permit)
		}
		failFor(t, d, 1200*time.Millisecond)
		for i := range late {
			late[i].Done(Failure)
		}
		time.Sleep(1200 * time.Millisecond)
		passes(t, d)
		passes(t, d)
		synctest.Wait()
		if !slices.Equal(got, []EventKind{EventLocalOpened, EventLocalClosed}) {
			t.Errorf("events %v", got)
		}
	}, WithEvents(func(e Event) { got = append(got, e.Kind) }))
}

func TestEventsDropped(t *testing.T) {
	block := make(chan struct{})
	n := 0
	bubble(t, func(t *testing.T, p *plane, c *Client) {
		block = make(chan struct{})
		for range 3 * maxEvents {
			c.emit(Event{Kind: EventRetry})
		}
		close(block)
		synctest.Wait()
		if lost := c.Stats().EventsDropped; int64(n)+lost != 3*maxEvents || n < maxEvents {
			t.Errorf("%d delivered, %d dropped", n, lost)
		}
	}, WithEvents(func(Event) { <-block; n++ }))
}
