package client_test

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/retryplane/retryplane/pkg/client"
	"github.com/retryplane/retryplane/pkg/policy"
	"github.com/retryplane/retryplane/pkg/wire"
)

// tower is three layers of services above a dependency that is down. Each calls the next one, up to three times.
type tower struct {
	sends  atomic.Int64 // that reached the dependency
	last   atomic.Pointer[http.Header]
	planes []*generous
	guards []*client.Client
	layers []http.RoundTripper
}

// newTower builds it. middleware is around the servers of the two lower layers; the lowest service is the last.
func newTower(t *testing.T, middleware func(http.Handler) http.Handler) (*tower, string) {
	t.Helper()
	w := &tower{}
	dependency, base := newServer(t, "HTTP/1.1", http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		w.sends.Add(1)
		w.last.Store(&r.Header)
		rw.WriteHeader(http.StatusServiceUnavailable)
	}))
	p := quick()
	p.Retry.Context = true
	next := dependency.URL
	for i, name := range []string{"stock", "cart", "shop"} {
		guard, plane := newGuard(t, p, client.WithService(name, "1"))
		rt := guard.Transport("below-"+name, base)
		w.planes, w.guards, w.layers = append(w.planes, plane), append(w.guards, guard), append(w.layers, rt)
		if i == 2 {
			break // the outermost is called by the test
		}
		server, _ := newServer(t, "HTTP/1.1", middleware(relay(t, rt, next)))
		next = server.URL
	}
	return w, next
}

// relay is a service that calls the next one for every request that it gets, and fails as that does.
func relay(t *testing.T, rt http.RoundTripper, next string) http.Handler {
	return http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		req, err := http.NewRequestWithContext(r.Context(), http.MethodGet, next, nil)
		if err != nil {
			t.Error(err)
			return
		}
		resp, err := rt.RoundTrip(req)
		if err != nil {
			http.Error(rw, err.Error(), http.StatusServiceUnavailable)
			return
		}
		defer resp.Body.Close()
		rw.WriteHeader(resp.StatusCode)
		_, _ = io.Copy(rw, resp.Body)
	})
}

// TestThreeLayers: three layers of three attempts each make 27 sends of one request. Where the lower ones do not retry
// what is a retry already, it is 7; where the upper ones heed that a lower one gave up, it is 3.
func TestThreeLayers(t *testing.T) {
	t.Parallel()
	ours := client.Middleware
	for name, tc := range map[string]struct {
		middleware func(http.Handler) http.Handler
		want       int64
	}{
		"without":   {func(h http.Handler) http.Handler { return h }, 27},
		"attempts":  {func(h http.Handler) http.Handler { return mute(ours(h)) }, 7},
		"gave up":   {ours, 3},
		"also both": {func(h http.Handler) http.Handler { return ours(ours(h)) }, 3},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w, next := newTower(t, tc.middleware)
			resp, err := get(t, w.layers[2], next)
			if err != nil {
				t.Fatal(err)
			}
			if resp.StatusCode != http.StatusServiceUnavailable {
				t.Errorf("status %d", resp.StatusCode)
			}
			if got := w.sends.Load(); got != tc.want {
				t.Errorf("%d sends reached the dependency, want %d", got, tc.want)
			}
		})
	}
}

// mute is a proxy between two layers that loses what the lower one says.
func mute(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		rec := httptest.NewRecorder()
		h.ServeHTTP(rec, r)
		w.WriteHeader(rec.Code)
		_, _ = w.Write(rec.Body.Bytes())
	})
}

