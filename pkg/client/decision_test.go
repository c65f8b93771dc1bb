package client_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/retryplane/retryplane/pkg/client"
	"github.com/retryplane/retryplane/pkg/policy"
)

// vector is one row of testdata that pkg/policy answers on paper, and this package on the wire.
type vector struct {
	Name            string
	Method          string
	Status          int
	Error           string
	Attempt         int
	RequestHeaders  map[string]string `json:"request_headers"`
	ResponseHeaders map[string]string `json:"response_headers"`
	Options         struct {
		Retry500               bool `json:"retry_500"`
		RetryThrottledWrites   bool `json:"retry_throttled_writes"`
		RetryUnavailableWrites bool `json:"retry_unavailable_writes"`
	}
	Want struct{ Action, Breaker string }
}

func decisionVectors(t *testing.T) []vector {
	t.Helper()
	text, err := os.ReadFile("../policy/testdata/vectors/decisions.json")
	if err != nil {
		t.Fatal(err)
	}
	var vectors []vector
	if err := json.Unmarshal(text, &vectors); err != nil {
		t.Fatal(err)
	}
	return vectors
}

func TestTransportDecidesByStatus(t *testing.T) {
	t.Parallel()
	for _, v := range decisionVectors(t) {
		if v.Status == 0 {
			continue
		}
		t.Run(v.Name, func(t *testing.T) {
			t.Parallel()
			var mu sync.Mutex
			var expects []bool
			conns := map[string]bool{}
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				mu.Lock()
				expects = append(expects, r.Header.Get("Expect") != "")
				conns[r.RemoteAddr] = true
				first := len(expects) == 1
				mu.Unlock()
				if !first {
					return
				}
				for name, value := range v.ResponseHeaders {
					w.Header().Set(name, value)
				}
				w.WriteHeader(v.Status)
			}))
			t.Cleanup(server.Close)
			p := quick()
			p.Retry.RetryAfterCap, p.Retry.Deadline = 0, 30*time.Second
			if v.ResponseHeaders["Retry-After"] != "" {
				p.Retry.RetryAfterCap = time.Minute
			}
			p.Retry.Retry500 = v.Options.Retry500
			p.Retry.RetryThrottledWrites = v.Options.RetryThrottledWrites
			p.Retry.RetryUnavailableWrites = v.Options.RetryUnavailableWrites
			c, plane := newGuard(t, p)

			req, err := http.NewRequestWithContext(t.Context(), v.Method, server.URL, nil)
			if err != nil {
				t.Fatal(err)
			}
			for name, value := range v.RequestHeaders {
				req.Header.Set(name, value)
			}
			resp, err := c.Transport("api", newTransport(t)).RoundTrip(req)
			if err != nil {
				t.Fatal(err)
			}
			resp.Body.Close()

			report := plane.report(t, c)
			wantSends, wantStatus := 1, v.Status
			if v.Want.Action != "stop" {
				wantSends, wantStatus = 2, 200
				report.Success-- // the second attempt's
			}
			if len(expects) != wantSends || resp.StatusCode != wantStatus {
				t.Errorf("got status %d after %d sends, want %d after %d", resp.StatusCode, len(expects), wantStatus, wantSends)
			}
			got := map[string]int64{
				"success": report.Success, "failure": report.Failure, "throttled": report.Throttled, "ignored": report.Ignored,
			}
			if got[v.Want.Breaker] != 1 {
				t.Errorf("the breaker saw %v, want %s", got, v.Want.Breaker)
			}
			switch v.Want.Action {
			case "retry_new_connection":
				if len(conns) != 2 {
					t.Errorf("used %d connections, want a new one", len(conns))
				}
			case "retry_without_expect":
				if !slices.Equal(expects, []bool{true, false}) {
					t.Errorf("sent Expect %v", expects)
				}
			}
		})
	}
}

// rawServer accepts TCP connections and has handle do with the n-th of them (from 1) what it likes.
func rawServer(t *testing.T, handle func(conn *net.TCPConn, n int)) (addr string, accepted *atomic.Int32) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	accepted = new(atomic.Int32)
	var wg sync.WaitGroup
	var mu sync.Mutex
	var open []net.Conn
	wg.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			n := int(accepted.Add(1))
			mu.Lock()
			open = append(open, conn)
			mu.Unlock()
			wg.Go(func() {
				defer conn.Close()
				handle(conn.(*net.TCPConn), n)
			})
		}
	})
	t.Cleanup(func() {
		l.Close()
		mu.Lock()
		for _, conn := range open {
			conn.Close()
		}
		mu.Unlock()
		wg.Wait()
	})
	return l.Addr().String(), accepted
}

