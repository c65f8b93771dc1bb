package client_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/retryplane/retryplane/pkg/client"
	"github.com/retryplane/retryplane/pkg/policy"
)

// newTransport returns a base with connections of its own, which are closed in the end.
func newTransport(t *testing.T) *http.Transport {
	base := http.DefaultTransport.(*http.Transport).Clone()
	base.Proxy = nil
	t.Cleanup(base.CloseIdleConnections)
	return base
}

// newServer starts a server of the protocol, and a base transport that speaks it.
func newServer(t *testing.T, proto string, h http.Handler) (*httptest.Server, *http.Transport) {
	t.Helper()
	server := httptest.NewUnstartedServer(h)
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	base := newTransport(t)
	if proto == "HTTP/2.0" {
		server.EnableHTTP2 = true
		server.StartTLS()
		base.TLSClientConfig = server.Client().Transport.(*http.Transport).TLSClientConfig.Clone()
		base.TLSClientConfig.NextProtos = nil
		base.ForceAttemptHTTP2 = true
	} else {
		server.Start()
	}
	t.Cleanup(server.Close)
	return server, base
}

// get sends a GET through rt and returns the response with its body read.
func get(t *testing.T, rt http.RoundTripper, url string) (*http.Response, error) {
	t.Helper()
	return send(t, rt, http.MethodGet, url, nil)
}

func send(t *testing.T, rt http.RoundTripper, method, url string, body io.Reader, header ...string) (*http.Response, error) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, body)
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	resp, err := rt.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	read, err := io.ReadAll(resp.Body)
	resp.Body.Close()
	resp.Body = io.NopCloser(bytes.NewReader(read))
	return resp, err
}

func text(t *testing.T, resp *http.Response) string {
	t.Helper()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

type closeCounter struct {
	io.Reader
	closed atomic.Int32
}

func (c *closeCounter) Close() error { c.closed.Add(1); return nil }

// wantClosed waits for the body's Close, which a transport may leave to another goroutine.
func (c *closeCounter) wantClosed(t *testing.T) {
	t.Helper()
	for range 1000 {
		if c.closed.Load() > 0 {
			break
		}
		time.Sleep(time.Millisecond)
	}
	if n := c.closed.Load(); n != 1 {
		t.Errorf("body closed %d times", n)
	}
}

// The last response is the caller's, with its body, when a gate stops the call.
func TestTransportHandsOverTheLastResponse(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name   string
		grants int64
		header string
		reason policy.StopReason
		sends  int
	}{
		{"attempts", 9, "", policy.StopAttempts, 3},
		{"budget", 1, "", policy.StopBudget, 2},
		{"no budget", 0, "", policy.StopBudget, 1},
		{"retry-after above the cap", 9, "120", policy.StopRetryAfter, 1},
		{"retry-after past the deadline", 9, "20", policy.StopRetryAfter, 1},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			var sends atomic.Int32
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				n := sends.Add(1)
				if tc.header != "" {
					w.Header().Set("Retry-After", tc.header)
				}
				w.WriteHeader(http.StatusServiceUnavailable)
				io.WriteString(w, strings.Repeat("busy ", int(n)))
			}))
			t.Cleanup(server.Close)
			c, plane := newGuard(t, quick())
			plane.grants = tc.grants
			var how client.Call
			req, _ := http.NewRequestWithContext(client.WithCall(t.Context(), client.Record(&how)), http.MethodGet, server.URL, nil)
			start := time.Now()
			resp, err := c.Transport("api", newTransport(t)).RoundTrip(req)
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			if got := text(t, resp); got != strings.Repeat("busy ", tc.sends) || resp.Request != req {
				t.Errorf("got %q for %p, want the last body for %p", got, resp.Request, req)
			}
			if how.Attempts != tc.sends || how.Reason != tc.reason || how.LastStatus != 503 {
				t.Errorf("recorded %+v", how)
			}
			if took := time.Since(start); took > 2*time.Second {
				t.Errorf("waited %v", took)
			}
		})
	}
}

func TestTransportNotSentWhileOpen(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("sent") }))
	t.Cleanup(server.Close)
	c, plane := newGuard(t, quick())
	plane.open = true
	c.Dependency("api").Acquire(t.Context()) // the first call fetches the view
	plane.report(t, c)
	body := &closeCounter{Reader: strings.NewReader("x")}
	_, err := send(t, c.Transport("api", newTransport(t)), http.MethodPut, server.URL, body)
	var open *client.OpenError
	var got *client.Error
	if !errors.Is(err, client.ErrOpen) || !errors.As(err, &open) || open.RetryAfter <= 0 || !errors.As(err, &got) ||
		got.Attempts != 0 || got.Reason != policy.StopBreaker || got.Source != client.SourceFleet {
		t.Errorf("got %#v", err)
	}
	body.wantClosed(t)
}

