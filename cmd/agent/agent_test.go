package main

import (
	"bytes"
	"context"
	"encoding/json"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/retryplane/retryplane/pkg/client"
	"github.com/retryplane/retryplane/pkg/wire"
)

// logged collects what a program logs and lets a test wait for a line.
type logged struct {
	mu   sync.Mutex
	text bytes.Buffer
	more chan struct{}
}

func newLogged() *logged { return &logged{more: make(chan struct{}, 1)} }

func (l *logged) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	n, err := l.text.Write(p)
	select {
	case l.more <- struct{}{}:
	default:
	}
	return n, err
}

func (l *logged) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// find waits for a match and returns its first group.
func (l *logged) find(t *testing.T, expr string) string {
	t.Helper()
	re, limit := regexp.MustCompile(expr), time.After(10*time.Second)
	for {
		if m := re.FindStringSubmatch(l.String()); m != nil {
			return m[1]
		}
		select {
		case <-l.more:
		case <-limit:
			t.Fatalf("no %s in:\n%s", expr, l)
		}
	}
}

// plane is a control plane that keeps the dependency "down" forced open and remembers what was reported.
type plane struct {
	*httptest.Server
	mu      sync.Mutex
	reports []wire.Report
	token   string
}

func newPlane(t *testing.T) *plane {
	t.Helper()
	p := &plane{}
	mux := http.NewServeMux()
	mux.HandleFunc("POST "+wire.PathSync, func(w http.ResponseWriter, r *http.Request) {
		var in wire.SyncRequest
		if err := json.NewDecoder(r.Body).Decode(&in); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		out := wire.SyncResponse{Seq: in.Seq, NextSyncMS: 1000, Dependencies: []wire.Decision{}}
		seen := map[string]bool{}
		p.mu.Lock()
		p.token = r.Header.Get("Authorization")
		p.reports = append(p.reports, in.Dependencies...)
		p.mu.Unlock()
		for _, d := range in.Dependencies {
			if seen[d.Name] {
				continue
			}
			seen[d.Name] = true
			decision := wire.Decision{Name: d.Name, Epoch: "e1", Generation: 1, State: wire.Closed}
			if d.Name == "down" {
				decision.Override = &wire.Override{Mode: "force_open", Revision: 1, RemainingMS: 60_000}
			}
			out.Dependencies = append(out.Dependencies, decision)
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(out)
	})
	p.Server = httptest.NewServer(mux)
	t.Cleanup(p.Close)
	return p
}

// count sums a number over what was reported of a dependency.
func (p *plane) count(name string, of func(wire.Report) int64) (n int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, r := range p.reports {
		if r.Name == name {
			n += of(r)
		}
	}
	return n
}

// start runs the agent and returns its address, and a function that ends it and returns its exit code.
func start(t *testing.T, args ...string) (url string, log *logged, stop func() int) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	log = newLogged()
	code := make(chan int, 1)
	go func() {
		code <- run(ctx, append([]string{"--listen", "127.0.0.1:0"}, args...), log, log, func(string) string { return "" })
	}()
	stop = sync.OnceValue(func() int { cancel(); return <-code })
	t.Cleanup(func() { stop() })
	return log.find(t, `url=(http://\S+)`), log, stop
}

func post(t *testing.T, url, body string) (*http.Response, map[string]any) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	var answer map[string]any
	if resp.StatusCode != http.StatusNoContent {
		if err := json.NewDecoder(resp.Body).Decode(&answer); err != nil {
			t.Fatal(err)
		}
	}
	return resp, answer
}

