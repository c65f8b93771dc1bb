package api_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/retryplane/retryplane/internal/api"
	"github.com/retryplane/retryplane/internal/exchange"
	"github.com/retryplane/retryplane/internal/redistest"
	"github.com/retryplane/retryplane/internal/sharedbreaker"
	"github.com/retryplane/retryplane/internal/sharedbudget"
	"github.com/retryplane/retryplane/pkg/wire"
)

// TestStreamLife: the state first, then each change once, and nothing that a proxy could hold back.
func TestStreamLife(t *testing.T) {
	t.Parallel()
	r := setup(t)
	r.report("a", "b/c")
	resp, events := r.events("?dependency=b/c&dependency=late")
	for key, want := range map[string]string{
		"Content-Type": "text/event-stream", "X-Accel-Buffering": "no", "Content-Encoding": "", "Cache-Control": "no-store, no-transform",
	} {
		if got := resp.Header.Get(key); got != want {
			t.Errorf("%s: got %q, want %q", key, got, want)
		}
	}
	if retry := r.next(events, "retry"); len(retry.data) != 4 {
		t.Errorf("got %+v", retry)
	}
	state := decode[wire.StreamState](t, r.next(events, wire.EventState).data)
	if len(state.Dependencies) != 1 || state.Dependencies[0].Name != "b/c" {
		t.Errorf("got %+v", state)
	}
	for _, name := range []string{"a", "b%2Fc", "late"} {
		want[wire.Dependency](r, 200, "PUT", wire.PathDependencies+"/"+name+"/override", order)
	}
	// A change and its transition come in either order: another call may have learned of the state first.
	for changed, told := 0, 0; changed < 2 || told < 2; {
		switch e := r.next(events, ""); e.name {
		case wire.EventChange:
			if d := decode[wire.Dependency](t, e.data); d.Name == "a" || d.Breaker.Effective != wire.Open {
				t.Errorf("got %+v", d)
			}
			changed++
		case wire.EventTransition:
			if tr := decode[wire.Transition](t, e.data); tr.Dependency == "a" || tr.Cause != "operator" {
				t.Errorf("got %+v", tr)
			}
			told++
		}
	}
	want[wire.Dependency](r, 200, "DELETE", wire.PathDependencies+"/late/override", nil)
	if got := r.do("DELETE", wire.PathDependencies+"/late", nil); got.status != 204 {
		t.Fatalf("forget: %d %s", got.status, got.body)
	}
	if f := decode[wire.Forgotten](t, r.next(events, wire.EventForget).data); f.Name != "late" {
		t.Errorf("got %+v", f)
	}
}

// TestStreamOutlivesTimeouts: the server's timeouts are for requests, not for streams.
func TestStreamOutlivesTimeouts(t *testing.T) {
	t.Parallel()
	r := setup(t, func(_ *api.Deps, s *http.Server) {
		s.ReadTimeout, s.WriteTimeout, s.IdleTimeout = 300*time.Millisecond, 300*time.Millisecond, 300*time.Millisecond
	})
	_, events := r.events("")
	r.next(events, wire.EventState)
	select {
	case e, ok := <-events:
		t.Fatalf("got %+v, %v", e, ok)
	case <-time.After(time.Second):
	}
	want[wire.Dependency](r, 200, "PUT", wire.PathDependencies+"/a/override", order)
	r.next(events, wire.EventChange)
}

// TestStreamGoaway: at shutdown every stream is told and ended, and a new one is refused.
func TestStreamGoaway(t *testing.T) {
	t.Parallel()
	r := setup(t)
	var all []<-chan event
	for range 20 {
		_, events := r.events("")
		r.next(events, wire.EventState)
		all = append(all, events)
	}
	r.server.Drain()
	for _, events := range all {
		r.next(events, wire.EventGoaway)
		for range events { // until it ends
		}
	}
	r.refused(503, wire.CodeShuttingDown, "GET", wire.PathStream, nil)
}

func TestStreamLimit(t *testing.T) {
	t.Parallel()
	r := setup(t, func(d *api.Deps, _ *http.Server) { d.MaxStreams = 1 })
	_, events := r.events("")
	r.next(events, wire.EventState)
	if p := r.do("GET", wire.PathStream, nil); p.status != 503 || p.header.Get("Retry-After") == "" {
		t.Errorf("got %d %s", p.status, p.body)
	}
}

