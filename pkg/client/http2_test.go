package client_test

import (
	"context"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// frames runs an HTTP/2 server by hand. handle gets each request's stream, with a framer to answer on.
func frames(t *testing.T, handle func(f *http2.Framer, conn, stream uint32)) (*http.Transport, *atomic.Int32) {
	t.Helper()
	var conns atomic.Uint32
	sends := new(atomic.Int32)
	addr, _ := rawServer(t, func(conn *net.TCPConn, _ int) {
		n := conns.Add(1)
		if _, err := io.ReadFull(conn, make([]byte, len(http2.ClientPreface))); err != nil {
			return
		}
		f := http2.NewFramer(conn, conn)
		f.WriteSettings()
		for {
			frame, err := f.ReadFrame()
			if err != nil {
				return
			}
			switch frame := frame.(type) {
			case *http2.SettingsFrame:
				if !frame.IsAck() {
					f.WriteSettingsAck()
				}
			case *http2.PingFrame:
				f.WritePing(true, frame.Data)
			case *http2.HeadersFrame:
				sends.Add(1)
				handle(f, n, frame.StreamID)
			}
		}
	})
	base := newTransport(t)
	base.Protocols = new(http.Protocols)
	base.Protocols.SetUnencryptedHTTP2(true)
	base.DialContext = func(ctx context.Context, network, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, network, addr)
	}
	return base, sends
}

func writeOK(f *http2.Framer, stream uint32) {
	var block strings.Builder
	hpack.NewEncoder(&block).WriteField(hpack.HeaderField{Name: ":status", Value: "200"})
	f.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, BlockFragment: []byte(block.String()), EndHeaders: true, EndStream: true})
}

func TestTransportHTTP2(t *testing.T) {
	t.Parallel()
	const first = 1 // stream
	for _, tc := range []struct {
		name      string
		method    string
		body      io.Reader
		fault     func(f *http2.Framer, conn, stream uint32) bool // false = answer
		sends     int32
		ok        bool
		failures  int64
		ignored   int64
		ungranted int64
	}{
		{
			name: "refused stream, sent again by net/http", method: http.MethodPost, body: strings.NewReader("x"),
			fault: func(f *http2.Framer, _, stream uint32) bool {
				return stream == first && f.WriteRSTStream(stream, http2.ErrCodeRefusedStream) == nil
			},
			sends: 2, ok: true, ungranted: 1,
		},
		{
			name: "GOAWAY with an error below the first stream", method: http.MethodPost,
			fault: func(f *http2.Framer, conn, _ uint32) bool {
				return conn == 1 && f.WriteGoAway(0, http2.ErrCodeInternal, nil) == nil
			},
			sends: 2, ok: true, ignored: 1,
		},
		{
			name: "stream error", method: http.MethodPost,
			fault: func(f *http2.Framer, conn, stream uint32) bool {
				return stream == first && f.WriteRSTStream(stream, http2.ErrCodeInternal) == nil
			},
			sends: 1, failures: 1,
		},
		{
			name: "stream error, idempotent", method: http.MethodGet,
			fault: func(f *http2.Framer, conn, stream uint32) bool {
				return stream == first && f.WriteRSTStream(stream, http2.ErrCodeInternal) == nil
			},
			sends: 2, ok: true, failures: 1,
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			base, sends := frames(t, func(f *http2.Framer, conn, stream uint32) {
				if !tc.fault(f, conn, stream) {
					writeOK(f, stream)
				}
			})
			c, plane := newGuard(t, quick())
			_, err := send(t, c.Transport("api", base), tc.method, "http://api.test", tc.body)
			if (err == nil) != tc.ok || sends.Load() != tc.sends {
				t.Errorf("got %v after %d sends, want %d", err, sends.Load(), tc.sends)
			}
			if r := plane.report(t, c); r.Failure != tc.failures || r.Ignored != tc.ignored || r.Ungranted != tc.ungranted {
				t.Errorf("reported %+v", r)
			}
		})
	}
}
