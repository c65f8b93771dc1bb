package client

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"time"
)

// attempt is one try of an HTTP request: its context, its clock, and what the transport told about it on the way.
//
// The context ends when the attempt's time is over before the response's headers came. Once they are there it lives
// until the body is closed or the deadline of the whole call passes, because the body is read under it.
type attempt struct {
	attemptContext
	call    *request
	began   time.Time
	timeout time.Duration // up to the headers
	alarm   atomic.Pointer[alarm]
	silent  bool // the alarm is stopped, in time

	request  http.Request // the clone of the caller's that it sends
	body     requestBody  // what it sends; nil = nothing
	sending  atomic.Bool  // base has the request and has not returned
	answered atomic.Bool  // the headers came in time
	expired  bool         // they did not
	response *http.Response
}

// Why the context of an attempt ended, if not by the caller. They stay inside.
var (
	errAttemptOver = errors.New("attempt timeout")
	errCallOver    = errors.New("overall deadline")
)

// begin starts the attempt's clock.
func (a *attempt) begin(c *request, body requestBody, now time.Time) {
	a.call, a.parent, a.body, a.began = c, c.ctx, body, now
	a.timeout = c.policy.Retry.AttemptTimeoutAt(a.began, c.deadline)
	a.alarm.Store(c.dep.client.setAlarm(a, a.timeout))
}

func (a *attempt) expire() {
	if a.answered.Load() {
		a.end(errCallOver)
		return
	}
	a.end(errAttemptOver)
	if a.body != nil && a.sending.Load() {
		a.body.interrupt()
	}
}

// send hands r, which has the attempt's context, to base. Without an error there is a response.
func (a *attempt) send(base http.RoundTripper, r *http.Request) error {
	var returned func() bool
	if a.body != nil && a.parent.Done() != nil {
		returned = context.AfterFunc(a.parent, a.body.interrupt)
	}
	a.sending.Store(true)
	resp, err := base.RoundTrip(r)
	a.sending.Store(false)
	a.silent = a.alarm.Load().timer.Stop()
	a.expired = !a.silent
	if cancelled := returned != nil && !returned(); a.body != nil && (a.expired || cancelled) {
		a.body.interrupt() // the other one may not be through yet, and what follows depends on it
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
	if resp.Body != http.NoBody && !endless(r, resp) {
		a.reset(max(time.Until(a.call.deadline), 0))
	}
	return nil
}

// reset sets the alarm anew. It needs an attempt that was not released.
func (a *attempt) reset(d time.Duration) {
	a.silent = false
	a.alarm.Load().timer.Reset(d)
}

// unsent reports whether the transport proved that nothing of the request was written.
func (a *attempt) unsent() bool {
	t := a.trace.Load()
	return t != nil && t.looking.Load() && t.sends.Load() == 0
}

// waiting reports whether the transport proved that it had no connection yet. When time runs out that is the proof:
// over HTTP/2 the headers may be on the wire before the trace says so.
func (a *attempt) waiting() bool {
	t := a.trace.Load()
	return t != nil && t.looking.Load() && t.conns.Load() == 0
}

// resends is how often the transport sent the request again by itself.
func (a *attempt) resends() int {
	t := a.trace.Load()
	if t == nil {
		return 0
	}
	sends := t.sends.Load()
	// Over HTTP/2 a response may be here before the trace says that what it answers was written.
	if a.response != nil && t.latest.Load() != t.conns.Load() {
		sends++
	}
	return max(int(sends)-1, 0)
}

// release frees what the attempt holds. It may be called again.
func (a *attempt) release() {
	if l := a.alarm.Swap(nil); l != nil {
		if a.silent || l.timer.Stop() {
			a.call.dep.client.putAlarm(l)
		}
	}
	a.end(nil)
}

const (
	drainBytes = 64 << 10
	drainTime  = 50 * time.Millisecond
)

// discard makes room for the next attempt: it reads the rest of the response, if that is short, so that the connection
// can be used again, and closes it.
func (a *attempt) discard() {
	if a.response.ContentLength <= drainBytes {
		a.reset(min(drainTime, max(time.Until(a.call.deadline)/2, 0)))
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
	if b.a.endedBy(errCallOver) {
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