// TestStreamEndsWithToken: a token that expires takes its streams along.
func TestStreamEndsWithToken(t *testing.T) {
	t.Parallel()
	auth, err := api.NewAuth([]api.Token{{Name: "brief", SHA256: hash("brief"), Roles: []string{"read"}, ExpiresAt: time.Now().Add(3 * time.Second)}})
	if err != nil {
		t.Fatal(err)
	}
	r := setup(t, func(d *api.Deps, _ *http.Server) { d.Auth = auth }).with("brief")
	_, events := r.events("")
	r.next(events, wire.EventState)
	limit := time.After(10 * time.Second)
	for {
		select {
		case _, ok := <-events:
			if !ok {
				return
			}
		case <-limit:
			t.Fatal("still open")
		}
	}
}

// TestStreamCounters: dependencies with traffic come about once a second to those who asked for it, and to no others.
func TestStreamCounters(t *testing.T) {
	t.Parallel()
	r := setup(t)
	_, plain := r.events("")
	r.next(plain, wire.EventState)
	_, counted := r.events("?counters=1")
	r.next(counted, wire.EventState)
	r.report("a")
	for {
		if d := decode[wire.Dependency](t, r.next(counted, wire.EventChange).data); d.Window.Requests > 0 {
			break
		}
	}
	for {
		select {
		case e := <-plain:
			if e.name == wire.EventChange && decode[wire.Dependency](t, e.data).Window.Requests > 0 {
				t.Errorf("got %s", e.data)
			}
			continue
		default:
		}
		break
	}
}

// TestSlowStream: a client that stops reading is dropped within 10 s, and the others get everything meanwhile.
func TestSlowStream(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := bubble(t)
		slow := b.dial(t) // reads the header and then nothing
		fast := b.dial(t)
		got := make(chan string, 10_000)
		go func() {
			defer close(got)
			for {
				line, err := fast.ReadString('\n')
				if err != nil {
					return
				}
				if name, ok := strings.CutPrefix(strings.TrimSpace(line), "event: "); ok {
					got <- name
				}
			}
		}()
		synctest.Wait()
		began := time.Now()
		for i := range 200 {
			if _, err := b.x.PutOverride(t.Context(), "a", exchange.Override{Mode: "force_open", Reason: fmt.Sprint("reason ", i), Actor: "t", Duration: time.Hour}, exchange.AnyRevision); err != nil {
				t.Fatal(err)
			}
			time.Sleep(10 * time.Millisecond)
			synctest.Wait()
			if len(got) == 0 {
				t.Fatalf("change %d was held up", i)
			}
			for len(got) > 0 {
				<-got
			}
		}
		for b.status(t).StreamClients > 1 {
			if time.Since(began) > 10*time.Second {
				t.Fatal("the slow client is still there")
			}
			time.Sleep(100 * time.Millisecond)
		}
		t.Logf("dropped after %s", time.Since(began))
		_ = slow
	})
}

// TestStreamPing: a quiet stream says every 15 s that it is alive.
func TestStreamPing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := bubble(t)
		s := b.dial(t)
		began := time.Now()
		for range 3 {
			for {
				line, err := s.ReadString('\n')
				if err != nil {
					t.Fatal(err)
				}
				if strings.HasPrefix(line, ":") {
					break
				}
			}
		}
		if took := time.Since(began); took < 44*time.Second || took > 46*time.Second {
			t.Errorf("three pings in %s", took)
		}
	})
}

// TestStreamOverflow: a client that pauses while more happens than its queue holds gets the whole state again, with the
// latest in it.
func TestStreamOverflow(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := bubble(t)
		s := b.dial(t) // pauses
		const changes = 150
		for i := range changes {
			if _, err := b.x.PutOverride(t.Context(), "a", exchange.Override{Mode: "force_open", Reason: fmt.Sprint("reason ", i), Actor: "t", Duration: time.Hour}, exchange.AnyRevision); err != nil {
				t.Fatal(err)
			}
		}
		states := 0
		for states < 2 {
			line, err := s.ReadString('\n')
			if err != nil {
				t.Fatalf("after %d states: %v", states, err)
			}
			if strings.TrimSpace(line) == "event: "+wire.EventState {
				states++
			}
		}
		line, err := s.ReadString('\n')
		if err != nil {
			t.Fatal(err)
		}
		state := decode[wire.StreamState](t, strings.TrimPrefix(line, "data: "))
		if got, want := state.Dependencies[0].Breaker.Override.Reason, fmt.Sprint("reason ", changes-1); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	})
}

