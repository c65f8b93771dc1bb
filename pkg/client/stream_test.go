package client

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/retryplane/retryplane/pkg/policy"
	"github.com/retryplane/retryplane/pkg/wire"
)

// pushes is the stream of a plane: what is sent into it goes to the connection that is open.
type pushes struct {
	frames chan string

	mu      sync.Mutex
	watched [][]string
}

func (s *pushes) serve(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	s.watched = append(s.watched, r.URL.Query()["dependency"])
	s.mu.Unlock()
	w.Header().Set("Content-Type", "text/event-stream")
	ping := time.NewTicker(15 * time.Second)
	defer ping.Stop()
	flush := func(frame string) {
		_, _ = fmt.Fprint(w, frame)
		_ = http.NewResponseController(w).Flush()
	}
	flush("retry: 200\n\n" + event("state", wire.StreamState{}))
	for {
		select {
		case f := <-s.frames:
			if f == "" {
				return
			}
			flush(f)
		case <-ping.C:
			flush(": ping\n\n")
		case <-r.Context().Done():
			return
		}
	}
}

func event(name string, v any) string {
	data, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return fmt.Sprintf("event: %s\ndata: %s\n\n", name, data)
}

func streaming(t *testing.T, f func(t *testing.T, p *plane, c *Client, s *pushes)) {
	bubble(t, func(t *testing.T, p *plane, c *Client) {
		s := &pushes{frames: make(chan string)}
		p.set(func(p *plane) { p.stream = s.serve })
		f(t, p, c, s)
	}, WithStream(true))
}

func TestStream(t *testing.T) {
	streaming(t, func(t *testing.T, p *plane, c *Client, s *pushes) {
		d := c.Dependency("a")
		learn(t, d)
		asOf := time.Date(2031, 1, 1, 0, 0, 0, 0, time.UTC) // the control plane's clock is its own business
		change := wire.Dependency{Name: "a", AsOf: asOf}
		change.Breaker.Automatic = wire.AutomaticState{State: wire.Open, Epoch: "e", Generation: 2, RemainingMS: 5000}
		s.frames <- event("change", change)
		synctest.Wait()
		if got := rejected(t, d); got.Source != SourceFleet || got.RetryAfter > 5*time.Second {
			t.Errorf("%+v", got)
		}
		change.Breaker.Automatic = wire.AutomaticState{State: wire.Closed, Epoch: "e", Generation: 1}
		s.frames <- event("change", change)
		synctest.Wait()
		rejected(t, d) // an older generation
		change.Breaker.Automatic.Generation = 3
		change.Breaker.Override = &wire.OverrideStatus{Mode: "force_open", Revision: 1, ExpiresAt: asOf.Add(20 * time.Second)}
		s.frames <- event("change", change)
		synctest.Wait()
		if got := rejected(t, d); got.Source != SourceOverride || got.RetryAfter != 20*time.Second {
			t.Errorf("%+v", got)
		}
		// It does not break off for what nobody knows, and comes back when it ends.
		s.frames <- "event: change\ndata: {broken\n\nevent: unheard-of\ndata: 1\n\n"
		s.frames <- event("change", wire.Dependency{Name: "stranger"})
		s.frames <- ""
		time.Sleep(2 * time.Second)
		s.frames <- event("goaway", struct{}{})
		time.Sleep(2 * time.Second)
		for range 20 {
			_ = call(t, c.Dependency("b"), Success)
			time.Sleep(time.Second)
		}
		synctest.Wait()
		s.mu.Lock()
		defer s.mu.Unlock()
		if n := len(s.watched); n != 4 || !slices.Contains(s.watched[3], "b") {
			t.Errorf("watched %v", s.watched)
		}
	})
}

// TestStreamKeepsViewsFresh: while syncs fail, a view is stale only after 35 s without a byte.
func TestStreamKeepsViewsFresh(t *testing.T) {
	streaming(t, func(t *testing.T, p *plane, c *Client, s *pushes) {
		d := c.Dependency("a")
		learn(t, d)
		p.set(func(p *plane) { p.status = 502 })
		for range 60 {
			passes(t, d)
			time.Sleep(time.Second)
		}
		if got := d.State(); got.Stale {
			t.Errorf("%+v", got)
		}
		p.set(func(p *plane) { p.stream = nil })
		s.frames <- ""
		time.Sleep(5 * time.Second)
		passes(t, d)
		if got := d.State(); !got.Stale {
			t.Errorf("%+v", got)
		}
	})
}

// TestStreamSilence: a connection that says nothing for 35 s is given up.
func TestStreamSilence(t *testing.T) {
	bubble(t, func(t *testing.T, p *plane, c *Client) {
		var opened atomic.Int64
		p.set(func(p *plane) {
			p.stream = func(w http.ResponseWriter, r *http.Request) {
				opened.Add(1)
				w.WriteHeader(http.StatusOK)
				_ = http.NewResponseController(w).Flush()
				<-r.Context().Done()
			}
		})
		d := c.Dependency("a")
		for range 100 {
			passes(t, d)
			time.Sleep(time.Second)
		}
		if n := opened.Load(); n < 2 || n > 3 {
			t.Errorf("%d connections in 100 s", n)
		}
		if got := d.State(); got.State != policy.Closed || got.Stale {
			t.Errorf("%+v", got)
		}
	}, WithStream(true))
}
