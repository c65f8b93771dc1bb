package main

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/retryplane/retryplane/internal/redistest"
	"github.com/retryplane/retryplane/pkg/wire"
)

// TestFleetOpensTheBreaker is the main job from outside: instances fail, every instance hears that the breaker is open.
func TestFleetOpensTheBreaker(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, srv *redistest.Server) {
		t.Parallel()
		args := []string{"--redis", "redis://" + srv.Addr}
		if srv.Embedded != nil {
			args = nil // its own one
		}
		r := start(t, args...)
		r.ready(t)
		fleet := names(4)
		told := map[string]*wire.Decision{}
		opened := func() bool {
			for _, i := range fleet {
				code, out := i.sync(t, r, failing("payments", 10, told[i.id]))
				if code != http.StatusOK || len(out.Dependencies) != 1 {
					t.Fatalf("sync: got %d %+v", code, out)
				}
				told[i.id] = &out.Dependencies[0]
				if out.Dependencies[0].State == wire.Open {
					return true
				}
			}
			return false
		}
		await(t, "open", opened)
		stranger := &instance{id: "late"}
		if _, out := stranger.sync(t, r, wire.Report{Name: "payments"}); out.Dependencies[0].State == wire.Closed {
			t.Errorf("an instance that saw no failure was told %+v", out.Dependencies[0])
		}
		var d wire.Dependency
		if code := r.call(t, http.MethodGet, wire.PathDependencies+"/payments", nil, &d); code != http.StatusOK || d.Breaker.Automatic.State == wire.Closed {
			t.Errorf("got %d %+v", code, d.Breaker)
		}
		if code := r.stop(); code != exitOK {
			t.Errorf("exit code %d:\n%s", code, r.log)
		}
	})
}

// TestTwoReplicasShareOneRedis: what one is told, the other one says.
func TestTwoReplicasShareOneRedis(t *testing.T) {
	t.Parallel()
	srv := redistest.Real(t)
	a, b := start(t, "--redis", "redis://"+srv.Addr), start(t, "--redis", "redis://"+srv.Addr)
	a.ready(t)
	b.ready(t)
	order := wire.OverrideRequest{Mode: "force_open", Reason: "provider maintenance", ExpiresInMS: 60_000}
	if code := a.call(t, http.MethodPut, wire.PathDependencies+"/eu%2Fpayments/override", order, nil); code != http.StatusOK {
		t.Fatalf("override: got %d", code)
	}
	await(t, "known to the other replica", func() bool {
		var d wire.Dependency
		code := b.call(t, http.MethodGet, wire.PathDependencies+"/eu%2Fpayments", nil, &d)
		return code == http.StatusOK && d.Name == "eu/payments" && d.Breaker.Effective == wire.Open
	})
}

// TestReadyWithinTwoSeconds of the start, on the embedded store.
func TestReadyWithinTwoSeconds(t *testing.T) {
	t.Parallel()
	began := time.Now()
	r := start(t)
	r.ready(t)
	if took := time.Since(began); took > 2*time.Second {
		t.Errorf("took %s", took)
	}
	if !strings.Contains(r.log.String(), "in memory and for this one process") {
		t.Errorf("nobody said that the store is in memory:\n%s", r.log)
	}
	for path, kind := range map[string]string{"/": "text/html", "/app.js": "text/javascript", "/livez": "text/plain", "/metrics": "text/plain"} {
		resp := get(t, r.url+path)
		_ = resp.Body.Close()
		if resp.StatusCode != http.StatusOK || !strings.HasPrefix(resp.Header.Get("Content-Type"), kind) {
			t.Errorf("%s: got %d %s", path, resp.StatusCode, resp.Header.Get("Content-Type"))
		}
	}
}

func get(t *testing.T, url string) *http.Response {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	return resp
}

