package client_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/retryplane/retryplane/pkg/client"
	"github.com/retryplane/retryplane/pkg/policy"
)

// A response that is retried gives its connection back, if its body is short.
func TestTransportReusesConnections(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name  string
		size  int
		conns int32
	}{
		{"empty", 0, 1},
		{"short", 1000, 1},
		{"just within the limit", 64 << 10, 1},
		{"too long", 65 << 10, 3},
	} {
		for _, chunked := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, chunked %t", tc.name, chunked), func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					var calls, conns atomic.Int32
					base := pipes(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
						if calls.Add(1) == 3 {
							return
						}
						if !chunked {
							w.Header().Set("Content-Length", fmt.Sprint(tc.size))
						}
						w.WriteHeader(http.StatusBadGateway)
						if chunked {
							w.(http.Flusher).Flush()
						}
						io.WriteString(w, strings.Repeat("x", tc.size))
					}))
					dial := base.DialContext
					base.DialContext = func(ctx context.Context, network, addr string) (net.Conn, error) {
						conns.Add(1)
						return dial(ctx, network, addr)
					}
					base.MaxConnsPerHost = 1 // a response that was kept open would block the next attempt
					c, _ := newGuard(t, quick())
					resp, err := get(t, c.Transport("api", base), "http://api.test")
					if err != nil || resp.StatusCode != 200 || conns.Load() != tc.conns {
						t.Errorf("got %v, %v over %d connections, want %d", resp, err, conns.Load(), tc.conns)
					}
				})
			})
		}
	}
}

// A body that does not come is given up after 50 ms.
func TestTransportDrainsForALimitedTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		calls := 0
		base := pipes(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if calls++; calls == 1 {
				w.WriteHeader(http.StatusBadGateway)
				w.(http.Flusher).Flush()
				<-r.Context().Done()
			}
		}))
		p := quick()
		c, _ := newGuard(t, p)
		start := time.Now()
		resp, err := get(t, c.Transport("api", base), "http://api.test")
		if err != nil || resp.StatusCode != 200 {
			t.Fatalf("got %v, %v", resp, err)
		}
		if took := time.Since(start); took != p.Retry.Base+50*time.Millisecond {
			t.Errorf("took %v", took)
		}
	})
}

// What net/http sends again by itself, on a connection that turns out to be dead, is an attempt that nobody granted.
func TestTransportCountsResends(t *testing.T) {
	t.Parallel()
	addr, _ := rawServer(t, func(conn *net.TCPConn, n int) {
		r := bufio.NewReader(conn)
		for i := 1; ; i++ {
			if _, err := http.ReadRequest(r); err != nil {
				return
			}
			if n == 1 && i == 2 {
				return // received, and hung up on
			}
			answer(conn, answerOK)
		}
	})
	c, plane := newGuard(t, quick())
	rt := c.Transport("api", newTransport(t))
	if _, err := get(t, rt, "http://"+addr); err != nil {
		t.Fatal(err)
	}
	var how client.Call
	req, _ := http.NewRequestWithContext(client.WithCall(t.Context(), client.Record(&how)), http.MethodGet, "http://"+addr, nil)
	resp, err := rt.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	r := plane.report(t, c)
	if how.Attempts != 2 || r.Requests != 2 || r.Attempts != 3 || r.Ungranted != 1 {
		t.Errorf("recorded %+v, reported %+v", how, r)
	}
	if got := c.Stats().Dependencies["api"].RequestAttempts; got != [5]int64{1, 1} {
		t.Errorf("requests by attempts: %v", got)
	}
}

