package storm

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/retryplane/retryplane/internal/api"
	"github.com/retryplane/retryplane/internal/exchange"
	"github.com/retryplane/retryplane/internal/redistest"
	"github.com/retryplane/retryplane/internal/sharedbreaker"
	"github.com/retryplane/retryplane/internal/sharedbudget"
	"github.com/retryplane/retryplane/internal/simulation"
)

// The distances of the published scenarios.
const (
	storeRoundTrip = time.Millisecond
	planeOneWay    = 3 * time.Millisecond
)

var errAway = errors.New("control plane is out of reach")

// Plane is a whole control plane in a bubble of virtual time: the embedded store, one or more replicas, their API.
type Plane struct {
	Store    *miniredis.Miniredis
	Replicas []*Replica
}

// Replica is one control-plane process.
type Replica struct {
	Exchange *exchange.Exchange
	handler  http.Handler
	stop     func()

	mu   sync.Mutex
	away bool
}

// NewPlane starts a control plane that ends with the test.
func NewPlane(t *testing.T, replicas int) *Plane {
	t.Helper()
	_, store := redistest.Virtual(t, storeRoundTrip)
	p := &Plane{Store: store}
	for range replicas {
		p.Replicas = append(p.Replicas, p.start(t))
	}
	return p
}

func (p *Plane) start(t *testing.T) *Replica {
	t.Helper()
	rdb := redistest.VirtualClient(t, p.Store, storeRoundTrip)
	x := exchange.New(exchange.Config{Board: sharedbreaker.New(rdb), Ledger: sharedbudget.New(rdb)})
	server := api.New(api.Deps{
		Exchange: x, Log: slog.New(slog.DiscardHandler), Version: "test", Store: "embedded", Registry: prometheus.NewRegistry(),
	})
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() { _ = x.Run(ctx) })
	wg.Go(func() { server.Run(ctx) })
	r := &Replica{Exchange: x, handler: server, stop: sync.OnceFunc(func() {
		cancel()
		wg.Wait()
	})}
	t.Cleanup(r.stop)
	for x.Health().Degraded {
		time.Sleep(10 * time.Millisecond) // virtual
	}
	return r
}

// Restart ends a replica as a crash does, and starts another one in its place, with nothing in its memory.
func (p *Plane) Restart(t *testing.T, n int) {
	t.Helper()
	p.Replicas[n].stop()
	fresh := p.start(t)
	old := p.Replicas[n]
	old.mu.Lock()
	old.Exchange, old.handler, old.stop = fresh.Exchange, fresh.handler, fresh.stop
	old.mu.Unlock()
}

// Away takes a replica off the network, or puts it back.
func (r *Replica) Away(away bool) {
	r.mu.Lock()
	r.away = away
	r.mu.Unlock()
}

// RoundTrip carries a request to the replica, with the network's delay each way.
func (r *Replica) RoundTrip(req *http.Request) (*http.Response, error) {
	if err := simulation.Wait(req.Context(), planeOneWay); err != nil {
		return nil, err
	}
	r.mu.Lock()
	handler, away := r.handler, r.away
	r.mu.Unlock()
	if away {
		return nil, errAway
	}
	in := req.Clone(req.Context())
	if in.Body == nil {
		in.Body = http.NoBody
	}
	in.RequestURI, in.RemoteAddr = req.URL.RequestURI(), "192.0.2.1:1"
	done := make(chan *http.Response, 1)
	go func() {
		rec := httptest.NewRecorder()
		handler.ServeHTTP(rec, in)
		_, _ = io.Copy(io.Discard, in.Body)
		done <- rec.Result()
	}()
	select {
	case <-req.Context().Done():
		return nil, req.Context().Err()
	case resp := <-done:
		if err := simulation.Wait(req.Context(), planeOneWay); err != nil {
			return nil, err
		}
		resp.Request = req
		return resp, nil
	}
}

// Client returns the HTTP client of one instance of the fleet.
func (r *Replica) Client() *http.Client { return &http.Client{Transport: r} }