// TestTermWithStreamsOpen: 200 streams do not hold the process; each is told to go elsewhere.
func TestTermWithStreamsOpen(t *testing.T) {
	t.Parallel()
	r := start(t, "--shutdown-grace", "10s")
	r.ready(t)
	const streams = 200
	var open, ended sync.WaitGroup
	var mu sync.Mutex
	goaways := 0
	open.Add(streams)
	for range streams {
		ended.Go(func() {
			first := sync.OnceFunc(open.Done)
			defer first()
			req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, r.url+wire.PathStream, nil)
			if err != nil {
				t.Error(err)
				return
			}
			resp, err := http.DefaultClient.Do(req)
			if err != nil {
				t.Error(err)
				return
			}
			defer func() { _ = resp.Body.Close() }()
			for lines := bufio.NewScanner(resp.Body); lines.Scan(); {
				first()
				if strings.Contains(lines.Text(), "event: "+wire.EventGoaway) {
					mu.Lock()
					goaways++
					mu.Unlock()
				}
			}
		})
	}
	open.Wait()
	if got := r.status(t).StreamClients; got != streams {
		t.Errorf("got %d streams, want %d", got, streams)
	}
	began := time.Now()
	if code := r.stop(); code != exitOK {
		t.Errorf("exit code %d:\n%s", code, r.log)
	}
	if took := time.Since(began); took > 10*time.Second {
		t.Errorf("took %s, want at most the grace time", took)
	}
	ended.Wait()
	if goaways != streams {
		t.Errorf("%d of %d streams were told to go elsewhere", goaways, streams)
	}
}

// TestGraceCutsOffWhatDoesNotEnd: a request that never ends must not keep the process from ending.
func TestGraceCutsOffWhatDoesNotEnd(t *testing.T) {
	t.Parallel()
	r := start(t, "--shutdown-grace", "100ms")
	r.ready(t)
	conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", strings.TrimPrefix(r.url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	const begun = "POST " + wire.PathSync + " HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 100\r\nExpect: 100-continue\r\n\r\n"
	if _, err := io.WriteString(conn, begun); err != nil {
		t.Fatal(err)
	}
	// The server asks for the body when the handler reads it: from here on the request is open.
	if line, err := bufio.NewReader(conn).ReadString('\n'); err != nil || !strings.Contains(line, "100 Continue") {
		t.Fatalf("got %q, %v", line, err)
	}
	began := time.Now()
	if code := r.stop(); code != exitOK {
		t.Errorf("exit code %d:\n%s", code, r.log)
	}
	if took := time.Since(began); took > 5*time.Second {
		t.Errorf("took %s", took)
	}
	wants(t, r.log.String(), "cut off after the grace time")
}

// TestRedisKilledAndBack: degraded but answering, operators refused; then as before by itself.
func TestRedisKilledAndBack(t *testing.T) {
	t.Parallel()
	srv := redistest.Real(t)
	r := start(t, "--redis", "redis://"+srv.Addr)
	r.ready(t)
	i := &instance{id: "i-1"}
	if code, out := i.sync(t, r, wire.Report{Name: "payments", Requests: 1, Attempts: 1, Success: 1}); code != http.StatusOK || out.Degraded {
		t.Fatalf("before: got %d %+v", code, out)
	}

	srv.Kill(t)
	await(t, "degraded", func() bool {
		code, out := i.sync(t, r, wire.Report{Name: "payments", Requests: 1, Attempts: 1, Success: 1})
		return code == http.StatusOK && out.Degraded && len(out.Dependencies) == 1
	})
	if s := r.status(t); !s.Degraded || s.StoreUp || s.StoreError == "" || !s.Ready {
		t.Errorf("status: got %+v", s)
	}
	if code := r.call(t, http.MethodGet, "/readyz", nil, nil); code != http.StatusOK {
		t.Errorf("readyz: got %d, want 200: it has been ready", code)
	}
	var p wire.Problem
	order := wire.OverrideRequest{Mode: "force_open", Reason: "provider maintenance", ExpiresInMS: 60_000}
	if code := r.call(t, http.MethodPut, wire.PathDependencies+"/payments/override", order, &p); code != 503 || p.Code != wire.CodeStoreUnavailable {
		t.Errorf("override: got %d %+v, want 503 %s", code, p, wire.CodeStoreUnavailable)
	}

	srv.Restart(t)
	await(t, "in touch again", func() bool {
		code, out := i.sync(t, r, wire.Report{Name: "payments", Requests: 1, Attempts: 1, Success: 1})
		return code == http.StatusOK && !out.Degraded
	})
	if s := r.status(t); s.Degraded || !s.StoreUp {
		t.Errorf("status: got %+v", s)
	}
	if code := r.call(t, http.MethodPut, wire.PathDependencies+"/payments/override", order, nil); code != http.StatusOK {
		t.Errorf("override: got %d, want 200", code)
	}
}

