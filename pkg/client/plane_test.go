package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/retryplane/retryplane/pkg/wire"
)

// plane is a scripted control plane behind an in-memory network: what a real one may do, on demand.
type plane struct {
	t      *testing.T
	server *http.Server
	listen *pipeListener
	client *http.Client

	mu     sync.Mutex
	down   bool // dialling fails
	hole   bool // requests are taken and never answered
	delay  time.Duration
	status int // answer with this problem instead
	code   string
	header http.Header
	decide func(wire.Report) wire.Decision // default: closed, every want granted
	next   int64
	degr   bool
	stream http.HandlerFunc
	syncs  []seen
	limit  int    // of a body; 0 = the API's
	forbid string // a dependency that the token is not for
}

// seen is a sync as it arrived.
type seen struct {
	at  time.Time
	req wire.SyncRequest
}

// newPlane starts a control plane. In a synctest bubble it must be the bubble's own.
func newPlane(t *testing.T) *plane {
	p := &plane{t: t, listen: newPipeListener()}
	p.client = &http.Client{Transport: &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			p.mu.Lock()
			down := p.down
			p.mu.Unlock()
			if down {
				return nil, &net.OpError{Op: "dial", Err: errors.New("refused")}
			}
			return p.listen.dial(ctx)
		},
	}}
	mux := http.NewServeMux()
	mux.HandleFunc("POST "+wire.PathSync, p.sync)
	mux.HandleFunc("GET "+wire.PathStream, func(w http.ResponseWriter, r *http.Request) {
		p.mu.Lock()
		h := p.stream
		p.mu.Unlock()
		if h == nil {
			http.NotFound(w, r)
			return
		}
		h(w, r)
	})
	p.server = &http.Server{Handler: mux}
	go func() { _ = p.server.Serve(p.listen) }()
	t.Cleanup(p.close)
	return p
}

func (p *plane) close() {
	p.client.CloseIdleConnections()
	_ = p.server.Close()
}

// set changes the script.
func (p *plane) set(f func(*plane)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	f(p)
	if p.down {
		p.client.CloseIdleConnections()
	}
}

func (p *plane) sync(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	p.mu.Lock()
	hole, delay, status, code, header, decide, next, degr := p.hole, p.delay, p.status, p.code, p.header, p.decide, p.next, p.degr
	limit := p.limit
	p.mu.Unlock()
	if limit > 0 && len(body) > limit {
		p.problem(w, http.StatusRequestEntityTooLarge, wire.CodeTooLarge)
		return
	}
	var req wire.SyncRequest
	if err := json.Unmarshal(body, &req); err != nil {
		p.t.Errorf("body is not a sync: %v", err)
	}
	p.mu.Lock()
	forbid := p.forbid
	p.mu.Unlock()
	var fields []wire.ProblemField
	for i, rep := range req.Dependencies {
		if rep.Name == forbid {
			fields = append(fields, wire.ProblemField{Field: fmt.Sprintf("dependencies[%d].name", i)})
		}
	}
	if len(fields) > 0 {
		p.problem(w, http.StatusForbidden, wire.CodeForbidden, fields...)
		return
	}
	if hole {
		<-r.Context().Done()
		return
	}
	time.Sleep(delay)
	p.mu.Lock()
	p.syncs = append(p.syncs, seen{time.Now(), req})
	p.mu.Unlock()
	if status != 0 {
		for k, v := range header {
			w.Header()[k] = v
		}
		p.problem(w, status, code)
		return
	}
	resp := wire.SyncResponse{Seq: req.Seq, NextSyncMS: 1000, Degraded: degr, Dependencies: []wire.Decision{}}
	if next > 0 {
		resp.NextSyncMS = next
	}
	done := map[string]bool{}
	for _, rep := range req.Dependencies {
		if done[rep.Name] && rep.Want == 0 && !rep.WantProbe {
			continue
		}
		dec := wire.Decision{Name: rep.Name, Epoch: "e", Generation: 1, State: wire.Closed, Granted: rep.Want, GrantTTLMS: 3000, Instances: 10}
		if decide != nil {
			dec = decide(rep)
			dec.Name = rep.Name
		}
		if done[rep.Name] {
			for i := range resp.Dependencies {
				if resp.Dependencies[i].Name == rep.Name {
					resp.Dependencies[i] = dec
				}
			}
			continue
		}
		done[rep.Name] = true
		resp.Dependencies = append(resp.Dependencies, dec)
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(resp)
}

func (p *plane) problem(w http.ResponseWriter, status int, code string, fields ...wire.ProblemField) {
	w.Header().Set("Content-Type", wire.ContentType)
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(wire.Problem{Type: "about:blank", Status: status, Code: code, Errors: fields})
}

// seen returns the syncs that arrived so far, and forgets them.
func (p *plane) seen() []seen {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.syncs
	p.syncs = nil
	return s
}

// sum adds up what was reported about a dependency.
func sum(syncs []seen, name string) (r wire.Report) {
	r.AttemptsPerRequest = make([]int64, 5)
	for _, s := range syncs {
		for _, rep := range s.req.Dependencies {
			if rep.Name != name {
				continue
			}
			r.Requests += rep.Requests
			r.Attempts += rep.Attempts
			r.Success += rep.Success
			r.Failure += rep.Failure
			r.Throttled += rep.Throttled
			r.Ignored += rep.Ignored
			r.RejectedBreaker += rep.RejectedBreaker
			r.RejectedBudget += rep.RejectedBudget
			r.Ungranted += rep.Ungranted
			r.Want += rep.Want
			r.LatencyCount += rep.LatencyCount
			r.Probes = append(r.Probes, rep.Probes...)
			for i, n := range rep.AttemptsPerRequest {
				r.AttemptsPerRequest[i] += n
			}
		}
	}
	return r
}

// bubble runs f in virtual time, with a control plane and a client of it.
func bubble(t *testing.T, f func(t *testing.T, p *plane, c *Client), opts ...Option) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newPlane(t)
		c := newClient(t, p, opts...)
		// Before the plane goes: what is under way must not meet a server that is gone.
		t.Cleanup(func() {
			if err := c.Close(context.Background()); err != nil && !errors.Is(err, ErrUnreachable) {
				t.Logf("close: %v", err)
			}
		})
		f(t, p, c)
	})
}

func newClient(t *testing.T, p *plane, opts ...Option) *Client {
	t.Helper()
	c, err := New("http://plane", append([]Option{WithHTTPClient(p.client)}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// pipeListener is a network of one listener.
type pipeListener struct {
	conns chan net.Conn
	done  chan struct{}
	once  sync.Once
}

func newPipeListener() *pipeListener {
	return &pipeListener{conns: make(chan net.Conn), done: make(chan struct{})}
}

func (l *pipeListener) dial(ctx context.Context) (net.Conn, error) {
	here, there := net.Pipe()
	select {
	case l.conns <- there:
		return here, nil
	case <-l.done:
		return nil, net.ErrClosed
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (l *pipeListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.done:
		return nil, net.ErrClosed
	}
}

func (l *pipeListener) Close() error {
	l.once.Do(func() { close(l.done) })
	return nil
}

func (l *pipeListener) Addr() net.Addr { return pipeAddr{} }

type pipeAddr struct{}

func (pipeAddr) Network() string { return "pipe" }
func (pipeAddr) String() string  { return "plane" }
