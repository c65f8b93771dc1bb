package client

import (
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/retryplane/retryplane/pkg/policy"
)

// Transport returns a RoundTripper that guards every request through base as a call to the dependency: the breaker may
// reject it, and it is sent again as the dependency's policy says. base nil is [http.DefaultTransport]. Below an
// http.Client each hop of a redirect is a call of its own, so all hops should go to the same dependency; where they do
// not, use [Client.TransportFunc].
//
// It returns the last response as it came, whatever its status, or an [*Error]: because the last attempt got none, the
// caller's context is done, or the request was not sent ([ErrOpen]). A request may be repeated if its method is GET,
// HEAD, OPTIONS, PUT or DELETE, if it has an Idempotency-Key, if the caller says so ([WithCall], [Idempotent]), or if it
// provably never reached the dependency. A body without GetBody is kept while it is sent, up to the policy's replay
// buffer; after a larger one there is no further attempt.
//
// The policy's attempt timeout covers an attempt up to its response's headers; the body must be read before the deadline
// of the call. A response that switches protocols, answers CONNECT, or is an event stream has no deadline and is never
// retried: it lasts until the caller ends it.
//
// base must heed the request's context. What net/http sends again by itself is counted among the attempts; of another
// base that does so only if it serves httptrace.
func (c *Client) Transport(dependency string, base http.RoundTripper) http.RoundTripper {
	d := c.Dependency(dependency)
	return c.transport(func(*http.Request) *Dependency { return d }, base)
}

// TransportFunc is [Client.Transport] with the dependency told by each request: dependency is called once for it,
// possibly at the same time for several. "" lets the request through to base unguarded, and a name that is none fails
// it with an [*InvalidNameError].
func (c *Client) TransportFunc(dependency func(*http.Request) string, base http.RoundTripper) http.RoundTripper {
	return c.transport(func(r *http.Request) *Dependency {
		if name := dependency(r); name != "" {
			return c.Dependency(name)
		}
		return nil
	}, base)
}

func (c *Client) transport(dependency func(*http.Request) *Dependency, base http.RoundTripper) *transport {
	if base == nil {
		base = http.DefaultTransport
	}
	return &transport{dependency: dependency, base: base}
}

// transport guards a base transport.
type transport struct {
	dependency func(*http.Request) *Dependency // nil = unguarded
	base       http.RoundTripper
}

func (t *transport) RoundTrip(req *http.Request) (*http.Response, error) {
	d := t.dependency(req)
	if d == nil {
		return t.base.RoundTrip(req)
	}
	o := callOptionsOf(req.Context())
	x := &exchange{request: d.begin(req.Context(), o), base: t.base, req: req}
	x.cancel = req.Cancel //nolint:staticcheck // http.Client.Timeout still cancels through it
	x.repeatable = o.idempotent.or(policy.Idempotent(req.Method, req.Header))
	x.body = newRequestBody(req, &x.policy.Retry, &x.copied)
	return x.run()
}

// CloseIdleConnections is what http.Client.CloseIdleConnections asks for.
func (t *transport) CloseIdleConnections() {
	if base, ok := t.base.(interface{ CloseIdleConnections() }); ok {
		base.CloseIdleConnections()
	}
}

// exchange is one HTTP request on its way through its attempts.
type exchange struct {
	request
	base       http.RoundTripper
	req        *http.Request // the caller's, never touched
	body       requestBody   // nil = none
	repeatable bool          // it may be carried out twice

	number        int  // of the attempt, what net/http sends again by itself not counted
	withoutExpect bool // the server refused Expect: 100-continue
	newConnection bool // the server is not responsible on the connections there are

	// What nearly every request needs, in the same piece of memory:
	firstAttempt attempt
	copied       copiedBody
}

func (x *exchange) run() (*http.Response, error) {
	if x.body != nil {
		defer x.body.finish()
	}
	var last *attempt
	permit, reason, err := x.first()
	for reason == "" {
		// Before the last response is gone: without a body there will be no other.
		body, bodyErr := x.openBody()
		if bodyErr != nil {
			permit.Done(Ignored)
			reason, err = policy.StopBody, bodyErr
			break
		}
		if last != nil && last.response != nil {
			last.discard()
		}
		if last == nil {
			last = &x.firstAttempt
			now := x.start
			if permit.probe != nil { // it was waited for
				now = time.Now()
			}
			last.begin(&x.request, x.body, now)
		} else {
			last = &attempt{}
			last.begin(&x.request, x.body, time.Now())
		}
		v := x.try(last, body, permit)
		permit, reason, err = x.next(v, x.body == nil || x.body.usable() == nil)
	}
	if last == nil || last.response == nil {
		return nil, x.fail(reason, err)
	}
	if reason != policy.StopDone && x.callerError() != nil {
		last.close() // its body died with the caller's context
		return nil, x.fail(reason, err)
	}
	x.end(reason, err)
	return last.handOver(x.req), nil
}

func (x *exchange) openBody() (io.ReadCloser, error) {
	if x.body == nil {
		return nil, nil
	}
	return x.body.open()
}

// try makes one attempt.
func (x *exchange) try(a *attempt, body io.ReadCloser, p Permit) (v policy.Verdict) {
	defer func() {
		p.Done(v.Outcome) // of a panic in base, which goes through: Ignored, the zero verdict's
		if a.response == nil {
			a.release()
		}
	}()
	x.number++
	r := x.clone(a, body)
	end := policy.Attempt{
		Method: r.Method, Idempotent: x.repeatable, Number: x.number,
		Expect: expectsContinue(r.Header), NewConnection: x.newConnection,
	}
	err := a.send(x.transport(), r)
	resends := a.resends()
	x.attempts += 1 + resends
	x.dep.ungranted(resends)
	if err != nil {
		end.Condition, end.FullTime, err = x.classify(a, err)
	} else {
		end.Condition, end.Status, end.Header = policy.Answered, a.response.StatusCode, a.response.Header
	}
	v = x.judge(end, err)
	switch v.Action {
	case policy.RetryWithoutExpect:
		x.withoutExpect = true
	case policy.RetryNewConnection:
		x.newConnection = true
	}
	return v
}

// clone returns the clone of the caller's request that the attempt sends.
func (x *exchange) clone(a *attempt, body io.ReadCloser) *http.Request {
	a.request = *x.req.WithContext(a) // by value, so that it costs no memory of its own
	r := &a.request
	if x.body != nil {
		r.Body, r.GetBody = body, x.body.open
		if b, ok := x.body.(*keptBody); ok && b.limit == 0 {
			r.GetBody = nil // net/http would take its error for the reason why the request failed
		}
	}
	r.Header = x.announce(r.Header, x.number)
	if x.withoutExpect {
		r.Header = r.Header.Clone()
		r.Header.Del("Expect")
	}
	return r
}

// transport is base, or one like it without connections, for an attempt that needs a new one.
func (x *exchange) transport() http.RoundTripper {
	base, ok := x.base.(*http.Transport)
	if !ok || !x.newConnection {
		return x.base
	}
	fresh := base.Clone()
	fresh.DisableKeepAlives = true // there will be no second request that could use it
	return fresh
}

func expectsContinue(h http.Header) bool {
	expect := h["Expect"]
	return len(expect) > 0 && strings.EqualFold(strings.TrimSpace(expect[0]), "100-continue")
}
