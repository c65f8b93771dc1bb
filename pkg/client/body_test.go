package client_test

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/retryplane/retryplane/pkg/client"
	"github.com/retryplane/retryplane/pkg/policy"
)

// bodyOf hides what kind of reader r is, so that no GetBody can be made of it, and counts Close.
func bodyOf(r io.Reader) *closeCounter { return &closeCounter{Reader: struct{ io.Reader }{r}} }

func TestTransportSendsBodiesAgain(t *testing.T) {
	t.Parallel()
	const buffer = 64 << 10
	for _, proto := range []string{"HTTP/1.1", "HTTP/2.0"} {
		for _, kind := range []string{"GetBody", "length known", "chunked"} {
			for _, size := range []int{1, 1000, buffer, buffer + 1, 3 << 20} {
				t.Run(fmt.Sprintf("%s %s %d", proto, kind, size), func(t *testing.T) {
					t.Parallel()
					var mu sync.Mutex
					var sums []string
					server, base := newServer(t, proto, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
						h := sha256.New()
						n, err := io.Copy(h, r.Body)
						mu.Lock()
						defer mu.Unlock()
						sums = append(sums, fmt.Sprintf("%d %x %v", n, h.Sum(nil), err))
						if len(sums) < 3 {
							w.WriteHeader(http.StatusServiceUnavailable)
						}
					}))
					p := quick()
					p.Retry.ReplayBuffer = buffer
					c, _ := newGuard(t, p)

					data := bytes.Repeat([]byte("0123456789abcde"), size/15+1)[:size]
					body := bodyOf(bytes.NewReader(data))
					var how client.Call
					req, err := http.NewRequestWithContext(client.WithCall(t.Context(), client.Record(&how)), http.MethodPut, server.URL, body)
					if err != nil {
						t.Fatal(err)
					}
					switch kind {
					case "length known":
						req.ContentLength = int64(size)
					case "GetBody":
						req.ContentLength = int64(size)
						req.GetBody = func() (io.ReadCloser, error) { return bodyOf(bytes.NewReader(data)), nil }
					}
					resp, err := c.Transport("api", base).RoundTrip(req)
					if err != nil {
						t.Fatal(err)
					}
					resp.Body.Close()

					wantSends, wantReason := 3, policy.StopDone
					if kind != "GetBody" && size > buffer {
						wantSends, wantReason = 1, policy.StopBody
					}
					want := slices.Repeat([]string{fmt.Sprintf("%d %x %v", size, sha256.Sum256(data), nil)}, wantSends)
					if !slices.Equal(sums, want) || how.Reason != wantReason || how.Attempts != wantSends {
						t.Errorf("sent %v, %q; want %v, %q", sums, how.Reason, want, wantReason)
					}
					body.wantClosed(t)
				})
			}
		}
	}
}

// A server may answer long before it has read the request. What it did not take is read for the next attempt.
func TestTransportBodyReadInPart(t *testing.T) {
	t.Parallel()
	const size = 600 << 10
	var calls atomic.Int32
	addr, _ := rawServer(t, func(conn *net.TCPConn, n int) {
		if n == 1 {
			conn.Read(make([]byte, 1000))
			answer(conn, "HTTP/1.1 503 Busy\nContent-Length: 0\nConnection: close\n\n")
			reset(conn)
			return
		}
		req, err := readWhole(conn)
		calls.Add(1)
		answer(conn, fmt.Sprintf("HTTP/1.1 200 OK\nContent-Length: 20\n\n%11d %8v", req, err))
	})
	c, _ := newGuard(t, quick())
	data := strings.Repeat("x", size)
	resp, err := send(t, c.Transport("api", newTransport(t)), http.MethodPut, "http://"+addr, bodyOf(strings.NewReader(data)))
	if err != nil {
		t.Fatal(err)
	}
	if got := text(t, resp); resp.StatusCode != 200 || strings.TrimSpace(got) != fmt.Sprintf("%d    <nil>", size) {
		t.Errorf("got %d %q", resp.StatusCode, got)
	}
}

func readWhole(conn net.Conn) (int64, error) {
	req, err := http.ReadRequest(bufio.NewReader(conn))
	if err != nil {
		return 0, err
	}
	return io.Copy(io.Discard, req.Body)
}

// However large a body is, as long as nothing of it was read it can be sent.
func TestTransportLargeBodyNotBegun(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n, _ := io.Copy(io.Discard, r.Body)
		fmt.Fprint(w, n)
	}))
	t.Cleanup(server.Close)
	base := newTransport(t)
	dial, dials := base.DialContext, 0
	base.DialContext = func(ctx context.Context, network, addr string) (net.Conn, error) {
		if dials++; dials == 1 {
			return nil, &net.OpError{Op: "dial", Net: network, Err: syscall.ECONNREFUSED}
		}
		return dial(ctx, network, addr)
	}
	c, _ := newGuard(t, quick())
	body := bodyOf(strings.NewReader(strings.Repeat("x", 2<<20)))
	resp, err := send(t, c.Transport("api", base), http.MethodPost, server.URL, body)
	if err != nil || text(t, resp) != fmt.Sprint(2<<20) || dials != 2 {
		t.Errorf("got %v, %v after %d dials", resp, err, dials)
	}
	body.wantClosed(t)
}

