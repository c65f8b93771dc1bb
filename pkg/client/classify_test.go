package client

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"net/url"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/retryplane/retryplane/pkg/policy"
)

// What the errors of real transports mean. Many of them have neither a type nor a value, so a new release of Go may
// change their texts: then a row of this table fails. The rows of the decision table that differ in what follows are
// tested with it, over the wire.
func TestConditions(t *testing.T) {
	t.Parallel()
	const (
		get  = http.MethodGet
		post = http.MethodPost
	)
	type dependency = func(t *testing.T, base *http.Transport, p *policy.RetryPolicy) (url string)
	answers := func(text string) dependency {
		return func(t *testing.T, _ *http.Transport, _ *policy.RetryPolicy) string {
			return "http://" + listen(t, func(conn net.Conn) {
				if req, err := http.ReadRequest(bufio.NewReader(conn)); err == nil {
					io.Copy(io.Discard, req.Body)
					io.WriteString(conn, strings.ReplaceAll(text, "\n", "\r\n"))
				}
			})
		}
	}
	dials := func(err error) dependency {
		return func(_ *testing.T, base *http.Transport, _ *policy.RetryPolicy) string {
			base.DialContext = func(context.Context, string, string) (net.Conn, error) {
				return nil, &net.OpError{Op: "dial", Net: "tcp", Err: err}
			}
			return "http://api.test"
		}
	}
	secure := func(server func(*tls.Config), client func(*tls.Config)) dependency {
		return func(t *testing.T, base *http.Transport, _ *policy.RetryPolicy) string {
			s := httptest.NewUnstartedServer(http.NotFoundHandler())
			s.Config.ErrorLog = log.New(io.Discard, "", 0)
			s.TLS = new(tls.Config)
			server(s.TLS)
			s.StartTLS()
			t.Cleanup(s.Close)
			base.TLSClientConfig = s.Client().Transport.(*http.Transport).TLSClientConfig.Clone()
			client(base.TLSClientConfig)
			return s.URL
		}
	}
	to := func(url string) dependency {
		return func(*testing.T, *http.Transport, *policy.RetryPolicy) string { return url }
	}
	for _, tc := range []struct {
		name       string
		method     string
		dependency dependency
		edit       func(*http.Request)
		want       policy.Condition
	}{
		{"no ports left", get, dials(syscall.EADDRNOTAVAIL), nil, policy.LocalError},
		{"no files left", get, dials(syscall.EMFILE), nil, policy.LocalError},
		{"network unreachable", get, dials(syscall.ENETUNREACH), nil, policy.DialUnreachable},
		{"kernel's dial timeout", get, dials(syscall.ETIMEDOUT), nil, policy.DialTimeout},
		{"name server timeout", get, dials(&net.DNSError{Err: "i/o timeout", IsTimeout: true}), nil, policy.DNSTemporary},
		{"port that is none", get, to("http://127.0.0.1:99999"), nil, policy.BadURL},
		{"a dialer's own error", get, func(_ *testing.T, base *http.Transport, _ *policy.RetryPolicy) string {
			base.DialContext = func(context.Context, string, string) (net.Conn, error) { return nil, errors.New("no tunnel") }
			return "http://api.test"
		}, nil, policy.DialUnreachable},
		{"proxy that refuses", get, func(t *testing.T, base *http.Transport, _ *policy.RetryPolicy) string {
			proxy := listen(t, func(conn net.Conn) {
				http.ReadRequest(bufio.NewReader(conn))
				io.WriteString(conn, "HTTP/1.1 502 Bad Gateway\r\n\r\n")
			})
			base.Proxy = http.ProxyURL(&url.URL{Scheme: "http", Host: proxy})
			return "https://api.test"
		}, nil, policy.DialUnreachable},
		{"proxy that is down", post, func(t *testing.T, base *http.Transport, _ *policy.RetryPolicy) string {
			base.Proxy = http.ProxyURL(&url.URL{Scheme: "http", Host: "127.0.0.1:1"})
			return "https://api.test"
		}, nil, policy.DialRefused},

		{"TLS to a plain server", get, func(t *testing.T, base *http.Transport, p *policy.RetryPolicy) string {
			s := httptest.NewServer(http.NotFoundHandler())
			t.Cleanup(s.Close)
			return strings.Replace(s.URL, "http:", "https:", 1)
		}, nil, policy.PlainHTTP},
		{"TLS to something else", get, func(t *testing.T, base *http.Transport, p *policy.RetryPolicy) string {
			return "https://" + listen(t, func(conn net.Conn) { io.WriteString(conn, "220 mail.test ESMTP\r\n") })
		}, nil, policy.TLSRejected},
		{"TLS version", get, secure(
			func(c *tls.Config) { c.MinVersion = tls.VersionTLS13 },
			func(c *tls.Config) { c.MaxVersion = tls.VersionTLS12 }), nil, policy.TLSRejected},
		{"client certificate wanted", get, secure(
			func(c *tls.Config) { c.ClientAuth = tls.RequireAnyClientCert },
			func(c *tls.Config) {}), nil, policy.TLSRejected},
		{"TLS handshake timeout", post, func(t *testing.T, base *http.Transport, p *policy.RetryPolicy) string {
			base.TLSHandshakeTimeout = 30 * time.Millisecond
			return "https://" + listen(t, func(conn net.Conn) { io.Copy(io.Discard, conn) })
		}, nil, policy.TLSTimeout},
		{"EOF in the TLS handshake", post, func(t *testing.T, base *http.Transport, p *policy.RetryPolicy) string {
			return "https://" + listen(t, func(conn net.Conn) {
				conn.Read(make([]byte, 4096))
				conn.(*net.TCPConn).CloseWrite()
				io.Copy(io.Discard, conn)
			})
		}, nil, policy.EOFBeforeHeaders},

		{"method", " GET", to("http://127.0.0.1:1"), func(r *http.Request) { r.Method = "GET GET" }, policy.BadMethod},
		{"no host", get, to("http://127.0.0.1:1"), func(r *http.Request) { r.URL.Host = "" }, policy.BadURL},
		{"no URL", get, to("http://127.0.0.1:1"), func(r *http.Request) { r.URL = nil }, policy.BadURL},
		{"no header", get, to("http://127.0.0.1:1"), func(r *http.Request) { r.Header = nil }, policy.BadHeader},
		{"header name", get, to("http://127.0.0.1:1"), func(r *http.Request) { r.Header["a b"] = []string{"c"} }, policy.BadHeader},
		{"trailer", get, to("http://127.0.0.1:1"), func(r *http.Request) { r.Trailer = http.Header{"a b": {"c"}} }, policy.BadHeader},
		{"body shorter than told", post, answers("HTTP/1.1 200 OK\n\n"), func(r *http.Request) {
			r.Body, r.ContentLength = io.NopCloser(strings.NewReader("x")), 5
		}, policy.LocalError},

		{"no connection in time", post, func(t *testing.T, base *http.Transport, p *policy.RetryPolicy) string {
			p.AttemptTimeout = 30 * time.Millisecond
			addr := listen(t, func(conn net.Conn) { io.Copy(io.Discard, conn) })
			base.DialContext = func(ctx context.Context, network, _ string) (net.Conn, error) {
				<-ctx.Done()
				return nil, ctx.Err()
			}
			return "http://" + addr
		}, nil, policy.TimeoutBeforeHeaders},
		{"ResponseHeaderTimeout", get, func(t *testing.T, base *http.Transport, p *policy.RetryPolicy) string {
			base.ResponseHeaderTimeout = 30 * time.Millisecond
			return "http://" + listen(t, func(conn net.Conn) { io.Copy(io.Discard, conn) })
		}, nil, policy.AttemptTimeout},
		{"EOF in the response's headers", get, answers("HTTP/1.1 200 OK\nContent-Length: 1\n"), nil, policy.EOFAfterWrite},

		{"status line", get, answers("HTTP/1.1 2000 OK\n\n"), nil, policy.MalformedResponse},
		{"HTTP version", get, answers("HTTP/1.x 200 OK\n\n"), nil, policy.MalformedResponse},
		{"header line", get, answers("HTTP/1.1 200 OK\nno colon\n\n"), nil, policy.MalformedResponse},
		{"Content-Length", get, answers("HTTP/1.1 200 OK\nContent-Length: many\n\n"), nil, policy.MalformedResponse},
		{"two Content-Lengths", get, answers("HTTP/1.1 200 OK\nContent-Length: 1\nContent-Length: 2\n\nx"), nil, policy.MalformedResponse},
		{"Transfer-Encoding", get, answers("HTTP/1.1 200 OK\nTransfer-Encoding: morse\n\n"), nil, policy.MalformedResponse},
		{"endless headers", get, func(t *testing.T, base *http.Transport, p *policy.RetryPolicy) string {
			base.MaxResponseHeaderBytes = 1000
			return answers("HTTP/1.1 200 OK\nX: "+strings.Repeat("x", 5000)+"\n\n")(t, base, p)
		}, nil, policy.MalformedResponse},
		{"garbage that quotes another error", get, answers("stream error: stream ID 1; REFUSED_STREAM\n\n"), nil, policy.MalformedResponse},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			base := &http.Transport{}
			t.Cleanup(base.CloseIdleConnections)
			set := policy.Default()
			set.Retry.Attempts = 1
			target := tc.dependency(t, base, &set.Retry)
			c, err := New("http://127.0.0.1:1", WithPolicy(set), WithoutBackground())
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { c.Close(context.Background()) })
			req, err := http.NewRequestWithContext(t.Context(), strings.TrimSpace(tc.method), target, nil)
			if err != nil {
				req = &http.Request{Method: tc.method, URL: &url.URL{Scheme: "http", Host: strings.TrimPrefix(target, "http://")}, Header: http.Header{}}
			}
			if tc.edit != nil {
				tc.edit(req)
			}
			x := &exchange{request: c.Dependency("api").begin(t.Context(), callOptions{}), base: base, req: req}
			x.body = newRequestBody(req, &set.Retry, new(copiedBody))
			resp, err := x.run()
			if err == nil {
				resp.Body.Close()
			}
			if x.last.Condition != tc.want {
				t.Errorf("got %v, want %v: %v", x.last.Condition, tc.want, err)
			}
		})
	}
}