// TestStreamReopenings: what happens within an episode is told to those who ask for it, its start and its end to
// everybody.
func TestStreamReopenings(t *testing.T) {
	t.Parallel()
	for query, want := range map[string]string{"": "trip reset", "?reopenings=1": "trip probe reopen probe reopen reset"} {
		synctest.Test(t, func(t *testing.T) {
			b := bubble(t)
			s := b.request(t, wire.PathStream+query)
			causes := make(chan string, 100)
			go func() {
				defer close(causes)
				for {
					line, err := s.ReadString('\n')
					if err != nil {
						return
					}
					if text, ok := strings.CutPrefix(line, "data: "); ok && strings.Contains(text, `"cause"`) {
						causes <- decode[wire.Transition](t, text).Cause
					}
				}
			}()
			seq := int64(0)
			sync := func(report wire.Report) wire.Decision {
				t.Helper()
				seq++
				report.Name = "a"
				resp, err := b.x.Sync(t.Context(), "test", &wire.SyncRequest{Instance: "i", Seq: seq, Dependencies: []wire.Report{report}})
				if err != nil {
					t.Fatal(err)
				}
				return resp.Dependencies[0]
			}
			now := sync(wire.Report{})
			for now.State == wire.Closed {
				now = sync(wire.Report{Epoch: now.Epoch, Generation: now.Generation, Requests: 50, Attempts: 50, Failure: 50})
				time.Sleep(500 * time.Millisecond) // virtual, as below
			}
			for reopenings := int64(0); reopenings < 2; { // each probe fails
				if now = sync(wire.Report{WantProbe: true}); now.Permit != nil {
					sync(wire.Report{Epoch: now.Epoch, Generation: now.Generation, Requests: 1, Attempts: 1, Failure: 1,
						Probes: []wire.ProbeResult{{Token: now.Permit.Token, Outcome: "failure"}}})
				}
				time.Sleep(100 * time.Millisecond)
				d, _ := b.x.Dependency("a")
				reopenings = d.Breaker.Automatic.Reopenings
			}
			if _, err := b.x.Reset(t.Context(), "a", "t"); err != nil {
				t.Fatal(err)
			}
			var got []string
			for cause := range causes {
				if got = append(got, cause); cause == "reset" {
					break
				}
			}
			if strings.Join(got, " ") != want {
				t.Errorf("%q: got %v, want %s", query, got, want)
			}
		})
	}
}

// bubbled is a replica in virtual time, behind connections that hold no bytes: a client that does not read blocks its
// writer at once.
type bubbled struct {
	x      *exchange.Exchange
	listen *pipeListener
}

func bubble(t *testing.T) *bubbled {
	t.Helper()
	rdb, _ := redistest.Virtual(t, time.Millisecond)
	x := exchange.New(exchange.Config{Board: sharedbreaker.New(rdb), Ledger: sharedbudget.New(rdb)})
	server := api.New(api.Deps{Exchange: x})
	b := &bubbled{x: x, listen: &pipeListener{conns: make(chan net.Conn), closed: make(chan struct{})}}
	h := &http.Server{Handler: server}
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() { _ = x.Run(ctx) })
	wg.Go(func() { server.Run(ctx) })
	wg.Go(func() { _ = h.Serve(b.listen) })
	t.Cleanup(func() {
		_ = h.Close()
		cancel()
		wg.Wait()
	})
	for x.Health().Degraded {
		time.Sleep(50 * time.Millisecond) // virtual
	}
	return b
}

func (b *bubbled) request(t *testing.T, path string) *bufio.Reader {
	t.Helper()
	client, server := net.Pipe()
	b.listen.conns <- server
	t.Cleanup(func() { _ = client.Close() })
	if _, err := fmt.Fprintf(client, "GET %s HTTP/1.1\r\nHost: x\r\n\r\n", path); err != nil {
		t.Fatal(err)
	}
	return bufio.NewReaderSize(client, 16)
}

// dial opens a stream and reads its status line.
func (b *bubbled) dial(t *testing.T) *bufio.Reader {
	t.Helper()
	r := b.request(t, wire.PathStream)
	if line, err := r.ReadString('\n'); err != nil || !strings.Contains(line, "200") {
		t.Fatalf("got %q, %v", line, err)
	}
	return r
}

func (b *bubbled) status(t *testing.T) wire.Status {
	t.Helper()
	r := b.request(t, wire.PathStatus)
	resp, err := http.ReadResponse(r, nil)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return decode[wire.Status](t, string(raw))
}

// pipeListener accepts in-memory connections.
type pipeListener struct {
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once
}

func (l *pipeListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

func (l *pipeListener) Close() error {
	l.once.Do(func() { close(l.closed) })
	return nil
}

func (l *pipeListener) Addr() net.Addr { return &net.TCPAddr{} }