// TestRetryContextOfLayers: the dependency sees every layer above it, and the control plane the chain that they make.
func TestRetryContextOfLayers(t *testing.T) {
	t.Parallel()
	w, next := newTower(t, client.Middleware)
	if _, err := get(t, w.layers[2], next); err != nil {
		t.Fatal(err)
	}
	c, ok := policy.ParseRetryContext(*w.last.Load())
	if !ok || len(c) != 3 {
		t.Fatalf("the dependency got %q", w.last.Load().Get(policy.RetryContextHeader))
	}
	for i, want := range []policy.RetryLayer{{Name: "shop", Attempt: 1, Most: 3}, {Name: "cart", Attempt: 1, Most: 3}, {Name: "stock", Attempt: 3, Most: 3}} {
		got := c[i]
		if got.ID == "" || got.Remaining <= 0 {
			t.Errorf("layer %d has no id or no time left: %+v", i, got)
		}
		if got.ID, got.Remaining = "", 0; got != want {
			t.Errorf("layer %d: got %+v, want %+v", i, got, want)
		}
	}
	w.planes[0].report(t, w.guards[0])
	w.planes[0].mu.Lock()
	chains := w.planes[0].reported.Chains
	w.planes[0].mu.Unlock()
	want := []wire.ChainLayer{{Name: "shop", Most: 3}, {Name: "cart", Most: 3}, {Name: "stock", Most: 3}}
	if len(chains) != 1 || chains[0].Requests != 1 || !slices.Equal(chains[0].Layers, want) {
		t.Errorf("reported %+v, want %+v once", chains, want)
	}
}

// TestContextIsOptIn: without the policy's leave no layer is named to anybody.
func TestContextIsOptIn(t *testing.T) {
	t.Parallel()
	var got http.Header
	server, base := newServer(t, "HTTP/1.1", http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { got = r.Header }))
	guard, _ := newGuard(t, quick())
	if _, err := get(t, guard.Transport("a", base), server.URL); err != nil {
		t.Fatal(err)
	}
	if len(got[policy.RetryContextHeader]) != 0 {
		t.Errorf("sent %q", got[policy.RetryContextHeader])
	}
}

// TestDoBelowARetry: rule 1 is for functions, too, and for other proxies' words.
func TestDoBelowARetry(t *testing.T) {
	t.Parallel()
	for header, want := range map[string]int{"": 3, "X-Envoy-Attempt-Count: 2": 1, "Grpc-Previous-Rpc-Attempts: 1": 1, "Retry-Context: broken;": 3} {
		guard, _ := newGuard(t, quick())
		calls := 0
		h := client.Middleware(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			err := guard.Dependency("a").Do(r.Context(), func(context.Context) error { calls++; return io.ErrUnexpectedEOF })
			if err == nil {
				t.Error("no error")
			}
			w.WriteHeader(http.StatusBadGateway)
		}))
		req := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil)
		malformed := int64(0)
		if key, value, ok := strings.Cut(header, ": "); ok {
			req.Header.Set(key, value)
			if value == "broken;" {
				malformed = 1
			}
		}
		rec := httptest.NewRecorder()
		h.ServeHTTP(rec, req)
		if calls != want {
			t.Errorf("%q: %d calls, want %d", header, calls, want)
		}
		if status := rec.Header().Get(policy.RetryStatusHeader); (status != "") != (want == 3) {
			t.Errorf("%q: Retry-Status %q", header, status)
		}
		if got := guard.Stats().MalformedContexts; got != malformed {
			t.Errorf("%q: %d malformed, want %d", header, got, malformed)
		}
	}
}

// TestRetryStatusOnlyOfFailures: a service that did without its dependency has nothing to tell.
func TestRetryStatusOnlyOfFailures(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		status int
		want   bool
	}{{200, false}, {404, false}, {429, true}, {500, true}, {503, true}} {
		guard, _ := newGuard(t, quick())
		server, base := newServer(t, "HTTP/1.1", client.Middleware(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			_ = guard.Dependency("a").Do(r.Context(), func(context.Context) error { return io.ErrUnexpectedEOF })
			w.WriteHeader(http.StatusEarlyHints)
			w.WriteHeader(tc.status)
			if err := http.NewResponseController(w).Flush(); err != nil {
				t.Errorf("flush: %v", err)
			}
			w.(http.Flusher).Flush()
		})))
		resp, err := get(t, base, server.URL)
		if err != nil {
			t.Fatal(err)
		}
		if got := resp.Header.Get(policy.RetryStatusHeader); (got != "") != tc.want || resp.StatusCode != tc.status {
			t.Errorf("status %d: Retry-Status %q", resp.StatusCode, got)
		}
	}
}