func TestTransportCallerCancels(t *testing.T) {
	t.Parallel()
	for _, proto := range []string{"HTTP/1.1", "HTTP/2.0"} {
		t.Run(proto, func(t *testing.T) {
			t.Parallel()
			arrived := make(chan struct{}, 10)
			server, base := newServer(t, proto, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
				arrived <- struct{}{}
				<-r.Context().Done()
			}))
			c, plane := newGuard(t, quick())
			ctx, cancel := context.WithCancel(t.Context())
			go func() { <-arrived; cancel() }()
			req, _ := http.NewRequestWithContext(ctx, http.MethodGet, server.URL, nil)
			_, err := c.Transport("api", base).RoundTrip(req)
			var got *client.Error
			if !errors.As(err, &got) || got.Reason != policy.StopCancelled || !errors.Is(err, context.Canceled) || got.Attempts != 1 {
				t.Errorf("got %v", err)
			}
			if r := plane.report(t, c); r.Ignored != 1 || r.Failure != 0 {
				t.Errorf("reported %+v", r)
			}
		})
	}
}

// Over HTTP/2 the end of an attempt's context looks as if the caller had cancelled.
func TestTransportAttemptTimeout(t *testing.T) {
	t.Parallel()
	for _, proto := range []string{"HTTP/1.1", "HTTP/2.0"} {
		t.Run(proto, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				calls := 0
				base := pipes(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					if calls++; calls != 2 {
						<-r.Context().Done()
						return
					}
					io.WriteString(w, r.Proto)
				}), proto)
				p := quick()
				c, plane := newGuard(t, p)
				start := time.Now()
				resp, err := get(t, c.Transport("api", base), "http://api.test")
				if err != nil || text(t, resp) != proto {
					t.Fatalf("got %v, %v", resp, err)
				}
				if took := time.Since(start); took != p.Retry.AttemptTimeout+p.Retry.Base {
					t.Errorf("took %v", took)
				}
				if r := plane.report(t, c); r.Failure != 1 || r.Success != 1 {
					t.Errorf("reported %+v", r)
				}
				_, err = send(t, c.Transport("api", base), http.MethodPost, "http://api.test", nil)
				if errors.Is(err, context.Canceled) || !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("got %v, want a timeout that is nobody's cancellation", err)
				}
			})
		})
	}
}

func TestTransportBelowHTTPClient(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	paths := map[string]int{}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		mu.Lock()
		paths[r.URL.Path]++
		n := paths[r.URL.Path]
		mu.Unlock()
		switch {
		case r.URL.Path == "/slow":
			<-r.Context().Done()
		case n == 1: // each path fails once
			w.WriteHeader(http.StatusServiceUnavailable)
		case r.URL.Path == "/from":
			http.SetCookie(w, &http.Cookie{Name: "seen", Value: "from"})
			http.Redirect(w, r, "/to", http.StatusTemporaryRedirect)
		default:
			cookie, _ := r.Cookie("seen")
			fmt.Fprintf(w, "%s %s %v", r.Method, body, cookie)
		}
	}))
	t.Cleanup(server.Close)
	c, plane := newGuard(t, quick())
	jar, _ := cookiejar.New(nil)
	hc := &http.Client{Transport: c.Transport("api", newTransport(t)), Jar: jar}

	t.Run("redirect", func(t *testing.T) {
		req, _ := http.NewRequestWithContext(t.Context(), http.MethodPut, server.URL+"/from", strings.NewReader("hello"))
		resp, err := hc.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		if got := text(t, resp); got != "PUT hello seen=from" || resp.Request.URL.Path != "/to" {
			t.Errorf("got %q of %s", got, resp.Request.URL)
		}
		if r := plane.report(t, c); r.Requests != 2 || r.Attempts != 4 || r.Success != 2 || r.Failure != 2 {
			t.Errorf("reported %+v", r)
		}
	})

	t.Run("timeout", func(t *testing.T) {
		hc := *hc
		hc.Timeout = 100 * time.Millisecond
		start := time.Now()
		_, err := hc.Get(server.URL + "/slow")
		var wrapped *url.Error
		if !errors.As(err, &wrapped) || !wrapped.Timeout() {
			t.Errorf("got %v", err)
		}
		if took := time.Since(start); took > time.Second {
			t.Errorf("took %v", took)
		}
		if r := plane.report(t, c); r.Failure != 2 || r.Ignored != 1 {
			t.Errorf("reported %+v, want the failures of before", r)
		}
	})
}

func TestTransportFuncUnguarded(t *testing.T) {
	t.Parallel()
	var sends atomic.Int32
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		sends.Add(1)
		w.WriteHeader(http.StatusServiceUnavailable)
	}))
	t.Cleanup(server.Close)
	c, _ := newGuard(t, quick())
	rt := c.TransportFunc(func(r *http.Request) string { return strings.TrimPrefix(r.URL.Path, "/") }, newTransport(t))
	if resp, err := get(t, rt, server.URL); err != nil || resp.StatusCode != 503 || sends.Load() != 1 {
		t.Errorf("unguarded: got %v, %v after %d sends", resp, err, sends.Load())
	}
	sends.Store(0)
	if resp, err := get(t, rt, server.URL+"/payments"); err != nil || resp.StatusCode != 503 || sends.Load() != 3 {
		t.Errorf("guarded: got %v, %v after %d sends", resp, err, sends.Load())
	}
	sends.Store(0)
	var invalid *client.InvalidNameError
	if _, err := get(t, rt, server.URL+"/NOT A NAME"); !errors.As(err, &invalid) || sends.Load() != 0 {
		t.Errorf("invalid name: got %v after %d sends", err, sends.Load())
	}
}
