package client

import (
	"errors"
	"fmt"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/retryplane/retryplane/pkg/wire"
)

func TestSameHandle(t *testing.T) {
	bubble(t, func(t *testing.T, p *plane, c *Client) {
		a := c.Dependency("a")
		for i := range 100 {
			c.Dependency(fmt.Sprint(i))
		}
		if c.Dependency("a") != a {
			t.Error("a name whose handle is held has another one")
		}
	}, WithCacheSize(2))
}

// TestEviction: open and overridden dependencies are not forgotten, whatever their number; what an evicted one counted
// is reported.
func TestEviction(t *testing.T) {
	bubble(t, func(t *testing.T, p *plane, c *Client) {
		p.set(func(p *plane) {
			p.decide = func(rep wire.Report) wire.Decision {
				dec := wire.Decision{Epoch: "e", Generation: 2, State: wire.Closed}
				switch rep.Name {
				case "open":
					dec.State, dec.RemainingMS = wire.Open, 60_000
				case "forced":
					dec.Override = &wire.Override{Mode: "force_open", Revision: 1, RemainingMS: 60_000}
				}
				return dec
			}
		})
		for _, name := range []string{"open", "forced", "counted"} {
			_ = call(t, c.Dependency(name), Success) // perhaps told before the call is through
		}
		for i := range 100 {
			c.Dependency(fmt.Sprint(i))
		}
		time.Sleep(3 * time.Second)
		synctest.Wait()
		if got := sum(p.seen(), "counted"); got.Requests != 1 {
			t.Errorf("reported %+v", got)
		}
		for i := range 100 {
			c.Dependency(fmt.Sprint(i))
		}
		runtime.GC()
		runtime.GC()
		rejected(t, c.Dependency("open"))
		if got := rejected(t, c.Dependency("forced")); got.Source != SourceOverride {
			t.Errorf("%+v", got)
		}
	}, WithCacheSize(2))
}

// TestManyNames: memory is bounded by the cache, and an evicted dependency comes back with nothing.
func TestManyNames(t *testing.T) {
	bubble(t, func(t *testing.T, p *plane, c *Client) {
		for i := range 100_000 {
			c.Dependency(fmt.Sprintf("name-%d", i))
			if i%20_000 == 0 {
				runtime.GC()
			}
		}
		runtime.GC()
		runtime.GC()
		c.registry.mu.Lock()
		c.registry.clean()
		known, pinned := len(c.registry.known), len(c.registry.pinned)
		c.registry.mu.Unlock()
		if known > 200 || pinned > 0 {
			t.Errorf("%d names known, %d pinned", known, pinned)
		}
	}, WithCacheSize(100))
}

// TestEvictedComesBackWithNothing: neither what was told nor a grant that nobody used survives an eviction.
func TestEvictedComesBackWithNothing(t *testing.T) {
	bubble(t, func(t *testing.T, p *plane, c *Client) {
		func() {
			d := c.Dependency("a")
			learn(t, d)
			d.mu.Lock()
			d.retries.spare = append(d.retries.spare, grant{expires: time.Now().Add(time.Hour)})
			d.mu.Unlock()
			time.Sleep(5 * time.Second) // idle: the syncer lets go of it
			synctest.Wait()
		}()
		for i := range 10 {
			c.Dependency(fmt.Sprint(i))
		}
		for range 5 {
			runtime.GC()
		}
		d := c.Dependency("a")
		if got := d.State(); got.Known || d.stats().Requests != 0 {
			t.Errorf("remembers %+v", got)
		}
		p.set(budgeting(0, 0))
		if _, _, err := reserves(t, d, 50*time.Millisecond); !errors.Is(err, ErrBudget) {
			t.Errorf("got %v: a grant survived", err)
		}
	}, WithCacheSize(2))
}
