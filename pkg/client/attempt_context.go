package client

import (
	"context"
	"net/http/httptrace"
	"sync"
	"sync/atomic"
	"time"
)

// attemptContext is the context of one attempt: the caller's, which also ends when the attempt is ended. Most attempts
// succeed at once, through a transport that asks for little, so what a context can do is made when it is asked for.
//
// Its zero value with parent set is ready. It must not be copied.
type attemptContext struct {
	parent context.Context // the caller's

	mu    sync.Mutex
	over  bool  // ended by end
	cause error // why, if over; nil = only released

	inner atomic.Pointer[innerContext] // once somebody waits for the end, or looks behind it
	trace atomic.Pointer[attemptTrace] // once the transport asked for it
}

// innerContext is a context of the standard library's own kind. With it, contexts below cost no goroutine.
type innerContext struct {
	context.Context
	cancel context.CancelCauseFunc
}

// end ends the context. The first cause stays, also if it is nil; the caller's own end comes before any.
func (x *attemptContext) end(cause error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.over {
		return
	}
	x.over = true
	if x.cause = cause; x.parent.Err() != nil {
		x.cause = context.Cause(x.parent)
	}
	if inner := x.inner.Load(); inner != nil {
		inner.cancel(x.cause)
	}
}

// endedBy reports whether end ended the context, with the cause, while the caller's still lived.
func (x *attemptContext) endedBy(cause error) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.over && x.cause == cause //nolint:errorlint // a cause comes back as it was given
}

func (x *attemptContext) standard() *innerContext {
	if inner := x.inner.Load(); inner != nil {
		return inner
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	if inner := x.inner.Load(); inner != nil {
		return inner
	}
	parent := x.parent
	if x.over {
		parent = context.WithoutCancel(parent) // its end came later, if at all
	}
	inner := &innerContext{}
	inner.Context, inner.cancel = context.WithCancelCause(parent)
	if x.over {
		inner.cancel(x.cause)
	}
	x.inner.Store(inner)
	return inner
}

// Deadline is the caller's.
func (x *attemptContext) Deadline() (time.Time, bool) { return x.parent.Deadline() }

func (x *attemptContext) Done() <-chan struct{} { return x.standard().Done() }

func (x *attemptContext) Err() error {
	if inner := x.inner.Load(); inner != nil {
		return inner.Err()
	}
	if err := x.parent.Err(); err != nil {
		return err
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.over {
		return context.Canceled
	}
	return nil
}

// Value has a transport that looks for its trace find the attempt's.
func (x *attemptContext) Value(key any) any {
	if key == traceKey {
		return &x.traced().ClientTrace
	}
	if inner := x.inner.Load(); inner != nil {
		return inner.Value(key)
	}
	x.mu.Lock()
	over := x.over
	x.mu.Unlock()
	if over { // whoever asks for the cause must not find the caller's
		return x.standard().Value(key)
	}
	return x.parent.Value(key)
}

// attemptTrace is what a transport tells about an attempt, from its own goroutines.
type attemptTrace struct {
	httptrace.ClientTrace
	looking atomic.Bool  // it looks for a connection: it does heed the trace
	conns   atomic.Int32 // connections it got
	sends   atomic.Int32 // of these, how many it wrote request headers to
	latest  atomic.Int32 // the last of these, counted in conns
}

// traced returns the trace, which calls the caller's own as well.
func (x *attemptContext) traced() *attemptTrace {
	if t := x.trace.Load(); t != nil {
		return t
	}
	t := &attemptTrace{}
	t.ClientTrace = httptrace.ClientTrace{
		GetConn: func(string) { t.looking.Store(true) },
		GotConn: func(httptrace.GotConnInfo) { t.conns.Add(1) },
		WroteHeaders: func() {
			t.sends.Add(1)
			t.latest.Store(t.conns.Load())
		},
	}
	httptrace.WithClientTrace(x.parent, &t.ClientTrace) // adds the hooks of the parent's trace to ours
	if x.trace.CompareAndSwap(nil, t) {
		return t
	}
	return x.trace.Load()
}

// traceKey is what [httptrace.ContextClientTrace] asks a context for. The key is not exported, but every context is
// shown it.
var traceKey = func() (key any) {
	httptrace.ContextClientTrace(keyWitness{context.Background(), &key})
	return key
}()

// keyWitness notes which key it is asked for.
type keyWitness struct {
	context.Context
	key *any
}

func (w keyWitness) Value(key any) any {
	*w.key = key
	return nil
}

// alarm is a timer that can be used for one attempt after the other. It belongs to one client.
type alarm struct {
	timer *time.Timer
	ring  atomic.Pointer[attempt]
}

// setAlarm has a expire after d.
func (c *Client) setAlarm(a *attempt, d time.Duration) *alarm {
	l, _ := c.alarms.Get().(*alarm)
	if l == nil {
		l = &alarm{}
		l.ring.Store(a)
		l.timer = time.AfterFunc(d, func() {
			if a := l.ring.Load(); a != nil {
				a.expire()
			}
		})
		return l
	}
	l.ring.Store(a)
	l.timer.Reset(d)
	return l
}

// putAlarm takes an alarm back that was stopped in time. One that has gone off, or is just going off, is not used again.
func (c *Client) putAlarm(l *alarm) {
	l.ring.Store(nil)
	c.alarms.Put(l)
}
