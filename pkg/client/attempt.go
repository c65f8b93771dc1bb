package client

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptrace"
	"strings"
	"sync/atomic"
	"time"
)

// attempt is one try of an HTTP request: its context, its clock, and what the transport told about it on the way.
//
// The context ends when the attempt's time is over before the response's headers came. Once they are there it lives
// until the body is closed or the deadline of the whole call passes, because the body is read under it.
type attempt struct {
	call    *request
	began   time.Time
	timeout time.Duration // up to the headers
	ctx     context.Context
	cancel  context.CancelCauseFunc
	timer   *time.Timer

	answered atomic.Bool // the headers came in time
	expired  bool        // they did not
	response *http.Response

	// The transport tells these from its own goroutines.
	trace   httptrace.ClientTrace
	looking atomic.Bool  // it looks for a connection: it does heed the trace
	conns   atomic.Int32 // connections it got
	sends   atomic.Int32 // of these, how many it wrote request headers to
	latest  atomic.Int32 // the last of these, counted in conns
}

// Why the context of an attempt ended, if not by the caller. They stay inside.
var (
	errAttemptOver = errors.New("attempt timeout")
	errCallOver    = errors.New("overall deadline")
)

func (c *request) newAttempt() *attempt {
	a := &attempt{call: c, began: time.Now()}
	a.timeout = c.policy.Retry.AttemptTimeoutAt(a.began, c.deadline)
	a.trace = httptrace.ClientTrace{
		GetConn: func(string) { a.looking.Store(true) },
		GotConn: func(httptrace.GotConnInfo) { a.conns.Add(1) },
		WroteHeaders: func() {
			a.sends.Add(1)
			a.latest.Store(a.conns.Load())
		},
	}
	ctx, cancel := context.WithCancelCause(c.ctx)
	a.ctx, a.cancel = httptrace.WithClientTrace(ctx, &a.trace), cancel
	a.timer = time.AfterFunc(a.timeout, a.expire)
	return a
}

func (a *attempt) expire() {
	if a.answered.Load() {
		a.cancel(errCallOver)
		return
	}
	a.cancel(errAttemptOver)
}

// send hands r, which has the attempt's context, to base. body is nil or what r sends. Without an error there is a
// response.
func (a *attempt) send(base http.RoundTripper, r *http.Request, body requestBody) error {
	var returned func() bool
	if body != nil {
		returned = context.AfterFunc(a.ctx, body.interrupt)
	}
	resp, err := base.RoundTrip(r)
	a.expired = !a.timer.Stop()
	if body != nil && !returned() {
		body.interrupt() // the other one may not be through yet, and what follows depends on it
	}
	switch {
	case err == nil && resp == nil:
		err = errors.New("transport returned neither a response nor an error")
	case resp != nil && resp.Body == nil:
		resp.Body = http.NoBody
	}
	if err == nil && a.expired {
		err = errAttemptOver
	}
	if err != nil {
		if resp != nil {
			resp.Body.Close()
		}
		return err
	}
	a.response = resp
	a.answered.Store(true)
	if !endless(r, resp) {
		a.timer.Reset(max(time.Until(a.call.deadline), 0))
	}
	return nil
}

// unsent reports whether the transport proved that nothing of the request was written.
func (a *attempt) unsent() bool { return a.looking.Load() && a.sends.Load() == 0 }

// waiting reports whether the transport proved that it had no connection yet. When time runs out that is the proof:
// over HTTP/2 the headers may be on the wire before the trace says so.
func (a *attempt) waiting() bool { return a.looking.Load() && a.conns.Load() == 0 }

// resends is how often the transport sent the request again by itself.
func (a *attempt) resends() int {
	sends := a.sends.Load()
	// Over HTTP/2 a response may be here before the trace says that what it answers was written.
	if a.response != nil && a.latest.Load() != a.conns.Load() {
		sends++
	}
	return max(int(sends)-1, 0)
}

// release frees what the attempt holds. It may be called again.
func (a *attempt) release() {
	a.timer.Stop()
	a.cancel(nil)
}

const (
	drainBytes = 64 << 10
	drainTime  = 50 * time.Millisecond
)

// discard makes room for the next attempt: it reads the rest of the response, if that is short, so that the connection
// can be used again, and closes it.
func (a *attempt) discard() {
	if a.response.ContentLength <= drainBytes {
		a.timer.Reset(min(drainTime, max(time.Until(a.call.deadline)/2, 0)))
		_, _ = io.CopyN(io.Discard, a.response.Body, drainBytes+1) // one more, to meet the end of what is just as long
	}
	a.close()
}

// close gives the response up.
func (a *attempt) close() {
	a.response.Body.Close()
	a.release()
}

// handOver returns the response for the caller, as it came but for the body, which ends the attempt when it is closed.
func (a *attempt) handOver(req *http.Request) *http.Response {
	resp := a.response
	resp.Request = req
	if resp.Body == http.NoBody {
		a.release()
		return resp
	}
	body := &responseBody{ReadCloser: resp.Body, a: a, good: resp.StatusCode/100 == 2}
	resp.Body = body
	if w, ok := body.ReadCloser.(io.Writer); ok {
		resp.Body = &duplexBody{responseBody: body, Writer: w}
	}
	return resp
}

// endless reports whether the response begins something that has no natural end, so that the call's deadline has no
// say in it: a tunnel, another protocol, or a stream of events.
func endless(r *http.Request, resp *http.Response) bool {
	if resp.StatusCode == http.StatusSwitchingProtocols || r.Method == http.MethodConnect {
		return true
	}
	media, _, _ := strings.Cut(resp.Header.Get("Content-Type"), ";")
	return strings.EqualFold(strings.TrimSpace(media), "text/event-stream")
}

// responseBody is the body of a response that was handed over. As with any, Close may be called while another goroutine
// reads.
type responseBody struct {
	io.ReadCloser
	a    *attempt
	good bool        // the status promised a body
	done atomic.Bool // broken, closed or at its end
}

func (b *responseBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err == nil || b.done.Swap(true) || err == io.EOF {
		return n, err
	}
	c := b.a.call
	if context.Cause(b.a.ctx) == errCallOver { //nolint:errorlint // a cause comes back as it was given
		err = &timeoutError{"no complete response body", c.policy.Retry.Deadline}
	}
	if b.good && c.callerError() == nil {
		c.dep.brokenBody()
	}
	return n, err
}

// Close ends the attempt.
func (b *responseBody) Close() error {
	b.done.Store(true) // what a read meets from now on is not the dependency's doing
	err := b.ReadCloser.Close()
	b.a.release()
	return err
}

// duplexBody is the connection behind a response that switched protocols.
type duplexBody struct {
	*responseBody
	io.Writer
}

// CloseWrite passes on what [http.ResponseController] users and proxies look for.
func (b *duplexBody) CloseWrite() error {
	if w, ok := b.Writer.(interface{ CloseWrite() error }); ok {
		return w.CloseWrite()
	}
	return http.ErrNotSupported
}
