package client

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"sync/atomic"
	"time"

	"github.com/retryplane/retryplane/pkg/policy"
	"github.com/retryplane/retryplane/pkg/wire"
)

// send delivers parcels in as many syncs as the limits of the API ask for. What did not arrive is back in the
// dependencies' counters when it returns; the error is that of the first sync that failed.
func (c *Client) send(ctx context.Context, parcels []*parcel) error {
	for len(parcels) > 0 {
		n, reports := 0, 0
		for n < len(parcels) && reports+len(parcels[n].reports) <= wire.MaxReports {
			reports += len(parcels[n].reports)
			n++
		}
		n = max(n, 1)
		if err := c.deliver(ctx, parcels[:n]); err != nil {
			c.undelivered(parcels[n:], false)
			return err
		}
		parcels = parcels[n:]
	}
	return nil
}

// deliver sends one sync, or several if it is too large, and hands out the answer.
func (c *Client) deliver(ctx context.Context, parcels []*parcel) error {
	req := wire.SyncRequest{
		Instance: c.instance, Service: c.config.service, Version: c.config.version, Dependencies: []wire.Report{},
	}
	for _, p := range parcels {
		req.Dependencies = append(req.Dependencies, p.reports...)
	}
	req.Seq = c.seq.Add(1)
	body, err := json.Marshal(req)
	if err != nil {
		return fmt.Errorf("encode a sync: %w", err) // strings and numbers: it does not happen
	}
	if len(body) > wire.MaxBody && len(parcels) > 1 {
		return c.halve(ctx, parcels)
	}
	sent := c.now()
	resp, failure := c.post(ctx, body)
	if failure == nil {
		c.answered(parcels, resp, sent)
		return nil
	}
	if failure.tooLarge {
		if len(parcels) > 1 {
			return c.halve(ctx, parcels)
		}
		c.config.log.Error("report exceeds the control plane's limit and is dropped", logged(failure))
		c.undelivered(parcels, true)
		return nil
	}
	if good, bad := failure.sort(parcels); len(bad) > 0 && len(good) > 0 {
		for _, p := range bad {
			c.bar(p, failure)
		}
		return c.deliver(ctx, good)
	}
	c.failed(failure, sent)
	c.undelivered(parcels, failure.arrived)
	return failure
}

// bar keeps a dependency to itself for a while that the control plane does not want to hear of from this client: its
// token is for others, or something in the report is wrong. The other dependencies must not suffer for it.
func (c *Client) bar(p *parcel, why error) {
	const barred = time.Minute
	p.lose()
	if p.dep.bar(barred) {
		c.config.log.Error("the control plane refuses a dependency; its local breaker and budget apply",
			"dependency", p.dep.name, logged(why))
	}
	p.unanswered(c.now())
}

func (c *Client) halve(ctx context.Context, parcels []*parcel) error {
	half := len(parcels) / 2
	if err := c.deliver(ctx, parcels[:half]); err != nil {
		c.undelivered(parcels[half:], false)
		return err
	}
	return c.deliver(ctx, parcels[half:])
}

// syncError says why a sync brought no answer.
type syncError struct {
	cause    error
	arrived  bool          // perhaps: it must not be sent again
	busy     bool          // the control plane is there and asks for time
	refused  bool          // it will not take any sync of this client
	token    bool          // because of its token
	tooLarge bool          // the body is over its limit
	given    bool          // the caller gave up before the control plane had its time
	after    time.Duration // how long to leave it alone at least
}

// sort finds the parcels that a refusal names.
func (e *syncError) sort(parcels []*parcel) (good, bad []*parcel) {
	problem, ok := errors.AsType[*wire.Problem](e.cause)
	if !ok || !e.refused {
		return parcels, nil
	}
	named := map[int]bool{}
	for _, f := range problem.Errors {
		var i int
		if _, err := fmt.Sscanf(f.Field, "dependencies[%d]", &i); err == nil {
			named[i] = true
		}
	}
	report := 0
	for _, p := range parcels {
		wrong := false
		for range p.reports {
			wrong = wrong || named[report]
			report++
		}
		if wrong {
			bad = append(bad, p)
		} else {
			good = append(good, p)
		}
	}
	return good, bad
}

func (e *syncError) Error() string {
	if e.token {
		return "sync: " + ErrTokenRefused.Error() + ": " + e.cause.Error()
	}
	return "sync: " + e.cause.Error()
}

// Is makes the refusal of a token an [ErrTokenRefused].
func (e *syncError) Is(target error) bool { return target == ErrTokenRefused && e.token }

func (e *syncError) Unwrap() error { return e.cause }

// post sends one body.
func (c *Client) post(ctx context.Context, body []byte) (*wire.SyncResponse, *syncError) {
	caller := ctx
	ctx, cancel := context.WithTimeout(ctx, syncTimeout)
	defer cancel()
	var trace syncTrace
	ctx = trace.watch(ctx)
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.base+wire.PathSync, bytes.NewReader(body))
	if err != nil {
		return nil, &syncError{cause: err, refused: true}
	}
	req.Header.Set("Content-Type", "application/json")
	c.authorize(req)
	resp, err := c.config.http.Do(req)
	if err != nil {
		return nil, &syncError{cause: err, arrived: !trace.unsent(err), given: caller.Err() != nil}
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		return nil, &syncError{cause: err, arrived: true, given: caller.Err() != nil}
	}
	if resp.StatusCode != http.StatusOK {
		return nil, refusal(resp, answer, c.now())
	}
	var out wire.SyncResponse
	if err := json.Unmarshal(answer, &out); err != nil {
		return nil, &syncError{cause: fmt.Errorf("decode the answer: %w", err), arrived: true}
	}
	return &out, nil
}

