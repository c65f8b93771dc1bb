package client_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/retryplane/retryplane/pkg/client"
	"github.com/retryplane/retryplane/pkg/policy"
)

// pipes serves HTTP over connections in memory, for virtual time, and returns a base transport that dials them. Protocols
// other than HTTP/1.1 are set on both sides.
func pipes(t *testing.T, h http.Handler, proto ...string) *http.Transport {
	l := &pipeListener{conns: make(chan net.Conn), closed: make(chan struct{})}
	protocols := new(http.Protocols)
	protocols.SetHTTP1(!slices.Contains(proto, "HTTP/2.0"))
	protocols.SetUnencryptedHTTP2(slices.Contains(proto, "HTTP/2.0"))
	server := &http.Server{Handler: h, Protocols: protocols}
	var wg sync.WaitGroup
	wg.Go(func() { server.Serve(l) })
	base := &http.Transport{DialContext: l.dial, Protocols: protocols}
	t.Cleanup(func() {
		base.CloseIdleConnections()
		server.Close()
		wg.Wait()
	})
	return base
}

type pipeListener struct {
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once
}

func (l *pipeListener) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	ours, theirs := net.Pipe()
	select {
	case l.conns <- theirs:
		return ours, nil
	case <-l.closed:
		return nil, net.ErrClosed
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (l *pipeListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

func (l *pipeListener) Close() error   { l.once.Do(func() { close(l.closed) }); return nil }
func (l *pipeListener) Addr() net.Addr { return &net.UnixAddr{Name: "pipe"} }

func TestTransportTimes(t *testing.T) {
	t.Parallel()
	p := policy.Default()
	p.Breaker.LocalFailures = 0
	p.Retry.Jitter = policy.JitterNone

	t.Run("Retry-After is a lower bound, with jitter above", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			calls := 0
			base := pipes(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				if calls++; calls == 1 {
					w.Header().Set("Retry-After", "4")
					w.WriteHeader(http.StatusTooManyRequests)
				}
			}))
			c, _ := newGuard(t, p)
			start := time.Now()
			resp, err := get(t, c.Transport("api", base), "http://api.test")
			took := time.Since(start)
			if err != nil || resp.StatusCode != 200 || took <= 4*time.Second || took > 4100*time.Millisecond {
				t.Errorf("got %v, %v after %v", resp, err, took)
			}
		})
	})

	t.Run("deadline over attempts that hang", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			var calls atomic.Int32
			base := pipes(t, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
				calls.Add(1)
				<-r.Context().Done()
			}))
			p := p
			p.Retry.Attempts = 9
			c, plane := newGuard(t, p)
			start := time.Now()
			_, err := get(t, c.Transport("api", base), "http://api.test")
			var got *client.Error
			if !errors.As(err, &got) || got.Reason != policy.StopDeadline || !got.Timeout() || got.Attempts != 4 {
				t.Errorf("got %v", err)
			}
			// 3 s, 0.1 s, 3 s, 0.2 s, 3 s, 0.4 s, and the rest of the 10 s.
			if took := time.Since(start); took != 10*time.Second {
				t.Errorf("took %v", took)
			}
			if r := plane.report(t, c); r.Failure != 3 || r.Ignored != 1 {
				t.Errorf("reported %+v", r)
			}
		})
	})

	t.Run("the body has the deadline of the call", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			base := pipes(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				for range 20 {
					io.WriteString(w, "x")
					w.(http.Flusher).Flush()
					select {
					case <-time.After(1500 * time.Millisecond):
					case <-r.Context().Done():
						return
					}
				}
			}))
			c, _ := newGuard(t, p)
			start := time.Now()
			resp, err := get(t, c.Transport("api", base), "http://api.test")
			if !errors.Is(err, context.DeadlineExceeded) || text(t, resp) != strings.Repeat("x", 7) {
				t.Errorf("got %v, %v", resp, err)
			}
			if took := time.Since(start); took != 10*time.Second {
				t.Errorf("took %v", took)
			}
		})
	})

	t.Run("an event stream has none", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			base := pipes(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
				for range 60 {
					io.WriteString(w, ":\n")
					w.(http.Flusher).Flush()
					time.Sleep(time.Second)
				}
			}))
			c, _ := newGuard(t, p)
			if resp, err := get(t, c.Transport("api", base), "http://api.test"); err != nil || len(text(t, resp)) != 120 {
				t.Errorf("got %v, %v", resp, err)
			}
		})
	})

	// A response whose retry is refused after the wait still has its body.
	t.Run("budget refuses", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			base := pipes(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w.WriteHeader(http.StatusServiceUnavailable)
				io.WriteString(w, "busy")
			}))
			c, plane := newGuard(t, p)
			plane.grants = 0
			resp, err := get(t, c.Transport("api", base), "http://api.test")
			if err != nil || resp.StatusCode != 503 || text(t, resp) != "busy" {
				t.Errorf("got %v, %v", resp, err)
			}
			if r := plane.report(t, c); r.RejectedBudget != 1 || r.Attempts != 1 {
				t.Errorf("reported %+v", r)
			}
		})
	})

	// http.Client.Timeout cancels wrapped transports through Request.Cancel.
	t.Run("cancelled through the request while waiting", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			base := pipes(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w.WriteHeader(http.StatusServiceUnavailable)
			}))
			p := p
			p.Retry.Base = time.Second
			c, _ := newGuard(t, p)
			var how client.Call
			req, _ := http.NewRequestWithContext(client.WithCall(t.Context(), client.Record(&how)), http.MethodGet, "http://api.test", nil)
			cancel := make(chan struct{})
			req.Cancel = cancel //nolint:staticcheck // that is what is tested
			time.AfterFunc(300*time.Millisecond, func() { close(cancel) })
			start := time.Now()
			_, err := c.Transport("api", base).RoundTrip(req)
			if !errors.Is(err, context.Canceled) || how.Reason != policy.StopCancelled || how.LastStatus != 503 ||
				time.Since(start) != 300*time.Millisecond {
				t.Errorf("got %v, %+v", err, how)
			}
		})
	})
}