func readRequest(conn net.Conn) *http.Request {
	req, err := http.ReadRequest(bufio.NewReader(conn))
	if err != nil {
		return nil
	}
	io.Copy(io.Discard, req.Body)
	return req
}

func answer(conn net.Conn, text string) { io.WriteString(conn, strings.ReplaceAll(text, "\n", "\r\n")) }

const answerOK = "HTTP/1.1 200 OK\nContent-Length: 2\n\nok"

func reset(conn *net.TCPConn) {
	conn.SetLinger(0)
	conn.Close()
}

// fault is a dependency that fails in one way, always. sends counts what it received of requests, or of connections
// where no request gets through.
type fault struct {
	url   string
	base  *http.Transport
	sends func() int
	edit  func(*http.Request)
}

func faults() map[string]func(t *testing.T, p *policy.Policy) fault {
	raw := func(handle func(conn *net.TCPConn, n int)) func(*testing.T, *policy.Policy) fault {
		return func(t *testing.T, _ *policy.Policy) fault {
			addr, accepted := rawServer(t, handle)
			return fault{url: "http://" + addr, base: newTransport(t), sends: func() int { return int(accepted.Load()) }}
		}
	}
	dialing := func(err error) func(*testing.T, *policy.Policy) fault {
		return func(t *testing.T, _ *policy.Policy) fault {
			var dials atomic.Int32
			base := newTransport(t)
			base.DialContext = func(context.Context, string, string) (net.Conn, error) {
				dials.Add(1)
				return nil, err
			}
			return fault{url: "http://api.test", base: base, sends: func() int { return int(dials.Load()) }}
		}
	}
	secure := func(config func(*tls.Config), name string) func(*testing.T, *policy.Policy) fault {
		return func(t *testing.T, _ *policy.Policy) fault {
			var conns atomic.Int32
			server := httptest.NewUnstartedServer(http.NotFoundHandler())
			server.Config.ConnState = func(_ net.Conn, s http.ConnState) {
				if s == http.StateNew {
					conns.Add(1)
				}
			}
			server.Config.ErrorLog = log.New(io.Discard, "", 0)
			server.StartTLS()
			t.Cleanup(server.Close)
			base := newTransport(t)
			base.TLSClientConfig = server.Client().Transport.(*http.Transport).TLSClientConfig.Clone()
			config(base.TLSClientConfig)
			base.DialContext = func(ctx context.Context, network, _ string) (net.Conn, error) {
				return new(net.Dialer).DialContext(ctx, network, server.Listener.Addr().String())
			}
			return fault{url: "https://" + name, base: base, sends: func() int { return int(conns.Load()) }}
		}
	}
	invalid := func(url string, edit func(*http.Request)) func(*testing.T, *policy.Policy) fault {
		return func(t *testing.T, _ *policy.Policy) fault {
			addr, accepted := rawServer(t, func(*net.TCPConn, int) {})
			return fault{
				url: strings.ReplaceAll(url, "ADDR", addr), base: newTransport(t),
				sends: func() int { return int(accepted.Load()) + 1 }, edit: edit,
			}
		}
	}
	return map[string]func(*testing.T, *policy.Policy) fault{
		"dial_refused": func(t *testing.T, _ *policy.Policy) fault {
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			l.Close()
			var dials atomic.Int32
			base := newTransport(t)
			base.DialContext = func(ctx context.Context, network, addr string) (net.Conn, error) {
				dials.Add(1)
				return new(net.Dialer).DialContext(ctx, network, addr)
			}
			return fault{url: "http://" + l.Addr().String(), base: base, sends: func() int { return int(dials.Load()) }}
		},
		"dial_timeout":     dialing(&net.OpError{Op: "dial", Net: "tcp", Err: os.ErrDeadlineExceeded}),
		"dial_unreachable": dialing(&net.OpError{Op: "dial", Net: "tcp", Err: os.NewSyscallError("connect", syscall.EHOSTUNREACH)}),
		"dns_temporary":    dialing(&net.OpError{Op: "dial", Net: "tcp", Err: &net.DNSError{Err: "server misbehaving", Name: "api.test", IsTemporary: true}}),
		"dns_not_found":    dialing(&net.OpError{Op: "dial", Net: "tcp", Err: &net.DNSError{Err: "no such host", Name: "api.test", IsNotFound: true}}),
		"tls_unknown_ca":   secure(func(c *tls.Config) { c.RootCAs = nil }, "example.com"),
		"tls_wrong_host":   secure(func(*tls.Config) {}, "other.test"),
		"tls_expired": secure(func(c *tls.Config) {
			c.Time = func() time.Time { return time.Date(2200, 1, 1, 0, 0, 0, 0, time.UTC) }
		}, "example.com"),
		"bad_scheme": invalid("gopher://ADDR", nil),
		"bad_header": invalid("http://ADDR", func(r *http.Request) { r.Header["X-Bad"] = []string{"a\nb"} }),
		"reset_after_write": raw(func(conn *net.TCPConn, _ int) {
			readRequest(conn)
			reset(conn)
		}),
		"eof_after_write": raw(func(conn *net.TCPConn, _ int) { readRequest(conn) }),
		"attempt_timeout": func(t *testing.T, p *policy.Policy) fault {
			p.Retry.AttemptTimeout = 500 * time.Millisecond
			var sends atomic.Int32
			addr, _ := rawServer(t, func(conn *net.TCPConn, _ int) {
				if readRequest(conn) != nil {
					sends.Add(1)
				}
				io.Copy(io.Discard, conn)
			})
			return fault{url: "http://" + addr, base: newTransport(t), sends: func() int { return int(sends.Load()) }}
		},
		// Before TLS is through, no header can have been written.
		"reset_before_headers": func(t *testing.T, p *policy.Policy) fault {
			f := raw(func(conn *net.TCPConn, _ int) {
				io.ReadFull(conn, make([]byte, 5))
				reset(conn)
			})(t, p)
			f.url = strings.Replace(f.url, "http:", "https:", 1)
			return f
		},
		"malformed_response": raw(func(conn *net.TCPConn, _ int) {
			readRequest(conn)
			answer(conn, "ICY 200 OK\n\n")
		}),
	}
}

