package api_test

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/retryplane/retryplane/internal/api"
	"github.com/retryplane/retryplane/internal/exchange"
	"github.com/retryplane/retryplane/internal/redistest"
	"github.com/retryplane/retryplane/internal/sharedbreaker"
	"github.com/retryplane/retryplane/internal/sharedbudget"
	"github.com/retryplane/retryplane/pkg/wire"
)

// rig is a replica behind a real socket. Every answer is held against openapi.yaml.
type rig struct {
	t      *testing.T
	x      *exchange.Exchange
	server *api.Server
	http   *httptest.Server
	token  string
	seq    *atomic.Int64
}

// setup starts a replica on an embedded store. configure may change what the API gets and the server that serves it.
func setup(t *testing.T, configure ...func(*api.Deps, *http.Server)) *rig {
	t.Helper()
	r := start(t, configure...)
	r.await("ready", func() bool { return r.do("GET", "/readyz", nil).status == 200 })
	return r
}

func start(t *testing.T, configure ...func(*api.Deps, *http.Server)) *rig {
	t.Helper()
	rdb := redistest.Embedded(t).Client(t)
	x := exchange.New(exchange.Config{Board: sharedbreaker.New(rdb), Ledger: sharedbudget.New(rdb)})
	deps := api.Deps{Exchange: x, Version: "v-test", Store: "embedded"}
	ts := httptest.NewUnstartedServer(nil)
	for _, fn := range configure {
		fn(&deps, ts.Config)
	}
	server := api.New(deps)
	ts.Config.Handler = server
	ts.Start()
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() { _ = x.Run(ctx) })
	wg.Go(func() { server.Run(ctx) })
	t.Cleanup(func() {
		server.Drain()
		ts.Close()
		cancel()
		wg.Wait()
	})
	return &rig{t: t, x: x, server: server, http: ts, seq: new(atomic.Int64)}
}

// await waits until cond holds.
func (r *rig) await(what string, cond func() bool) {
	r.t.Helper()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	limit := time.After(20 * time.Second)
	for !cond() {
		select {
		case <-tick.C:
		case <-limit:
			r.t.Fatalf("never %s", what)
		}
	}
}

// with returns the rig as seen with another token.
func (r *rig) with(token string) *rig {
	o := *r
	o.token = token
	return &o
}

type reply struct {
	status int
	header http.Header
	body   []byte
}

// do sends a request: body nil for none, a string as it is, else as JSON. Headers come in pairs.
func (r *rig) do(method, path string, body any, headers ...string) reply {
	r.t.Helper()
	var rd io.Reader
	if text, ok := body.(string); ok {
		rd = strings.NewReader(text)
	} else if body != nil {
		raw, err := json.Marshal(body)
		if err != nil {
			r.t.Fatal(err)
		}
		rd = bytes.NewReader(raw)
	}
	req, err := http.NewRequestWithContext(r.t.Context(), method, r.http.URL+path, rd)
	if err != nil {
		r.t.Fatal(err)
	}
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	if r.token != "" {
		req.Header.Set("Authorization", "Bearer "+r.token)
	}
	for i := 0; i < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	resp, err := r.http.Client().Do(req)
	if err != nil {
		r.t.Fatalf("%s %s: %v", method, path, err)
	}
	defer func() { _ = resp.Body.Close() }()
	raw, err := io.ReadAll(resp.Body)
	if err != nil {
		r.t.Fatalf("%s %s: %v", method, path, err)
	}
	checkAnswer(r.t, req, resp, raw)
	return reply{resp.StatusCode, resp.Header, raw}
}

// want sends a request and decodes the answer, which must have the status.
func want[T any](r *rig, status int, method, path string, body any, headers ...string) T {
	r.t.Helper()
	got := r.do(method, path, body, headers...)
	var v T
	if got.status != status {
		r.t.Fatalf("%s %s: got %d %s, want %d", method, path, got.status, got.body, status)
	}
	if err := json.Unmarshal(got.body, &v); err != nil {
		r.t.Fatalf("%s %s: %v in %s", method, path, err, got.body)
	}
	return v
}

// refused sends a request that must fail with the status and code.
func (r *rig) refused(status int, code, method, path string, body any, headers ...string) wire.Problem {
	r.t.Helper()
	p := want[wire.Problem](r, status, method, path, body, headers...)
	if p.Code != code || p.Status != status {
		r.t.Errorf("%s %s: got %d %q, want %d %q", method, path, p.Status, p.Code, status, code)
	}
	return p
}

// report makes dependencies known, a few per sync: the embedded store is slow under the race detector.
func (r *rig) report(names ...string) {
	r.t.Helper()
	for some := range slices.Chunk(names, 20) {
		req := wire.SyncRequest{Instance: "rig", Seq: r.seq.Add(1)}
		for _, name := range some {
			req.Dependencies = append(req.Dependencies, wire.Report{Name: name, Requests: 10, Attempts: 12, Success: 12, AttemptsPerRequest: []int64{8, 2}})
		}
		if resp := want[wire.SyncResponse](r, 200, "POST", wire.PathSync, req); resp.Degraded {
			r.t.Fatalf("degraded: %+v", r.x.Health())
		}
	}
}

var order = wire.OverrideRequest{Mode: "force_open", Reason: "provider maintenance", ExpiresInMS: 3_600_000}

// event is one server-sent event. A comment has only data.
type event struct{ name, data string }

// events opens a stream and returns its events; the channel closes with the stream.
func (r *rig) events(query string) (*http.Response, <-chan event) {
	r.t.Helper()
	req, err := http.NewRequestWithContext(r.t.Context(), http.MethodGet, r.http.URL+wire.PathStream+query, nil)
	if err != nil {
		r.t.Fatal(err)
	}
	req.Header.Set("Accept-Encoding", "gzip")
	if r.token != "" {
		req.Header.Set("Authorization", "Bearer "+r.token)
	}
	resp, err := r.http.Client().Do(req)
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { _ = resp.Body.Close() })
	if resp.StatusCode != 200 {
		r.t.Fatalf("stream: %s", resp.Status)
	}
	out := make(chan event, 10_000)
	go func() {
		defer close(out)
		lines := bufio.NewScanner(resp.Body)
		lines.Buffer(nil, 64<<20)
		var e event
		for lines.Scan() {
			line := lines.Text()
			switch {
			case line == "" && e != (event{}):
				out <- e
				e = event{}
			case strings.HasPrefix(line, ":"):
				e.data = line
			default:
				key, value, _ := strings.Cut(line, ": ")
				switch key {
				case "event":
					e.name = value
				case "data":
					e.data = value
				case "retry":
					e = event{"retry", value}
				}
			}
		}
	}()
	return resp, out
}

// next returns the next event of that name, "" for any.
func (r *rig) next(events <-chan event, name string) event {
	r.t.Helper()
	limit := time.After(10 * time.Second)
	for {
		select {
		case e, ok := <-events:
			if !ok {
				r.t.Fatalf("the stream ended before %q", name)
			}
			if name == "" || e.name == name {
				return e
			}
		case <-limit:
			r.t.Fatalf("no event %q", name)
		}
	}
}

func decode[T any](t *testing.T, data string) (v T) {
	t.Helper()
	if err := json.Unmarshal([]byte(data), &v); err != nil {
		t.Fatalf("%v in %s", err, data)
	}
	return v
}

func hash(token string) string {
	sum := sha256.Sum256([]byte(token))
	return hex.EncodeToString(sum[:])
}
