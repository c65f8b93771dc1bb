package client

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/retryplane/retryplane/pkg/policy"
)

// Error is how a guarded call fails: what became of it, and everything that went wrong on the way. [Dependency.Do]
// and the transports return no other error.
//
// errors.Is and errors.As see the error of every attempt, the latest first, and what ended the call: [ErrOpen] (As:
// [*OpenError]), [ErrBudget], or the caller's context error. So a call that the budget cut short is both ErrBudget
// and the dependency's own error.
type Error struct {
	Call
	errs []error
}

// Error names the dependency and who ended the call, and ends with the latest error; each of these once. So the reason
// is left out where the rest says it: of a call that was not sent, its error does.
func (e *Error) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: ", e.Dependency)
	switch e.Attempts {
	case 0:
		b.WriteString("not sent")
	case 1:
		b.WriteString("1 attempt")
	default:
		fmt.Fprintf(&b, "%d attempts", e.Attempts)
	}
	if e.Reason != policy.StopAttempts && (e.Attempts > 0 || len(e.errs) == 0) {
		fmt.Fprintf(&b, " (%s)", e.Reason)
	}
	if len(e.errs) == 0 {
		return b.String()
	}
	text := e.errs[0].Error()
	if open, ok := e.errs[0].(*OpenError); ok && open.Dependency == e.Dependency { //nolint:errorlint // what wraps it has its own words
		text = open.text()
	}
	return b.String() + ": " + text
}

// Unwrap returns the errors of the attempts, the latest first, then what ended the call.
func (e *Error) Unwrap() []error { return e.errs }

// Timeout reports whether time was what ran out, so that [net.Error] and url.Error tell it as they do without us.
func (e *Error) Timeout() bool {
	if e.Reason == policy.StopDeadline {
		return true
	}
	var timeout interface{ Timeout() bool }
	return len(e.errs) > 0 && errors.As(e.errs[0], &timeout) && timeout.Timeout()
}

// timeoutError is the end of an attempt or of a response's body by our clock. The transport's own error is no use
// there: over HTTP/2 it says that the caller cancelled.
type timeoutError struct {
	what  string
	after time.Duration
}

func (e *timeoutError) Error() string        { return fmt.Sprintf("%s within %s", e.what, e.after) }
func (e *timeoutError) Timeout() bool        { return true }
func (e *timeoutError) Is(target error) bool { return target == context.DeadlineExceeded }

// Permanent marks an error that another attempt will not change: [Dependency.Do] does not retry it. It is a failure
// for the breaker. Permanent(nil) is nil; errors.Is and errors.As see err.
func Permanent(err error) error { return mark(err, policy.FuncPermanent, 0) }

// Ignore marks an error that says nothing about the dependency, such as one made before anything was sent:
// [Dependency.Do] does not retry it, and the breaker does not see it. Ignore(nil) is nil; errors.Is and errors.As see
// err.
func Ignore(err error) error { return mark(err, policy.FuncIgnored, 0) }

// RetryAfter marks an error with how long the dependency asks to be left alone: [Dependency.Do] waits at least that
// long before it tries again, and not at all where the policy's cap or the deadline is nearer. A wait of 0 or less
// demands nothing. RetryAfter(nil, wait) is nil; errors.Is and errors.As see err.
func RetryAfter(err error, wait time.Duration) error { return mark(err, policy.FuncFailed, wait) }

// markedError carries what the caller knows about an error.
type markedError struct {
	error
	condition policy.Condition
	after     time.Duration
}

func (e *markedError) Unwrap() error { return e.error }

func mark(err error, condition policy.Condition, after time.Duration) error {
	if err == nil {
		return nil
	}
	return &markedError{err, condition, after}
}

// marking returns what is known about an error that a guarded function or a base transport returned.
func marking(err error) (condition policy.Condition, after time.Duration) {
	if m, ok := errors.AsType[*markedError](err); ok {
		return m.condition, m.after
	}
	if e, ok := errors.AsType[*Error](err); ok {
		// A guarded call within this one gave up: it has retried for us. If it was never sent, that is no news
		// about this dependency.
		if e.Attempts == 0 {
			return policy.FuncIgnored, 0
		}
		return policy.FuncPermanent, 0
	}
	if errors.Is(err, ErrOpen) {
		return policy.FuncIgnored, 0
	}
	return policy.FuncFailed, 0
}
