package client

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"strconv"
	"time"

	"github.com/retryplane/retryplane/pkg/policy"
)

// Call is how a guarded call went. An [Error] carries it; for a call that succeeded, or whose last response was handed
// over as it came, ask for it with [Record].
type Call struct {
	Dependency string
	Attempts   int               // sent, those that net/http sent again by itself included; 0 = the breaker or the caller stopped the first
	Reason     policy.StopReason // why no further attempt followed; policy.StopDone after an answer that needs none
	Elapsed    time.Duration     // of the whole call, waits included; of a response, until it was handed over
	LastStatus int               // HTTP status of the last attempt that got a response; 0 = none did
	Source     Source            // whose breaker and budget decided
}

// CallOption adjusts a single call: [Idempotent], [Record], and what wins over the policy in force: [MaxAttempts],
// [Timeout], [AttemptTimeout], [Retry], [Retry500], [RetryThrottledWrites] and [RetryUnavailableWrites]. It is an argument
// of [Do] and [Dependency.Do], or lies in the context that [WithCall] returns. It may be used again and by several
// goroutines, save for Record.
type CallOption func(*callOptions)

type callOptions struct {
	idempotent idempotence
	record     *Call
	adjusted   *adjustment // of the retry policy; nil = it applies as it is
}

// idempotence is what the caller said about the call.
type idempotence uint8

const (
	unsaid idempotence = iota // the method and the headers decide; a guarded function is idempotent
	declaredIdempotent
	declaredOnce
)

func (i idempotence) or(otherwise bool) bool {
	if i == unsaid {
		return otherwise
	}
	return i == declaredIdempotent
}

// Idempotent says whether the call may be carried out twice, whatever its method and headers say. With false it is
// sent again only if it provably never reached the dependency, which of a guarded function ([Dependency.Do]) nobody
// knows: that is one attempt.
func Idempotent(yes bool) CallOption {
	return func(o *callOptions) {
		o.idempotent = declaredOnce
		if yes {
			o.idempotent = declaredIdempotent
		}
	}
}

// Record has how the call went written to *to before the call returns. Several calls through one context, such as the
// requests of a redirect, write one after the other; the last one stays. Calls at the same time need records of their
// own.
func Record(to *Call) CallOption {
	return func(o *callOptions) { o.record = to }
}

type callOptionsKey struct{}

// WithCall returns a context whose guarded calls have the options, in addition to those that ctx has already. It is how
// a single request through a [Client.Transport] is adjusted; [Dependency.Do] takes options as arguments too.
func WithCall(ctx context.Context, opts ...CallOption) context.Context {
	o := callOptionsOf(ctx)
	for _, set := range opts {
		set(&o)
	}
	return context.WithValue(ctx, callOptionsKey{}, o)
}

func callOptionsOf(ctx context.Context) callOptions {
	o, _ := ctx.Value(callOptionsKey{}).(callOptions)
	return o
}

// leastAttempt is what an attempt needs to be worth sending: in less time hardly any dependency answers.
const leastAttempt = 10 * time.Millisecond

// request is one call on its way through its attempts: what the gates ask, and what is told at the end. It belongs to
// one goroutine.
type request struct {
	callOptions
	dep      *Dependency
	ctx      context.Context // the caller's
	cancel   <-chan struct{} // the caller's other way to cancel: http.Request.Cancel; nil = none
	policy   *policy.Policy  // in force when the call began, and until it ends; with the caller's adjustments
	refused  error           // the caller's adjustments are out of bounds: nothing is sent
	served   *served         // whose request it is a part of; nil = nobody's that we know
	id       string          // of the call, for layers below; "" until it is told
	start    time.Time
	deadline time.Time // the policy's or the caller's, whichever is earlier

	attempts   int            // sent so far
	last       policy.Attempt // how the last of them ended
	lastErr    error          // its error; nil after a response
	lastWord   string         // how it ended, in a word of another protocol; "" = see last
	lastStatus int            // of the last response
	prev       time.Duration  // wait before the last attempt
	errs       []error        // of the attempts, the earliest first
}