// The connection that a server is not responsible on is not used again, and the new one is not kept.
func TestTransportMisdirected(t *testing.T) {
	t.Parallel()
	for _, proto := range []string{"HTTP/1.1", "HTTP/2.0"} {
		t.Run(proto, func(t *testing.T) {
			t.Parallel()
			var mu sync.Mutex
			var from []string
			server, base := newServer(t, proto, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				mu.Lock()
				defer mu.Unlock()
				from = append(from, r.RemoteAddr)
				if r.RemoteAddr == from[0] {
					w.WriteHeader(http.StatusMisdirectedRequest)
				}
				io.WriteString(w, r.Proto)
			}))
			c, plane := newGuard(t, quick())
			rt := c.Transport("api", base)
			for range 2 {
				resp, err := send(t, rt, http.MethodPost, server.URL, strings.NewReader("x"))
				if err != nil || resp.StatusCode != 200 || text(t, resp) != proto {
					t.Fatalf("got %v, %v", resp, err)
				}
			}
			if len(from) != 4 || from[1] == from[0] || from[2] != from[0] || from[3] == from[1] {
				t.Errorf("came from %v", from)
			}
			if r := plane.report(t, c); r.Ignored != 2 || r.Success != 2 {
				t.Errorf("reported %+v", r)
			}
		})
	}
}

// A response may come while the request is still being sent, and both go on side by side.
func TestTransportFullDuplex(t *testing.T) {
	t.Parallel()
	server, base := newServer(t, "HTTP/2.0", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.(http.Flusher).Flush()
		lines := bufio.NewScanner(r.Body)
		for lines.Scan() {
			fmt.Fprintln(w, "echo", lines.Text())
			w.(http.Flusher).Flush()
		}
	}))
	c, _ := newGuard(t, quick())
	pr, pw := io.Pipe()
	body := &closeCounter{Reader: pr}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPut, server.URL, body)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := c.Transport("api", base).RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	lines := bufio.NewScanner(resp.Body)
	for _, word := range []string{"one", "two", "three"} {
		io.WriteString(pw, word+"\n")
		if !lines.Scan() || lines.Text() != "echo "+word {
			t.Fatalf("got %q, %v", lines.Text(), lines.Err())
		}
	}
	pw.Close()
	if lines.Scan() || lines.Err() != nil {
		t.Errorf("got %q, %v; want the end", lines.Text(), lines.Err())
	}
	body.wantClosed(t)
}

// A body that breaks after a good status comes too late for a retry, and for the breaker.
func TestTransportBodyBreaks(t *testing.T) {
	t.Parallel()
	addr, accepted := rawServer(t, func(conn *net.TCPConn, _ int) {
		readRequest(conn)
		answer(conn, "HTTP/1.1 200 OK\nContent-Length: 10\n\nhalf")
	})
	c, plane := newGuard(t, quick())
	resp, err := get(t, c.Transport("api", newTransport(t)), "http://"+addr)
	if !errors.Is(err, io.ErrUnexpectedEOF) || text(t, resp) != "half" || accepted.Load() != 1 {
		t.Errorf("got %v after %d sends", err, accepted.Load())
	}
	if r := plane.report(t, c); r.Attempts != 1 || r.Success != 1 || r.Failure != 1 {
		t.Errorf("reported %+v", r)
	}
}

func TestTransportUpgrades(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		base := pipes(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			conn, rw, err := w.(http.Hijacker).Hijack()
			if err != nil {
				t.Error(err)
				return
			}
			defer conn.Close()
			answer(conn, "HTTP/1.1 101 Switching Protocols\nConnection: Upgrade\nUpgrade: echo\n\n")
			io.Copy(conn, rw)
		}))
		c, _ := newGuard(t, policy.Default())
		req, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://api.test", nil)
		req.Header.Set("Connection", "Upgrade")
		req.Header.Set("Upgrade", "echo")
		resp, err := c.Transport("api", base).RoundTrip(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		conn, ok := resp.Body.(io.ReadWriteCloser)
		if !ok {
			t.Fatalf("%T cannot be written to", resp.Body)
		}
		for range 3 {
			time.Sleep(time.Minute) // the protocol outlives the deadline of the call
			got := make([]byte, 4)
			if _, err := io.WriteString(conn, "ping"); err != nil {
				t.Fatal(err)
			}
			if _, err := io.ReadFull(conn, got); err != nil || string(got) != "ping" {
				t.Fatalf("got %q, %v", got, err)
			}
		}
	})
}