// syncTrace finds out whether a request left.
type syncTrace struct{ looked, written atomic.Bool }

func (t *syncTrace) watch(ctx context.Context) context.Context {
	return httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		GetConn:      func(string) { t.looked.Store(true) },
		WroteHeaders: func() { t.written.Store(true) },
	})
}

// unsent reports whether a request that failed with err certainly did not arrive: there was no connection, or a
// transport that tells such things never wrote to it.
func (t *syncTrace) unsent(err error) bool {
	var op *net.OpError
	return errors.As(err, &op) && op.Op == "dial" || t.looked.Load() && !t.written.Load()
}

// maxAnswer bounds what is read of an answer. 500 decisions with their policies are less than a tenth of it.
const maxAnswer = 8 << 20

func (c *Client) authorize(req *http.Request) {
	if c.config.token != "" {
		req.Header.Set("Authorization", "Bearer "+c.config.token)
	}
	req.Header.Set("User-Agent", "retryplane-go")
}

// refusal makes an error of an answer that is none.
func refusal(resp *http.Response, body []byte, now time.Time) *syncError {
	var problem wire.Problem
	e := &syncError{}
	if json.Unmarshal(body, &problem) == nil && problem.Code != "" {
		problem.Status = resp.StatusCode
		e.cause = &problem
	} else {
		e.cause = errors.New(resp.Status)
	}
	e.after, _ = policy.RetryAfter(resp.Header, now)
	switch status := resp.StatusCode; {
	case status == http.StatusRequestEntityTooLarge:
		e.tooLarge = true
	case status == http.StatusTooManyRequests, problem.Code == wire.CodeBusy, problem.Code == wire.CodeShuttingDown:
		e.busy = true
	case status < 500:
		e.refused = true
		e.token = status == http.StatusUnauthorized || status == http.StatusForbidden
	default:
		// A replica without its store may have kept the counts, a proxy may have passed them on.
		e.arrived = true
	}
	return e
}

// answered hands an answer out.
func (c *Client) answered(parcels []*parcel, resp *wire.SyncResponse, sent time.Time) {
	c.syncs.Add(1)
	before, after := c.link.answered(sent, time.Duration(clamp(resp.NextSyncMS, 0, maxSyncMS))*time.Millisecond, resp.Degraded)
	now := c.now()
	hold := time.Time{}
	if resp.Degraded {
		hold = now.Add(defaultInterval)
	}
	c.syncer.leave(hold)
	c.relink(before, after, errDegraded)
	byName := make(map[string]*wire.Decision, len(resp.Dependencies))
	for i := range resp.Dependencies {
		byName[resp.Dependencies[i].Name] = &resp.Dependencies[i]
	}
	for _, p := range parcels {
		p.dep.tell(p, byName[p.dep.name], sent, resp.Degraded)
	}
}

// maxSyncMS is the longest time between two syncs that a control plane can ask for.
const maxSyncMS = 5000

func clamp(n, low, high int64) int64 { return min(max(n, low), high) }

// failed notes what a failed sync says about the control plane.
func (c *Client) failed(e *syncError, sent time.Time) {
	c.syncErrors.Add(1)
	before, after := c.link.failed(sent, !e.busy && !e.given, e)
	const most = time.Minute
	wait := max(min(e.after, most), c.link.backoff())
	if e.refused {
		wait = maxBackoff/2 + c.link.backoff()/2
		if c.refused.CompareAndSwap(false, true) {
			c.logRefusal(e)
		}
	}
	if !e.given {
		c.syncer.leave(c.now().Add(wait))
	}
	c.relink(before, after, e)
}

// logRefusal says whose fault it is: a token or an address is mended by whoever runs this program, not by waiting.
func (c *Client) logRefusal(e *syncError) {
	const text = "; local breakers and budgets apply"
	switch {
	case !e.token:
		c.config.log.Error("the control plane refuses this client"+text, "url", c.base, logged(e.cause))
	case c.config.token == "":
		c.config.log.Error("the control plane wants a token, and this client has none"+text, "url", c.base, logged(e.cause))
	default:
		c.config.log.Error("the control plane refused the token"+text, "url", c.base, logged(e.cause))
	}
}

// undelivered gives parcels back that brought no answer.
func (c *Client) undelivered(parcels []*parcel, arrived bool) {
	for _, p := range parcels {
		if arrived {
			p.lose()
		} else {
			p.restore()
		}
		p.unanswered(c.now())
	}
}

// relink lets everybody know that the way to the control plane has changed.
func (c *Client) relink(before, after linkState, why error) {
	if before == after {
		return
	}
	switch {
	case after.cutOff && !before.cutOff && !after.closed:
		if e, ok := errors.AsType[*syncError](why); !ok || !e.refused { // a refusal was logged already, as what it is
			c.config.log.Warn("control plane out of reach; local breakers and budgets apply", logged(why))
		}
		c.emit(Event{Kind: EventDegraded, Err: why})
	case before.cutOff && !after.cutOff:
		c.refused.Store(false)
		c.config.log.Info("control plane answers again")
		c.emit(Event{Kind: EventRecovered})
	}
	// The interval alone is nobody's concern, nor is a stream while syncs are answered.
	before.next, after.next = 0, 0
	if after.failing.IsZero() {
		before.streamed, after.streamed = time.Time{}, time.Time{}
	}
	if before == after {
		return
	}
	for _, d := range c.syncer.actives() {
		d.relink()
	}
}