func TestAcquireAndReport(t *testing.T) {
	t.Parallel()
	p := newPlane(t)
	file := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(file, []byte("secret-token\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	url, log, stop := start(t, "--control-plane", p.URL, "--token-file", file)

	for _, outcome := range []string{"success", "failure", "throttled", "ignored"} {
		resp, got := post(t, url+"/v1/acquire", `{"dependency":"payments"}`)
		id, _ := got["permit"].(string)
		if resp.StatusCode != http.StatusOK || id == "" || got["expires_in_ms"] != 60_000.0 {
			t.Fatalf("acquire: got %d %v", resp.StatusCode, got)
		}
		if resp, got := post(t, url+"/v1/permits/"+id, `{"outcome":"`+outcome+`"}`); resp.StatusCode != http.StatusNoContent {
			t.Fatalf("report %s: got %d %v, want 204", outcome, resp.StatusCode, got)
		}
		if resp, got := post(t, url+"/v1/permits/"+id, `{"outcome":"success"}`); resp.StatusCode != http.StatusNotFound || got["code"] != wire.CodeNotFound {
			t.Fatalf("report again: got %d %v, want 404", resp.StatusCode, got)
		}
	}
	// The end flushes: whatever was not reported yet is reported now.
	if code := stop(); code != 0 {
		t.Fatalf("exit code %d, want 0:\n%s", code, log)
	}
	for name, of := range map[string]func(wire.Report) int64{
		"success":   func(r wire.Report) int64 { return r.Success },
		"failure":   func(r wire.Report) int64 { return r.Failure },
		"throttled": func(r wire.Report) int64 { return r.Throttled },
		"ignored":   func(r wire.Report) int64 { return r.Ignored },
	} {
		if got := p.count("payments", of); got != 1 {
			t.Errorf("%s: got %d reported, want 1", name, got)
		}
	}
	if p.token != "Bearer secret-token" {
		t.Errorf("got the header %q", p.token)
	}
	if strings.Contains(log.String(), "secret-token") {
		t.Errorf("the token is in the log:\n%s", log)
	}
}

func TestRejectedByOverride(t *testing.T) {
	t.Parallel()
	url, _, _ := start(t, "--control-plane", newPlane(t).URL)
	// The first calls pass: the agent has not heard of the override yet.
	limit := time.After(10 * time.Second)
	for {
		resp, got := post(t, url+"/v1/acquire", `{"dependency":"down"}`)
		if resp.StatusCode == http.StatusServiceUnavailable {
			if got["code"] != "breaker_open" || got["source"] != "override" || got["dependency"] != "down" ||
				resp.Header.Get("Retry-After") == "" || resp.Header.Get("Content-Type") != wire.ContentType {
				t.Errorf("got %v %v", resp.Header, got)
			}
			return
		}
		select {
		case <-limit:
			t.Fatal("the override did not arrive within 10 s")
		default:
		}
	}
}

func TestRefusals(t *testing.T) {
	t.Parallel()
	url, _, _ := start(t, "--control-plane", "http://127.0.0.1:1") // nobody is there: it works all the same
	for _, c := range []struct {
		path, body, code string
		status           int
	}{
		{"/v1/acquire", `{"dependency":"Not A Name"}`, wire.CodeInvalid, 422},
		{"/v1/acquire", `{}`, wire.CodeInvalid, 422},
		{"/v1/acquire", `{"dependency":`, wire.CodeMalformed, 400},
		{"/v1/acquire", `{"dependency":"a"} {}`, wire.CodeMalformed, 400},
		{"/v1/acquire", `{"dependency":"a","x":1}`, wire.CodeMalformed, 400},
		{"/v1/acquire", `{"dependency":"` + strings.Repeat("a", 5000) + `"}`, wire.CodeTooLarge, 413},
		{"/v1/permits/none", `{"outcome":"success"}`, wire.CodeNotFound, 404},
		{"/v1/permits/none", `{"outcome":"great"}`, wire.CodeInvalid, 422},
		{"/v1/nothing", `{}`, wire.CodeNotFound, 404},
	} {
		resp, got := post(t, url+c.path, c.body)
		if resp.StatusCode != c.status || got["code"] != c.code || resp.Header.Get("Content-Type") != wire.ContentType {
			t.Errorf("%s %.40s: got %d %v, want %d %s", c.path, c.body, resp.StatusCode, got, c.status, c.code)
		}
	}
	if resp, got := post(t, url+"/v1/acquire", `{"dependency":"payments"}`); resp.StatusCode != http.StatusOK {
		t.Errorf("without a control plane: got %d %v, want 200", resp.StatusCode, got)
	}
	// A page in a browser on this machine must not use the agent.
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url+"/v1/acquire", strings.NewReader(`{"dependency":"a"}`))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Origin", "http://evil.example")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	if resp.StatusCode != http.StatusForbidden {
		t.Errorf("with an Origin: got %d, want 403", resp.StatusCode)
	}
}

