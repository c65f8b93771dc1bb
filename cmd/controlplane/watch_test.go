package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/retryplane/retryplane/pkg/wire"
)

// watching runs the command watch until stop, which returns its exit code.
func watching(t *testing.T, url string, args ...string) (stdout, stderr *logged, stop func() int) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	stdout, stderr = newLogged(), newLogged()
	code := make(chan int, 1)
	go func() {
		code <- run(ctx, append([]string{"watch", "--server", url}, args...), stdout, stderr, func(string) string { return "" })
	}()
	t.Cleanup(cancel)
	return stdout, stderr, func() int { cancel(); return <-code }
}

// TestWatch shows the state, then what operators do, until ctrl-C, which is success.
func TestWatch(t *testing.T) {
	t.Parallel()
	r := start(t)
	r.ready(t)
	order := []string{"--reason", "provider maintenance", "--for", "1h"}
	orders(t, r.url, append([]string{"close", "eu/mail"}, order...)...)
	text, _, stop := watching(t, r.url)
	raw, _, stopRaw := watching(t, r.url, "eu/pay", "-o", "json")
	text.find(t, `(eu/mail  closed \(calculated: closed\)  force_closed by anonymous)`)
	raw.find(t, `("event":"state")`)
	orders(t, r.url, append([]string{"open", "eu/pay"}, order...)...)
	text.find(t, `(eu/pay +open \(calculated: closed\)  force_open by anonymous until .* left\): provider maintenance  \(0.0/s, failed -, instances 0\)\n)`)
	orders(t, r.url, "auto", "eu/pay")
	text.find(t, `(eu/pay +open -> closed  \()`)
	raw.find(t, `("to":"closed")`)
	if code, codeRaw := stop(), stopRaw(); code != exitOK || codeRaw != exitOK {
		t.Errorf("got the codes %d and %d", code, codeRaw)
	}
	for line := range strings.Lines(raw.String()) {
		var e struct {
			Event string
			Data  json.RawMessage
		}
		if err := json.Unmarshal([]byte(line), &e); err != nil || e.Event == "" || len(e.Data) == 0 {
			t.Errorf("got the line %s: %v", line, err)
		}
		if strings.Contains(line, "eu/mail") {
			t.Errorf("not asked for: %s", line)
		}
	}
}

// TestWatchConnectsAgain and prints only what is new: a deployment of the server ends every stream.
func TestWatchConnectsAgain(t *testing.T) {
	t.Parallel()
	var connections atomic.Int32
	dependency := func(name, state string) wire.Dependency {
		return wire.Dependency{Name: name, Breaker: wire.BreakerStatus{Effective: state, Automatic: wire.AutomaticState{State: state}}}
	}
	state := func(deps ...wire.Dependency) string {
		text, err := json.Marshal(wire.StreamState{Dependencies: deps})
		if err != nil {
			t.Error(err)
		}
		return fmt.Sprintf("retry: 10\n\nevent: state\ndata: %s\n\n", text)
	}
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if got := r.URL.Query()["dependency"]; !slices.Equal(got, []string{"a", "b", "c"}) || r.URL.Query().Get("reopenings") != "true" {
			t.Errorf("asked for %s", r.URL.RawQuery)
		}
		flush := http.NewResponseController(w).Flush
		switch connections.Add(1) {
		case 1:
			_, _ = io.WriteString(w, state(dependency("a", wire.Closed), dependency("b", wire.Closed))+"event: goaway\ndata: {}\n\n")
		case 2: // a load balancer with nobody behind it
			w.WriteHeader(http.StatusBadGateway)
		case 3: // cut off in the middle of an event
			_, _ = io.WriteString(w, state(dependency("a", wire.Closed))[:40])
		default:
			_, _ = io.WriteString(w, ": hello\n\n"+state(dependency("a", wire.Open), dependency("c", wire.HalfOpen))+"event: news\ndata: 1\n\n")
			_ = flush()
			<-r.Context().Done()
		}
	}))
	t.Cleanup(srv.Close)
	stdout, stderr, stop := watching(t, srv.URL, "a", "b", "c", "--reopenings")
	stdout.find(t, `(b  forgotten)`)
	if code := stop(); code != exitOK {
		t.Errorf("got the code %d: %s", code, stderr)
	}
	var got []string
	for line := range strings.Lines(stdout.String()) {
		_, line, _ = strings.Cut(strings.TrimSpace(line), "  ") // without the time
		got = append(got, line)
	}
	want := []string{
		"a  closed  (-/s, failed -, instances 0)", "b  closed  (-/s, failed -, instances 0)",
		"a  closed -> open  (-/s, failed -, instances 0)", "c  half_open  (-/s, failed -, instances 0)", "b  forgotten",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	wants(t, stderr.String(), "the server shuts down; connecting again in", "502 Bad Gateway", "the stream ended; connecting again in")
}

// TestWatchEndsWhenRefused: a token that ran out does not come back by itself.
func TestWatchEndsWhenRefused(t *testing.T) {
	t.Parallel()
	var connections atomic.Int32
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if connections.Add(1) == 1 {
			_, _ = io.WriteString(w, "retry: 1\n\nevent: state\ndata: {\"dependencies\":[]}\n\n")
			return
		}
		w.Header().Set("Content-Type", wire.ContentType)
		w.WriteHeader(http.StatusUnauthorized)
		_, _ = io.WriteString(w, `{"code":"unauthorized","detail":"the token expired"}`)
	}))
	t.Cleanup(srv.Close)
	code, _, stderr := orders(t, srv.URL, "watch")
	if code != exitError {
		t.Errorf("got the code %d", code)
	}
	wants(t, stderr, "watch: unauthorized (401): the token expired")
}

// closedPipe is the standard output of "watch | head".
type closedPipe struct{}

func (closedPipe) Write([]byte) (int, error) { return 0, io.ErrClosedPipe }

// TestWatchEndsWithItsReader: and does not connect for ever for nobody.
func TestWatchEndsWithItsReader(t *testing.T) {
	t.Parallel()
	r := start(t)
	r.ready(t)
	stderr := newLogged()
	if code := run(t.Context(), []string{"watch", "-o", "json", "--server", r.url}, closedPipe{}, stderr, func(string) string { return "" }); code != exitError {
		t.Errorf("got the code %d", code)
	}
}

func TestEventReader(t *testing.T) {
	t.Parallel()
	lines := 0
	r := newEventReader(strings.NewReader("retry: 1500\nretry: soon\n\n: ping\n\nevent: a\r\ndata: 1\r\ndata:2\r\n\r\nevent: empty\n\ndata\n\nevent: cut\ndata: x\n"), func() { lines++ })
	var got []event
	for {
		e, err := r.next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, e)
	}
	want := []event{{"a", "1\n2"}, {"", ""}}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(event{})); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if r.retry != 1500*time.Millisecond || lines != 15 {
		t.Errorf("got %s, %d lines", r.retry, lines)
	}
}