// What net/http gets: a request of its own, whose body it can replay only if we could.
func TestTransportClones(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name     string
		attempts int
		size     int64
		body     io.Reader
		getBody  bool
	}{
		{"buffered", 3, 10, bodyOf(strings.NewReader("0123456789")), true},
		{"own GetBody", 3, 10, strings.NewReader("0123456789"), true},
		{"too large", 3, 2 << 20, bodyOf(strings.NewReader("0123456789")), false},
		{"retries off", 1, 10, bodyOf(strings.NewReader("0123456789")), false},
		{"retries off, own GetBody", 1, 10, strings.NewReader("0123456789"), true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			p := quick()
			p.Retry.Attempts = tc.attempts
			c, _ := newGuard(t, p)
			req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://api.test", tc.body)
			if err != nil {
				t.Fatal(err)
			}
			req.ContentLength = tc.size
			before := *req
			base := roundTripper(func(r *http.Request) (*http.Response, error) {
				if r == req || r.ContentLength != tc.size || (r.GetBody != nil) != tc.getBody {
					t.Errorf("base got %p (caller's %p), length %d, GetBody %v", r, req, r.ContentLength, r.GetBody != nil)
				}
				first, _ := io.ReadAll(r.Body)
				if r.GetBody != nil {
					again, err := r.GetBody()
					if err != nil {
						t.Fatal(err)
					}
					if second, _ := io.ReadAll(again); string(first) != "0123456789" || string(second) != string(first) {
						t.Errorf("read %q, then %q", first, second)
					}
					again.Close()
				}
				r.Body.Close()
				return &http.Response{StatusCode: 200, Body: http.NoBody}, nil
			})
			if _, err := c.Transport("api", base).RoundTrip(req); err != nil {
				t.Fatal(err)
			}
			if req.Body != before.Body || (req.GetBody == nil) != (before.GetBody == nil) || req.ContentLength != before.ContentLength {
				t.Error("the caller's request was touched")
			}
		})
	}
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// An error of the caller's body is not the dependency's.
func TestTransportBodyFails(t *testing.T) {
	t.Parallel()
	own := errors.New("disk on fire")
	failing := func() io.Reader { return io.MultiReader(strings.NewReader("some"), errorReader{own}) }
	for _, kind := range []string{"kept", "copied", "GetBody fails"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				io.Copy(io.Discard, r.Body)
				w.WriteHeader(http.StatusServiceUnavailable)
				io.WriteString(w, "busy")
			}))
			t.Cleanup(server.Close)
			c, plane := newGuard(t, quick())
			req, _ := http.NewRequestWithContext(t.Context(), http.MethodPut, server.URL, bodyOf(failing()))
			switch kind {
			case "copied":
				req.GetBody = func() (io.ReadCloser, error) { return bodyOf(failing()), nil }
			case "GetBody fails":
				req.Body = bodyOf(strings.NewReader("fine"))
				req.GetBody = func() (io.ReadCloser, error) { return nil, own }
			}
			var how client.Call
			req = req.WithContext(client.WithCall(req.Context(), client.Record(&how)))
			resp, err := c.Transport("api", newTransport(t)).RoundTrip(req)
			r := plane.report(t, c)
			if kind == "GetBody fails" {
				if err != nil {
					t.Fatal(err)
				}
				defer resp.Body.Close()
				if text(t, resp) != "busy" || how.Reason != policy.StopBody || how.Attempts != 1 || r.Failure != 1 || r.Ignored != 1 {
					t.Errorf("recorded %+v, reported %+v", how, r)
				}
				return
			}
			if !errors.Is(err, own) || how.Attempts != 1 || r.Ignored != 1 || r.Failure != 0 {
				t.Errorf("got %v, recorded %+v, reported %+v", err, how, r)
			}
		})
	}
}

type errorReader struct{ err error }

func (r errorReader) Read([]byte) (int, error) { return 0, r.err }

// net/http waits for the body's Read even when the request is over. A body that does not come must not hold the call.
func TestTransportBodyStalls(t *testing.T) {
	t.Parallel()
	for _, proto := range []string{"HTTP/1.1", "HTTP/2.0"} {
		t.Run(proto, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				base := pipes(t, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
					io.Copy(io.Discard, r.Body)
				}), proto)
				p := quick()
				c, _ := newGuard(t, p)
				pr, pw := io.Pipe()
				defer pw.Close()
				go io.WriteString(pw, "some")
				start := time.Now()
				_, err := send(t, c.Transport("api", base), http.MethodPut, "http://api.test", pr)
				var got *client.Error
				if !errors.As(err, &got) || !got.Timeout() || got.Reason != policy.StopBody {
					t.Errorf("got %v", err)
				}
				if took := time.Since(start); took != p.Retry.AttemptTimeout {
					t.Errorf("took %v", took)
				}
			})
		})
	}
}
