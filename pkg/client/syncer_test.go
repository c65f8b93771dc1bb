package client

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/retryplane/retryplane/pkg/wire"
)

// TestSplit: more than the API takes in one sync goes in several, and so does what the control plane finds too
// large.
func TestSplit(t *testing.T) {
	bubble(t, func(t *testing.T, p *plane, c *Client) {
		const n = 1200
		var deps []*Dependency
		for i := range n {
			deps = append(deps, c.Dependency(fmt.Sprintf("group/dependency-with-a-long-name-%04d", i)))
			passes(t, deps[i])
		}
		time.Sleep(3 * time.Second)
		synctest.Wait()
		check := func(what string, perDep int64) {
			t.Helper()
			requests, seqs := map[string]int64{}, map[int64]bool{}
			for _, s := range p.seen() {
				if len(s.req.Dependencies) > wire.MaxReports {
					t.Errorf("%s: %d reports in one sync", what, len(s.req.Dependencies))
				}
				if seqs[s.req.Seq] {
					t.Errorf("%s: number %d twice", what, s.req.Seq)
				}
				seqs[s.req.Seq] = true
				for _, rep := range s.req.Dependencies {
					requests[rep.Name] += rep.Requests
				}
			}
			for _, d := range deps {
				if requests[d.name] != perDep {
					t.Fatalf("%s: %d requests of %s reported, want %d", what, requests[d.name], d.name, perDep)
				}
			}
		}
		check("by number", 1)
		p.set(func(p *plane) { p.limit = 20_000 })
		for _, d := range deps {
			passes(t, d)
			passes(t, d)
		}
		time.Sleep(3 * time.Second)
		synctest.Wait()
		check("by size", 2)
	}, WithCacheSize(2000))
}

// TestInterval: the control plane may ask for fewer reports; what is urgent does not wait for them.
func TestInterval(t *testing.T) {
	bubble(t, func(t *testing.T, p *plane, c *Client) {
		p.set(func(p *plane) { p.next = 5000 })
		d := c.Dependency("a")
		learn(t, d)
		time.Sleep(5 * time.Second)
		p.seen()
		for range 200 {
			passes(t, d)
			time.Sleep(100 * time.Millisecond)
		}
		if n := len(p.seen()); n < 3 || n > 6 {
			t.Errorf("%d syncs in 20 s at one per 5 s", n)
		}
		began := time.Now()
		if _, took, err := reserves(t, d, 10*time.Millisecond); err != nil || took > 20*time.Millisecond {
			t.Errorf("%v after %v", err, took)
		}
		if s := p.seen(); len(s) != 1 || s[0].at.Sub(began) > 10*time.Millisecond {
			t.Errorf("syncs %v", s)
		}
	})
}

// TestUrgentBesideRegular: a retry does not wait for a report that is under way.
func TestUrgentBesideRegular(t *testing.T) {
	bubble(t, func(t *testing.T, p *plane, c *Client) {
		d := c.Dependency("a")
		learn(t, d)
		p.set(func(p *plane) { p.delay = 300 * time.Millisecond })
		passes(t, d)
		time.Sleep(1200 * time.Millisecond) // the regular one is under way, or was
		passes(t, d)
		time.Sleep(800 * time.Millisecond)
		p.set(func(p *plane) { p.delay = 10 * time.Millisecond })
		if _, took, err := reserves(t, d, 50*time.Millisecond); err != nil || took != 50*time.Millisecond {
			t.Errorf("%v after %v", err, took)
		}
	})
}

// TestLongCall: what ends while its dependency is quiet is reported all the same.
func TestLongCall(t *testing.T) {
	bubble(t, func(t *testing.T, p *plane, c *Client) {
		d := c.Dependency("a")
		permit, err := d.Acquire(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(40 * time.Second)
		p.seen()
		permit.Done(Success)
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if got := sum(p.seen(), "a"); got.Success != 1 || got.LatencyCount != 1 {
			t.Errorf("reported %+v", got)
		}
	})
}

func TestClose(t *testing.T) {
	bubble(t, func(t *testing.T, p *plane, c *Client) {
		d := c.Dependency("a")
		learn(t, d)
		passes(t, d)
		p.seen()
		if err := c.Close(t.Context()); err != nil {
			t.Error(err)
		}
		if got := sum(p.seen(), "a"); got.Requests != 1 {
			t.Errorf("Close reported %+v", got)
		}
		if err := c.Close(t.Context()); err != nil {
			t.Error(err)
		}
		if err := c.Flush(t.Context()); !errors.Is(err, ErrClosed) {
			t.Errorf("Flush after Close: %v", err)
		}
		// Calls go on, on their own, without I/O.
		late := c.Dependency("b")
		for range 50 {
			passes(t, d)
			passes(t, late)
			time.Sleep(100 * time.Millisecond)
		}
		if sent := failFor(t, d, 3*time.Second); sent > 11 {
			t.Errorf("%d failures went through: there is no local breaker", sent)
		}
		time.Sleep(16 * time.Second)
		passes(t, d)
		for range 100 {
			passes(t, late)
		}
		if _, _, err := reserves(t, late, time.Millisecond); err != nil {
			t.Errorf("local budget: %v", err)
		}
		synctest.Wait()
		if n := len(p.seen()); n != 0 {
			t.Errorf("%d syncs after Close", n)
		}
	})
}

// TestCloseBounded: Close ends in ctx's time even if nothing answers, and everything else ends with it.
func TestCloseBounded(t *testing.T) {
	bubble(t, func(t *testing.T, p *plane, c *Client) {
		d := c.Dependency("a")
		learn(t, d)
		p.set(func(p *plane) { p.hole = true })
		passes(t, d)
		waiting := make(chan error, 1)
		go func() {
			_, err := d.reserve(t.Context(), 100*time.Millisecond, time.Time{})
			waiting <- err
		}()
		time.Sleep(10 * time.Millisecond)
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		began := time.Now()
		err := c.Close(ctx)
		if err == nil || time.Since(began) > 60*time.Millisecond {
			t.Errorf("%v after %v", err, time.Since(began))
		}
		if err := <-waiting; err != nil && !errors.Is(err, ErrBudget) {
			t.Error(err)
		}
	})
}