func TestTransportDecidesByFault(t *testing.T) {
	t.Parallel()
	all := faults()
	for _, v := range decisionVectors(t) {
		if v.Error == "" || v.Error == "caller_cancelled" || v.Attempt > 1 { // these two: see below
			continue
		}
		t.Run(v.Name, func(t *testing.T) {
			t.Parallel()
			if all[v.Error] == nil {
				t.Fatalf("no server does %q", v.Error)
			}
			p := quick()
			p.Retry.Attempts = 2
			f := all[v.Error](t, &p)
			c, plane := newGuard(t, p)
			req, err := http.NewRequestWithContext(t.Context(), v.Method, f.url, nil)
			if err != nil {
				t.Fatal(err)
			}
			for name, value := range v.RequestHeaders {
				req.Header.Set(name, value)
			}
			if f.edit != nil {
				f.edit(req)
			}
			resp, err := c.Transport("api", f.base).RoundTrip(req)
			var got *client.Error
			if !errors.As(err, &got) || resp != nil {
				t.Fatalf("got %v, %v; want a *client.Error", resp, err)
			}
			want, reason := 1, policy.StopNotRetryable
			if v.Want.Action == "retry" {
				want, reason = 2, policy.StopAttempts
			}
			if n := f.sends(); n != want || got.Attempts != want || got.Reason != reason {
				t.Errorf("got %d sends, %d attempts, %q; want %d, %q: %v", n, got.Attempts, got.Reason, want, reason, err)
			}
			report := plane.report(t, c)
			saw := map[string]int64{"failure": report.Failure, "ignored": report.Ignored}
			if saw[v.Want.Breaker] != int64(want) || report.Success > 0 {
				t.Errorf("the breaker saw %v, want %d %s: %v", saw, want, v.Want.Breaker, err)
			}
		})
	}
}

func TestTransportRetriesMalformedOnce(t *testing.T) {
	t.Parallel()
	addr, accepted := rawServer(t, func(conn *net.TCPConn, _ int) {
		readRequest(conn)
		answer(conn, "HTTP/1.1 two hundred\n\n")
	})
	c, _ := newGuard(t, quick())
	_, err := get(t, c.Transport("api", newTransport(t)), "http://"+addr)
	var got *client.Error
	if !errors.As(err, &got) || got.Attempts != 2 || got.Reason != policy.StopNotRetryable || accepted.Load() != 2 {
		t.Errorf("got %v after %d, want one retry", err, accepted.Load())
	}
}
