package client

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"

	"github.com/retryplane/retryplane/pkg/policy"
)

// Middleware makes a server one of the layers that retry, so that a retry of its callers is not retried again below. It
// belongs around the handlers whose guarded calls use the request's context:
//
//   - If the request is itself a retry (Retry-Context, x-envoy-attempt-count, grpc-previous-rpc-attempts), each of these
//     calls makes one attempt only. A forged header can therefore only reduce retries.
//   - If one of these calls was given up for good, and the answer's status is 429 or 5xx, it carries Retry-Status:
//     exhausted. A caller that is guarded by a [Client.Transport] then does not try again.
//
// What the layers above said is passed on to dependencies whose policy opted in (retry.context). Headers that are
// malformed are ignored and counted in Stats. next sees a ResponseWriter that supports what the server's own does.
func Middleware(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		layers, ok := policy.ParseRetryContext(r.Header)
		s := &served{layers: layers, retrying: layers.Retrying()}
		s.malformed.Store(!ok)
		answer := &answerWriter{ResponseWriter: w, served: s}
		next.ServeHTTP(answer, r.WithContext(context.WithValue(r.Context(), servedKey{}, s)))
	})
}

// answerWriter adds Retry-Status to the headers just before they are written.
type answerWriter struct {
	http.ResponseWriter
	served  *served
	written bool
}

func (w *answerWriter) WriteHeader(status int) {
	if !w.written && status >= 200 { // 1xx come before the real ones
		w.written = true
		if gaveUp := w.served.gaveUp.Load(); gaveUp != nil && (status >= 500 || status == http.StatusTooManyRequests) {
			w.Header().Set(policy.RetryStatusHeader, gaveUp.String())
		}
	}
	w.ResponseWriter.WriteHeader(status)
}

// Write implies status 200, which needs no header of ours.
func (w *answerWriter) Write(p []byte) (int, error) {
	w.written = true
	return w.ResponseWriter.Write(p)
}

// ReadFrom lets the server send files without copying them through here.
func (w *answerWriter) ReadFrom(r io.Reader) (int64, error) {
	w.written = true
	return io.Copy(w.ResponseWriter, r)
}

// Unwrap is for [http.ResponseController].
func (w *answerWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// Flush and Hijack are for handlers that do not know ResponseController yet.

func (w *answerWriter) Flush() {
	w.written = true
	_ = http.NewResponseController(w.ResponseWriter).Flush() // http.Flusher has no error
}

func (w *answerWriter) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	return http.NewResponseController(w.ResponseWriter).Hijack()
}

// Push is for HTTP/2.
func (w *answerWriter) Push(target string, opts *http.PushOptions) error {
	if p, ok := w.ResponseWriter.(http.Pusher); ok {
		return p.Push(target, opts)
	}
	return http.ErrNotSupported
}