func (d *Dependency) begin(ctx context.Context, o callOptions) request {
	c := request{callOptions: o, dep: d, ctx: ctx, served: servedBy(ctx), start: time.Now()}
	c.policy, c.refused = o.adjusted.over(d.policy())
	c.deadline = c.start.Add(c.policy.Retry.Deadline)
	if at, ok := ctx.Deadline(); ok && at.Before(c.deadline) {
		c.deadline = at
	}
	return c
}

// first asks for the permit of the first attempt, which no budget stops.
func (c *request) first() (Permit, policy.StopReason, error) {
	if err := c.ctx.Err(); err != nil {
		return Permit{}, c.reasonOf(err), err
	}
	if c.refused != nil {
		return Permit{}, policy.StopNotRetryable, c.refused
	}
	p, err := c.dep.Acquire(c.ctx)
	if err != nil {
		return Permit{}, c.reasonOf(err), err
	}
	return p, "", nil
}

// next asks the gates whether another attempt may follow one that ended with v, and waits out the backoff while the
// budget is drawn from. It returns the permit for that attempt, or who stopped the call, with an error if that was
// not the policy.
func (c *request) next(v policy.Verdict, replayable bool) (Permit, policy.StopReason, error) {
	if v.Reason == policy.StopDone { // what the gates would say, without asking the clock
		return Permit{}, policy.StopDone, nil
	}
	own := v
	if v.Action != policy.Stop {
		v.After = max(v.After, c.dep.notBefore())
	}
	wait, reason := c.policy.Retry.Next(c.instant(v, replayable))
	if reason != "" {
		if own.After == v.After { // else the fleet knows more already
			c.tellFleet(own, reason)
		}
		return Permit{}, reason, c.callerError()
	}
	ctx, stop := c.cancellable()
	defer stop()
	g, err := c.dep.reserve(ctx, wait, c.deadline)
	if err != nil {
		return Permit{}, c.reasonOf(err), err
	}
	if reason := c.instant(v, replayable).Resend(); reason != "" {
		return Permit{}, reason, c.callerError()
	}
	if c.dep.notBefore() > demandSlack { // heard while this retry waited
		return Permit{}, policy.StopRetryAfter, nil
	}
	p, err := c.dep.acquireRetry(ctx, g)
	if err != nil {
		return Permit{}, c.reasonOf(err), err
	}
	c.prev = wait
	c.dep.client.emit(Event{
		Kind: EventRetry, Dependency: c.dep.name, Attempt: c.attempts, Wait: wait, Reason: c.lastEnd(), Err: c.lastErr,
	})
	return p, "", nil
}

func (c *request) instant(v policy.Verdict, replayable bool) policy.Call {
	return policy.Call{
		Now: time.Now(), Deadline: c.deadline, Cancelled: c.cancelled(),
		MinAttempt: min(leastAttempt, c.policy.Retry.AttemptTimeout),
		Attempts:   c.attempts, Verdict: v, Prev: c.prev, Draw: rand.Float64(),
		Replayable: replayable, OuterRetrying: c.served != nil && c.served.retrying,
		// Asked only where the answer matters: that takes a lock, which calls that succeed have no need of.
		BreakerClosed: v.Action != policy.Stop && c.dep.breakerClosed(),
	}
}

// cancelled reports whether the caller called the request off. A deadline of the caller is the deadline gate's.
func (c *request) cancelled() bool {
	if err := c.ctx.Err(); err != nil {
		return !errors.Is(err, context.DeadlineExceeded)
	}
	select {
	case <-c.cancel:
		return true
	default:
		return false
	}
}

// callerError is the caller's context error, nil while that lives.
func (c *request) callerError() error {
	if err := c.ctx.Err(); err != nil {
		return err
	}
	if c.cancelled() {
		return context.Canceled
	}
	return nil
}

// cancellable returns the caller's context, which also ends with http.Request.Cancel. stop must be called.
func (c *request) cancellable() (ctx context.Context, stop func()) {
	if c.cancel == nil {
		return c.ctx, func() {}
	}
	ctx, cancel := context.WithCancel(c.ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		select {
		case <-c.cancel:
			cancel()
		case <-ctx.Done():
		}
	}()
	return ctx, func() {
		cancel()
		<-ended
	}
}