func TestWrongFlagsAreReportedAtOnce(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	code := run(t.Context(), []string{"--listen", "0.0.0.0:4680", "--control-plane", "ftp://user:hunter2@x", "--permit-ttl", "1ms", "--token-file", "/none"},
		&out, &out, func(string) string { return "" })
	if code != 2 {
		t.Errorf("exit code %d, want 2", code)
	}
	for _, want := range []string{"--listen", "--control-plane", "--permit-ttl", "--token-file"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no word of %s in:\n%s", want, &out)
		}
	}
	if strings.Contains(out.String(), "hunter2") {
		t.Errorf("the password is shown:\n%s", &out)
	}
}

func TestEnvironment(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	env := map[string]string{"RETRYPLANE_AGENT_LISTEN": "0.0.0.0:1", "RETRYPLANE_LISTEN": "another program's", "RETRYPLANE_SERVICE": "", "RETRYPLANE_PERMIT_TTL": "2h"}
	if code := run(t.Context(), []string{"--permit-ttl", "5s"}, &out, &out, func(k string) string { return env[k] }); code != 2 {
		t.Errorf("exit code %d, want 2", code)
	}
	if s := out.String(); !strings.Contains(s, "0.0.0.0:1") || strings.Contains(s, "permit-ttl") {
		t.Errorf("the variable must count, and the flag beat it; got:\n%s", s)
	}
}

// TestPermitsAreBoundedAndExpire: a program that never reports costs bounded memory for a bounded time.
func TestPermitsAreBoundedAndExpire(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		book, stop := newPermits(time.Minute), make(chan struct{})
		go book.sweep(stop)
		var ids []string
		for range maxPermits + 1 {
			ids = append(ids, book.add(client.Permit{}))
		}
		if len(book.byID) != maxPermits || book.end(ids[0], client.Success) {
			t.Errorf("%d permits, want the bound, and the oldest to have made room", len(book.byID))
		}
		if !book.end(ids[1], client.Success) {
			t.Error("the second is gone before its time")
		}
		for range 3 * maxPermits { // reported ones must not pile up either
			book.end(book.add(client.Permit{}), client.Success)
		}
		if n := len(book.queue); n > 2*maxPermits {
			t.Errorf("the queue holds %d entries", n)
		}
		last := book.add(client.Permit{})
		time.Sleep(time.Minute + time.Second) // the bubble's clock
		synctest.Wait()
		if book.end(last, client.Success) {
			t.Error("a permit outlived its time")
		}
		if n := len(book.byID) + len(book.queue); n != 0 {
			t.Errorf("%d entries are left", n)
		}
		close(stop)
	})
}

func TestVersionAndHelp(t *testing.T) {
	t.Parallel()
	for args, want := range map[string]string{
		"version": "agent dev\n", "--version": "agent dev\n",
		"--help": "127.0.0.1:4680", // the defaults
	} {
		var out bytes.Buffer
		if code := run(t.Context(), []string{args}, &out, &out, func(string) string { return "" }); code != 0 || !strings.Contains(out.String(), want) {
			t.Errorf("%s: exit code %d, want 0, and %q in:\n%s", args, code, want, &out)
		}
	}
}

// TestPortTaken: the commonest mistake says what to do.
func TestPortTaken(t *testing.T) {
	t.Parallel()
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	var out bytes.Buffer
	code := run(t.Context(), []string{"--listen", taken.Addr().String()}, &out, &out, func(string) string { return "" })
	if code != 1 || !strings.Contains(out.String(), "choose another one with --listen") {
		t.Errorf("exit code %d:\n%s", code, &out)
	}
}