// Errors that only a wrapped transport returns, or that are too rare to be provoked.
func TestConditionsOfErrors(t *testing.T) {
	t.Parallel()
	sent, unsent := new(attempt), new(attempt)
	for _, a := range []*attempt{sent, unsent} {
		a.parent = t.Context()
		a.traced().GetConn("")
		a.traced().GotConn(httptrace.GotConnInfo{})
	}
	sent.traced().WroteHeaders()
	untraced := new(attempt)
	for _, tc := range []struct {
		err  error
		a    *attempt
		want policy.Condition
	}{
		{io.EOF, sent, policy.EOFAfterWrite},
		{io.EOF, unsent, policy.EOFBeforeHeaders},
		{io.EOF, untraced, policy.EOFAfterWrite}, // nothing proves that it was not sent
		{syscall.ECONNRESET, untraced, policy.ResetAfterWrite},
		{&net.OpError{Op: "write", Err: syscall.EPIPE}, sent, policy.BrokenPipe},
		{&net.OpError{Op: "write", Err: syscall.EPIPE}, unsent, policy.ResetBeforeHeaders},
		{errors.New("http: server closed idle connection"), sent, policy.EOFAfterWrite},
		{errors.New("http2: client connection lost"), sent, policy.StreamError},
		{errors.New("http2: client conn not usable"), unsent, policy.ResetBeforeHeaders},
		{errors.New(`http2: server sent GOAWAY and closed the connection; LastStreamID=1, ErrCode=NO_ERROR, debug="REFUSED_STREAM"`), sent, policy.StreamError},
		{errors.New("http2: Transport: cannot retry err [stream error: stream ID 1; REFUSED_STREAM] after Request.Body was written"), sent, policy.RefusedStream},
		{errors.New("stream error: stream ID 3; REFUSED_STREAM; received from peer"), sent, policy.RefusedStream},
		{errors.New("http2: failed reading the frame payload: http2: frame too large, note that the frame header looked like an HTTP/1.1 header"), sent, policy.MalformedResponse},
		{errors.New("stream error: stream ID 3; CANCEL; REFUSED_STREAM"), sent, policy.StreamError},
		{context.DeadlineExceeded, untraced, policy.AttemptTimeout}, // a timeout of the base's own
		{&net.OpError{Op: "remote error", Err: errors.New(alertInternalError)}, unsent, policy.ResetBeforeHeaders},
		{errors.New("what is this"), sent, policy.OtherError},
		{errors.New("what is this"), untraced, policy.OtherError},
		{Permanent(errors.New("no such account")), untraced, policy.FuncPermanent},
		{fmt.Errorf("sign: %w", Ignore(errors.New("no key"))), untraced, policy.FuncIgnored},
		{&OpenError{Dependency: "below"}, untraced, policy.FuncIgnored},
		{&Error{Call: Call{Attempts: 3}}, untraced, policy.FuncPermanent},
	} {
		if got := conditionOf(tc.err, tc.a); got != tc.want {
			t.Errorf("%v: got %v, want %v", tc.err, got, tc.want)
		}
	}
}

// listen serves connections of TCP by hand. They are closed when handle returns, or in the end.
func listen(t *testing.T, handle func(net.Conn)) (addr string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	conns := make(chan struct{}, 100)
	go func() {
		defer close(ended)
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			conns <- struct{}{}
			context.AfterFunc(ctx, func() { conn.Close() })
			go func() {
				defer func() { <-conns }()
				defer conn.Close()
				handle(conn)
			}()
		}
	}()
	t.Cleanup(func() {
		l.Close()
		cancel()
		<-ended
	})
	return l.Addr().String()
}