// reasonOf says which gate an error of the dependency's core stands for.
func (c *request) reasonOf(err error) policy.StopReason {
	switch {
	case errors.Is(err, ErrOpen):
		return policy.StopBreaker
	case errors.Is(err, ErrBudget):
		return policy.StopBudget
	case c.cancelled():
		return policy.StopCancelled
	case errors.Is(err, context.DeadlineExceeded):
		return policy.StopDeadline
	}
	return policy.StopNotRetryable // the dependency's name is none
}

// ended is what the caller's context and the deadline of the call say about an attempt since began that ended in an
// error; ok is false if both still live.
func (c *request) ended(began time.Time) (condition policy.Condition, fullTime, ok bool) {
	if c.cancelled() {
		return policy.CallerCancelled, false, true
	}
	now := time.Now()
	if c.ctx.Err() == nil && now.Before(c.deadline) {
		return 0, false, false
	}
	return policy.OverallDeadline, c.fullTime(now.Sub(began)), true
}

// fullTime reports whether an attempt that the deadline ended had lasted as long as attempts may. A caller that sets
// its own deadline to just that is a moment short of it by the time the attempt begins.
func (c *request) fullTime(lasted time.Duration) bool {
	full := min(c.policy.Retry.AttemptTimeout, c.policy.Retry.Deadline)
	return lasted >= full-full/10
}

// judge books how the last attempt ended and returns what the policy makes of it.
func (c *request) judge(a policy.Attempt, err error) policy.Verdict {
	c.last, c.lastErr = a, err
	if err != nil {
		c.errs = append(c.errs, err)
	} else if a.Condition == policy.Answered {
		c.lastStatus = a.Status
	}
	var now time.Time
	if a.Condition != policy.Answered || a.Status/100 != 2 { // nothing in a good answer is measured by the clock
		now = time.Now()
	}
	return c.policy.Retry.Decide(a, now)
}

// lastEnd is how the last attempt ended, in a word: the condition's, or the status.
func (c *request) lastEnd() string {
	if c.lastWord != "" {
		return c.lastWord
	}
	if c.last.Condition == policy.Answered {
		return strconv.Itoa(c.last.Status)
	}
	return c.last.Condition.String()
}

// end closes the books of the call and tells its record. err is what stopped it, if that was not the policy.
func (c *request) end(reason policy.StopReason, err error) {
	c.finish(reason)
	if c.record != nil {
		*c.record = c.told(reason, err)
	}
}

// finish closes the books.
func (c *request) finish(reason policy.StopReason) {
	c.tellAbove(reason)
	if c.attempts == 0 {
		return
	}
	c.dep.finished(c.attempts)
	if reason != policy.StopDone {
		c.dep.client.emit(Event{
			Kind: EventGiveUp, Dependency: c.dep.name, Attempt: c.attempts, Reason: string(reason), Err: c.lastErr,
		})
	}
}

// told is how the call went.
func (c *request) told(reason policy.StopReason, err error) Call {
	told := Call{
		Dependency: c.dep.name, Attempts: c.attempts, Reason: reason, Elapsed: time.Since(c.start), LastStatus: c.lastStatus,
		Source: c.dep.source(),
	}
	if open, ok := errors.AsType[*OpenError](err); ok {
		told.Source = open.Source
	}
	return told
}

// fail ends the call with an error; err is what stopped it, nil if the errors of the attempts say it all.
func (c *request) fail(reason policy.StopReason, err error) error {
	c.finish(reason)
	e := &Error{Call: c.told(reason, err)}
	if c.record != nil {
		*c.record = e.Call
	}
	for _, err := range slices.Backward(c.errs) {
		e.errs = append(e.errs, err)
	}
	// ErrOpen promises that nothing was sent. That a breaker stopped a retry is told by the reason.
	if err != nil && (c.attempts == 0 || !errors.Is(err, ErrOpen)) {
		e.errs = append(e.errs, err)
	}
	return e
}

// source says whose decisions are in force: the fleet's, or this instance's own while it was told nothing or is cut off.
func (d *Dependency) source() Source {
	if !d.view.Load().known {
		return SourceLocal
	}
	if stale := d.client.link.now().staleAt(d.policy().ViewTTL); !stale.IsZero() && passed(d.client.now(), stale) {
		return SourceLocal
	}
	return SourceFleet
}
