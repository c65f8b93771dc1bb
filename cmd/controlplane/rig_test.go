package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

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

// replica is a running control plane.
type replica struct {
	url  string
	log  *logged
	stop func() int // ends it as SIGTERM does and returns the exit code
}

// start runs a control plane on a free port and returns when it listens.
func start(t *testing.T, args ...string) *replica {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	r := &replica{log: newLogged()}
	code := make(chan int, 1)
	go func() {
		code <- run(ctx, append([]string{"serve", "--listen", "127.0.0.1:0"}, args...), r.log, r.log, func(string) string { return "" })
	}()
	r.stop = sync.OnceValue(func() int { cancel(); return <-code })
	t.Cleanup(func() { r.stop() })
	r.url = r.log.find(t, `url=(http://\S+)`)
	return r
}

// call sends a request and decodes the answer into one, if it is not nil.
func (r *replica) call(t *testing.T, method, path string, body, into any) int {
	t.Helper()
	var reader io.Reader
	if body != nil {
		text, err := json.Marshal(body)
		if err != nil {
			t.Fatal(err)
		}
		reader = bytes.NewReader(text)
	}
	req, err := http.NewRequestWithContext(t.Context(), method, r.url+path, reader)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	if into != nil {
		if err := json.Unmarshal(text, into); err != nil {
			t.Fatalf("%s %s: %d %.200s: %v", method, path, resp.StatusCode, text, err)
		}
	}
	return resp.StatusCode
}

func (r *replica) status(t *testing.T) wire.Status {
	t.Helper()
	var s wire.Status
	if code := r.call(t, http.MethodGet, wire.PathStatus, nil, &s); code != http.StatusOK {
		t.Fatalf("status: %d", code)
	}
	return s
}

// ready waits until the replica has been in touch with its store.
func (r *replica) ready(t *testing.T) {
	t.Helper()
	await(t, "ready", func() bool { return r.call(t, http.MethodGet, "/readyz", nil, nil) == http.StatusOK })
}

// await asks until ok says yes.
func await(t *testing.T, what string, ok func() bool) {
	t.Helper()
	tick, limit := time.NewTicker(20*time.Millisecond), time.After(20*time.Second)
	defer tick.Stop()
	for !ok() {
		select {
		case <-tick.C:
		case <-limit:
			t.Fatalf("not %s within 20 s", what)
		}
	}
}

// instance is one member of a fleet: it syncs by plain HTTP, with nothing of pkg/client.
type instance struct {
	id  string
	seq int64
}

func (i *instance) sync(t *testing.T, r *replica, reports ...wire.Report) (int, wire.SyncResponse) {
	t.Helper()
	i.seq++
	var out wire.SyncResponse
	code := r.call(t, http.MethodPost, wire.PathSync, wire.SyncRequest{Instance: i.id, Seq: i.seq, Dependencies: reports}, &out)
	return code, out
}

// failing reports n failed requests under what the instance was told last.
func failing(name string, n int64, told *wire.Decision) wire.Report {
	r := wire.Report{Name: name, Requests: n, Attempts: n, Failure: n, FailureRun: n, AgeMS: 100}
	if told != nil {
		r.Epoch, r.Generation = told.Epoch, told.Generation
	}
	return r
}

// fails runs the command line with a text as its config file and returns what it complained about.
func fails(t *testing.T, args []string, env map[string]string) string {
	t.Helper()
	var out bytes.Buffer
	if code := run(t.Context(), args, &out, &out, func(k string) string { return env[k] }); code != exitUsage {
		t.Fatalf("exit code %d, want %d:\n%s", code, exitUsage, &out)
	}
	return out.String()
}

func wants(t *testing.T, got string, parts ...string) {
	t.Helper()
	for _, p := range parts {
		if !strings.Contains(got, p) {
			t.Errorf("no %q in:\n%s", p, got)
		}
	}
}

func names(n int) []*instance {
	all := make([]*instance, n)
	for i := range all {
		all[i] = &instance{id: fmt.Sprintf("i-%d", i)}
	}
	return all
}
