package policy

import (
	"strconv"
	"time"
)

// Code is a gRPC status code, with the numbers of google.golang.org/grpc/codes.
type Code uint32

const (
	codeOK                Code = 0
	codeCanceled          Code = 1
	codeUnknown           Code = 2
	codeDeadlineExceeded  Code = 4
	codeResourceExhausted Code = 8
	codeUnimplemented     Code = 12
	codeInternal          Code = 13
	codeUnavailable       Code = 14
	codeDataLoss          Code = 15
	codeUnauthenticated   Code = 16 // the last one
)

// RPC is how one attempt of a gRPC call ended with a status. An end by the caller's own context is not a status: that
// is [RetryPolicy.Decide] with CallerCancelled, OverallDeadline or AttemptTimeout.
type RPC struct {
	Code       Code
	Idempotent bool // the method is declared idempotent; gRPC methods are not by themselves
	NotSent    bool // proved: the server never saw the call
	Committed  bool // response headers came, or part of a stream was handed over

	Pushback  []string      // values of the trailer grpc-retry-pushback-ms
	RetryInfo time.Duration // retry_delay of a google.rpc.RetryInfo in the status; 0 = none
}

// DecideRPC says what the end of one gRPC attempt means. UNAVAILABLE is retried if the method is idempotent or the call
// was not sent, RESOURCE_EXHAUSTED only if the server says when to come back and the method is idempotent or
// RetryThrottledWrites is set: it may as well mean a message that is too large. A committed call is never retried.
func (r RetryPolicy) DecideRPC(a RPC) Verdict {
	v := Verdict{Outcome: a.Code.outcome()}
	after, hint, veto := pushback(a.Pushback)
	if hint != HintValid && a.RetryInfo > 0 {
		after, hint = a.RetryInfo, HintValid
	}
	switch {
	case v.Outcome == Success:
		v.Reason = StopDone
	case veto:
		v.Reason = StopVeto
	case a.retryable(r, hint):
		v.Action, v.After, v.Hint = Retry, after, hint
	default:
		v.Reason = StopNotRetryable
	}
	return v
}

func (a RPC) retryable(r RetryPolicy, hint Hint) bool {
	switch {
	case a.Committed:
		return false
	case a.Code == codeUnavailable:
		return a.Idempotent || a.NotSent
	case a.Code == codeResourceExhausted:
		return hint == HintValid && (a.Idempotent || r.RetryThrottledWrites)
	}
	return false
}

// outcome follows the HTTP statuses that the codes correspond to: a server that refuses a call is a server that works.
func (c Code) outcome() Outcome {
	switch c {
	case codeOK:
		return Success
	case codeCanceled, codeUnimplemented:
		return Ignored
	case codeResourceExhausted:
		return Throttled
	case codeUnknown, codeDeadlineExceeded, codeInternal, codeUnavailable, codeDataLoss:
		return Failure
	}
	if c > codeUnauthenticated {
		return Failure // gRPC reads an unknown code as UNKNOWN
	}
	return Success
}

// pushback reads grpc-retry-pushback-ms as gRPC's retry design (gRFC A6) wants it: milliseconds; a value below 0, one
// that is no number, or more than one forbid the retry.
func pushback(values []string) (wait time.Duration, hint Hint, veto bool) {
	if len(values) == 0 {
		return 0, HintAbsent, false
	}
	ms, err := strconv.ParseInt(values[0], 10, 32)
	if len(values) > 1 || err != nil || ms < 0 {
		return 0, HintInvalid, true
	}
	return time.Duration(ms) * time.Millisecond, HintValid, false
}
