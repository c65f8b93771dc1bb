package policy

import (
	"net/http"
	"strings"
	"time"
)

// Action is what may follow an attempt as far as its end is concerned; whether it does is for the gates
// ([RetryPolicy.Next]).
type Action uint8

// The actions.
const (
	Stop               Action = iota // the call is over
	Retry                            // send the request again
	RetryNewConnection               // send it again on a connection of its own: the server is not responsible on this one
	RetryWithoutExpect               // send it again without Expect: 100-continue, which the server refused
)

// String is the action's word in logs and events.
func (a Action) String() string {
	switch a {
	case Retry:
		return "retry"
	case RetryNewConnection:
		return "retry_new_connection"
	case RetryWithoutExpect:
		return "retry_without_expect"
	}
	return "stop"
}

// Attempt is how one attempt ended, with what decides whether another may follow. The zero value is an attempt that was
// answered with no valid status: a failure, not retried.
type Attempt struct {
	Method     string      // as sent; only CONNECT matters here
	Idempotent bool        // the request may be carried out twice: see Idempotent, or declared by the caller
	Number     int         // 1 = first attempt of the call
	Condition  Condition   // how it ended
	Status     int         // of the response; used with Answered
	Header     http.Header // of the response; nil = none. Not changed

	Expect        bool // the attempt carried Expect: 100-continue
	NewConnection bool // it was sent on a connection of its own, after a RetryNewConnection
	FullTime      bool // it had its whole attempt timeout when the overall deadline ended it; used with OverallDeadline
}

// Verdict is what follows from one attempt.
type Verdict struct {
	Action  Action
	Outcome Outcome    // what the breaker sees
	Reason  StopReason // why the action is Stop, StopDone if all is well; "" if it is another

	// After is how long the server asks us to stay away at least; 0 = no demand. It is read only where the action is
	// not Stop: a demand never makes an answer retryable.
	After time.Duration
	Hint  Hint // whether After was said
}

// Decide says what one attempt's end means, by itself: attempts, deadline, body, breaker and budget permitting. now is
// the time when the response's headers came; dates in them are measured against it.
//
// The policy's Retry500, RetryThrottledWrites and RetryUnavailableWrites are honoured. A server's veto ([Vetoed]) stops
// whatever else would be retried. For gRPC see [RetryPolicy.DecideRPC].
func (r RetryPolicy) Decide(a Attempt, now time.Time) Verdict {
	action, outcome := r.judge(a, now)
	v := Verdict{Action: action, Outcome: outcome}
	switch {
	case outcome == Success:
		v.Action, v.Reason = Stop, StopDone
	case Vetoed(a.Header):
		v.Action, v.Reason = Stop, StopVeto
	case action != Stop:
		v.After, v.Hint = RetryAfter(a.Header, now)
	case a.Condition == CallerCancelled:
		v.Reason = StopCancelled
	case a.Condition == OverallDeadline:
		v.Reason = StopDeadline
	default:
		v.Reason = StopNotRetryable
	}
	return v
}

func (r RetryPolicy) judge(a Attempt, now time.Time) (Action, Outcome) {
	if a.Condition == Answered {
		action, outcome := r.judgeStatus(a, now)
		if action != Stop && streams(a) {
			action = Stop
		}
		return action, outcome
	}
	row := a.Condition.consequence()
	action, outcome := row.other, row.outcome
	if a.Idempotent {
		action = row.idempotent
	}
	switch {
	case a.Condition == MalformedResponse && a.Number > 1:
		action = Stop // one bad answer may be an accident of the network, two are the server's habit
	case a.Condition == OverallDeadline && a.FullTime:
		outcome = Failure
	}
	return action, outcome
}

func (r RetryPolicy) judgeStatus(a Attempt, now time.Time) (Action, Outcome) {
	switch s := a.Status; s {
	case 417:
		if a.Expect {
			return RetryWithoutExpect, Ignored
		}
		return Stop, Success
	case 421:
		if a.NewConnection {
			return Stop, Ignored
		}
		return RetryNewConnection, Ignored
	case 429:
		return retryIf(a.Idempotent || r.RetryThrottledWrites), Throttled
	case 500:
		return retryIf(a.Idempotent && r.Retry500), Failure
	case 502, 504:
		return retryIf(a.Idempotent), Failure
	case 503:
		return retryIf(a.Idempotent || r.RetryUnavailableWrites && saysRetryAfter(a.Header, now)), Failure
	case 501, 505, 511:
		return Stop, Ignored
	default:
		// RFC 9110, section 15: a status that is not of the five classes is treated as a server's error.
		if s >= 100 && s < 500 {
			return Stop, Success
		}
		return Stop, Failure
	}
}

func retryIf(ok bool) Action {
	if ok {
		return Retry
	}
	return Stop
}

// saysRetryAfter wants Retry-After itself, readable: it is the server's word that it did not act on the request, which
// the rate limit headers that come with every answer are not.
func saysRetryAfter(h http.Header, now time.Time) bool {
	_, hint := demandHeaders[0].largest(h, now)
	return hint == HintValid
}

// streams reports whether the response is the beginning of something that cannot be begun again behind the caller's
// back: a tunnel or an event stream.
func streams(a Attempt) bool {
	media, _, _ := strings.Cut(a.Header.Get("Content-Type"), ";")
	return a.Method == "CONNECT" || strings.EqualFold(trimBlanks(media), "text/event-stream")
}

// Idempotent reports whether a request may be carried out twice without harm: its method is GET (or ""), HEAD, OPTIONS,
// PUT or DELETE, or it has a non-empty Idempotency-Key or one of its aliases. Methods are case-sensitive (RFC 9110).
// A caller who knows better overrules it in [Attempt].
func Idempotent(method string, h http.Header, aliases ...string) bool {
	switch method {
	case "", "GET", "HEAD", "OPTIONS", "PUT", "DELETE":
		return true
	}
	if hasKey(h, "Idempotency-Key") {
		return true
	}
	for _, name := range aliases {
		if hasKey(h, name) {
			return true
		}
	}
	return false
}

func hasKey(h http.Header, name string) bool {
	for _, v := range h.Values(name) {
		if strings.Trim(v, " \t\"") != "" { // a key may be written as a quoted string; an empty one is none
			return true
		}
	}
	return false
}

// Vetoed reports whether the server asks that the request not be sent again: `x-should-retry: false`, or
// `Retry-Status: exhausted` from a retry layer below that gave up.
func Vetoed(h http.Header) bool {
	if len(h) == 0 {
		return false
	}
	for _, v := range h.Values("X-Should-Retry") {
		if strings.EqualFold(trimBlanks(v), "false") {
			return true
		}
	}
	for _, line := range h.Values("Retry-Status") {
		for _, layer := range splitField(line, ',') {
			status, _, _ := strings.Cut(layer, ";")
			if strings.EqualFold(trimBlanks(status), "exhausted") {
				return true
			}
		}
	}
	return false
}