// TestStartWithoutRedis: it starts, is not ready, and becomes ready by itself.
func TestStartWithoutRedis(t *testing.T) {
	t.Parallel()
	srv := redistest.Real(t)
	srv.Kill(t)
	r := start(t, "--redis", "redis://:hunter2@"+srv.Addr)
	if code := r.call(t, http.MethodGet, "/livez", nil, nil); code != http.StatusOK {
		t.Errorf("livez: got %d, want 200", code)
	}
	if code := r.call(t, http.MethodGet, "/readyz", nil, nil); code != http.StatusServiceUnavailable {
		t.Errorf("readyz: got %d, want 503", code)
	}
	if s := r.status(t); s.Ready || s.StoreUp {
		t.Errorf("status: got %+v", s)
	}
	srv.Restart(t)
	c := srv.Client(t)
	if err := c.ConfigSet(t.Context(), "requirepass", "hunter2").Err(); err != nil {
		t.Fatal(err)
	}
	r.ready(t)
	r.stop()
	if strings.Contains(r.log.String(), "hunter2") {
		t.Errorf("the password is in the log:\n%s", r.log)
	}
}

// TestEndWithoutRedis: a store that is away must not hold the process at its end.
func TestEndWithoutRedis(t *testing.T) {
	t.Parallel()
	srv := redistest.Real(t)
	r := start(t, "--redis", "redis://"+srv.Addr)
	r.ready(t)
	i := &instance{id: "i-1"}
	i.sync(t, r, wire.Report{Name: "payments", Requests: 1, Attempts: 1, Success: 1})
	srv.Kill(t)
	began := time.Now()
	if code := r.stop(); code != exitOK {
		t.Errorf("exit code %d:\n%s", code, r.log)
	}
	if took := time.Since(began); took > 5*time.Second {
		t.Errorf("took %s", took)
	}
}

// TestAddressInUse: a mistake that only shows when the server starts ends it with code 1.
func TestAddressInUse(t *testing.T) {
	t.Parallel()
	r := start(t)
	out := newLogged()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	code := run(ctx, []string{"--listen", strings.TrimPrefix(r.url, "http://")}, out, out, func(string) string { return "" })
	if code != exitError || !strings.Contains(out.String(), "address already in use") {
		t.Errorf("exit code %d, want %d:\n%s", code, exitError, out)
	}
}

// TestAnswersToLocalNamesOnly: without tokens a name that somebody points at 127.0.0.1 must not reach the server.
func TestAnswersToLocalNamesOnly(t *testing.T) {
	t.Parallel()
	r := start(t)
	r.ready(t)
	port := r.url[strings.LastIndex(r.url, ":"):]
	for host, want := range map[string]int{"localhost" + port: 200, "127.0.0.1" + port: 200, "[::1]" + port: 200, "evil.example" + port: 403, "": 200} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, r.url+"/livez", nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Host = host
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		if resp.StatusCode != want {
			t.Errorf("host %q: got %d, want %d", host, resp.StatusCode, want)
		}
	}
}
