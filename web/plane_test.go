package web_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/retryplane/retryplane/internal/api"
	"github.com/retryplane/retryplane/internal/exchange"
	"github.com/retryplane/retryplane/internal/sharedbreaker"
	"github.com/retryplane/retryplane/internal/sharedbudget"
	"github.com/retryplane/retryplane/pkg/client"
	"github.com/retryplane/retryplane/pkg/wire"
	"github.com/retryplane/retryplane/web"
)

// plane is a control plane as `controlplane serve` runs it, on the embedded store and behind a real socket, with its
// dashboard.
type plane struct {
	url      string
	token    string // with which the test itself asks
	exchange *exchange.Exchange
	http     *httptest.Server
	orders   atomic.Int64 // PUTs that arrived
}

// newPlane starts a control plane that ends with the test. auth nil = everybody may do everything.
func newPlane(t *testing.T, auth *api.Auth) *plane {
	t.Helper()
	store := miniredis.NewMiniRedis()
	if err := store.Start(); err != nil {
		t.Fatalf("start the embedded store: %v", err)
	}
	rdb := redis.NewClient(&redis.Options{
		Addr: store.Addr(), ContextTimeoutEnabled: true, MaxRetries: -1,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	})
	p := &plane{exchange: exchange.New(exchange.Config{Board: sharedbreaker.New(rdb), Ledger: sharedbudget.New(rdb)})}
	server := api.New(api.Deps{Exchange: p.exchange, Auth: auth, Version: "test", Store: "embedded", Page: web.Page()})
	p.http = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPut {
			p.orders.Add(1)
		}
		server.ServeHTTP(w, r)
	}))
	p.url = p.http.URL
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() { _ = p.exchange.Run(ctx) })
	wg.Go(func() { server.Run(ctx) })
	t.Cleanup(func() {
		server.Drain()
		p.http.Close()
		cancel()
		wg.Wait()
		_ = rdb.Close() // the store goes with it
		store.Close()
	})
	await(t, "the plane is in touch with its store", func() bool { return !p.exchange.Health().Degraded })
	return p
}

// await waits until cond holds.
func await(t *testing.T, what string, cond func() bool) {
	t.Helper()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	limit := time.After(20 * time.Second)
	for !cond() {
		select {
		case <-tick.C:
		case <-limit:
			t.Fatalf("never happened: %s", what)
		}
	}
}

// ask sends a request to the API and decodes its answer into out, unless that is nil.
func (p *plane) ask(t *testing.T, method, path string, body, out any) {
	t.Helper()
	raw, err := json.Marshal(body)
	if err != nil {
		t.Fatal(err)
	}
	req, err := http.NewRequestWithContext(t.Context(), method, p.url+path, bytes.NewReader(raw))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	if p.token != "" {
		req.Header.Set("Authorization", "Bearer "+p.token)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }() // read to its end, or the test fails
	if resp.StatusCode != http.StatusOK {
		t.Fatalf("%s %s: got %s", method, path, resp.Status)
	}
	if out != nil {
		if err := json.NewDecoder(resp.Body).Decode(out); err != nil {
			t.Fatal(err)
		}
	}
}

// transitions reads the whole log of a dependency, the oldest first.
func (p *plane) transitions(t *testing.T, name string) []wire.Transition {
	t.Helper()
	var list wire.TransitionList
	p.ask(t, http.MethodGet, wire.PathTransitions+"?limit=1000&reopenings=true&dependency="+url.QueryEscape(name), nil, &list)
	all := make([]wire.Transition, 0, len(list.Transitions))
	for i := len(list.Transitions) - 1; i >= 0; i-- {
		all = append(all, list.Transitions[i])
	}
	return all
}

// populate reports n dependencies with healthy traffic, as syncs of clients would.
func (p *plane) populate(t *testing.T, n int) {
	t.Helper()
	for from := 0; from < n; from += wire.MaxReports / 2 {
		s := wire.SyncRequest{Instance: rand.Text(), Service: "test", Seq: 1}
		for i := from; i < min(n, from+wire.MaxReports/2); i++ {
			s.Dependencies = append(s.Dependencies, wire.Report{
				Name: fmt.Sprintf("team-%02d/service-%04d", i%20, i), AgeMS: 100,
				Requests: 40, Attempts: 42, Success: 41, Failure: 1, AttemptsPerRequest: []int64{38, 2, 0, 0, 0},
			})
		}
		p.ask(t, http.MethodPost, wire.PathSync, s, nil)
	}
}

// fleet is a number of instances that call one dependency through the real client.
type fleet struct {
	down  atomic.Bool // the dependency
	calls atomic.Int64
	open  atomic.Int64 // calls that a breaker rejected
}

var errDown = errors.New("dependency is down")

// newFleet starts n instances with the given calls a second each. They end with the test.
func newFleet(t *testing.T, p *plane, name string, n, perSecond int) *fleet {
	t.Helper()
	f := &fleet{}
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	var clients []*client.Client
	for i := range n {
		c, err := client.New(p.url, client.WithToken(p.token), client.WithService("checkout", fmt.Sprint(i)))
		if err != nil {
			t.Fatal(err)
		}
		clients = append(clients, c)
		d := c.Dependency(name)
		wg.Go(func() {
			tick := time.NewTicker(time.Second / time.Duration(perSecond))
			defer tick.Stop()
			for {
				select {
				case <-ctx.Done():
					return
				case <-tick.C:
					wg.Go(func() { f.call(ctx, d) })
				}
			}
		})
	}
	t.Cleanup(func() {
		cancel()
		wg.Wait()
		for _, c := range clients {
			closing, done := context.WithTimeout(context.Background(), time.Second)
			_ = c.Close(closing) // what it still had to say interests nobody
			done()
		}
	})
	return f
}

func (f *fleet) call(ctx context.Context, d *client.Dependency) {
	err := d.Do(ctx, func(context.Context) error {
		if f.down.Load() {
			return errDown
		}
		return nil
	})
	f.calls.Add(1)
	if errors.Is(err, client.ErrOpen) {
		f.open.Add(1)
	}
}
