package policy

// Condition is how one attempt ended, as far as it matters for a retry. What Go errors mean which condition is for the
// caller to say; what follows from a condition is said here.
//
// "Headers" in the names are the request's: before they were written, the dependency cannot have acted on the request.
type Condition uint8

// The conditions.
const (
	Answered Condition = iota // a response came; its status decides

	DialRefused
	DialUnreachable
	DialTimeout
	DNSTemporary // temporary failure or timeout of the lookup
	DNSNotFound  // the name does not exist

	TLSUnknownCA
	TLSWrongHost
	TLSExpired
	TLSRejected // the handshake failed for another reason that will not go away

	TLSTimeout           // of the handshake
	EOFBeforeHeaders     // in the handshake too
	ResetBeforeHeaders   // in the handshake too
	TimeoutBeforeHeaders // the attempt's time was over while it waited for a connection

	BadURL
	BadScheme
	BadMethod
	BadHeader
	PlainHTTP  // a plain HTTP answer to an HTTPS request
	LocalError // anything else that went wrong on our side, such as reading the caller's body

	RefusedStream // HTTP/2 REFUSED_STREAM
	GoAway        // HTTP/2 GOAWAY with a last stream below ours
	StreamError   // any other error of an HTTP/2 or HTTP/3 stream

	EOFAfterWrite
	ResetAfterWrite
	BrokenPipe

	AttemptTimeout    // the attempt's time was over while the caller's context lived; also ResponseHeaderTimeout
	OverallDeadline   // the whole call's time was over
	CallerCancelled   // the caller's context is done
	MalformedResponse // what came is not HTTP
	BodyBroken        // the status was a success, then the body broke
	OtherError        // an error of the transport that nobody recognises

	FuncReturned  // a guarded function returned nil
	FuncFailed    // it returned an error
	FuncPermanent // it returned an error that another try will not change
	FuncIgnored   // it returned an error that says nothing about the dependency
)

// consequence is one row of the decision table: whether the request may be sent again, and what the breaker sees.
type consequence struct {
	name       string
	idempotent Action // for idempotent requests
	other      Action // for all others
	outcome    Outcome
}

// consequences is the decision table, except for what depends on more than the condition: the status of a response
// (judgeStatus), and the rows that judge adjusts. Other requests are retried only where the dependency provably never
// saw the request.
var consequences = [...]consequence{
	Answered: {name: "answered"},

	DialRefused:     {"dial_refused", Retry, Retry, Failure},
	DialUnreachable: {"dial_unreachable", Retry, Retry, Failure},
	DialTimeout:     {"dial_timeout", Retry, Retry, Failure},
	DNSTemporary:    {"dns_temporary", Retry, Retry, Failure},
	DNSNotFound:     {"dns_not_found", Stop, Stop, Ignored},

	TLSUnknownCA: {"tls_unknown_ca", Stop, Stop, Ignored},
	TLSWrongHost: {"tls_wrong_host", Stop, Stop, Ignored},
	TLSExpired:   {"tls_expired", Stop, Stop, Ignored},
	TLSRejected:  {"tls_rejected", Stop, Stop, Ignored},

	TLSTimeout:           {"tls_timeout", Retry, Retry, Failure},
	EOFBeforeHeaders:     {"eof_before_headers", Retry, Retry, Failure},
	ResetBeforeHeaders:   {"reset_before_headers", Retry, Retry, Failure},
	TimeoutBeforeHeaders: {"timeout_before_headers", Retry, Retry, Failure},

	BadURL:     {"bad_url", Stop, Stop, Ignored},
	BadScheme:  {"bad_scheme", Stop, Stop, Ignored},
	BadMethod:  {"bad_method", Stop, Stop, Ignored},
	BadHeader:  {"bad_header", Stop, Stop, Ignored},
	PlainHTTP:  {"plain_http", Stop, Stop, Ignored},
	LocalError: {"local_error", Stop, Stop, Ignored},

	RefusedStream: {"refused_stream", Retry, Retry, Ignored},
	GoAway:        {"goaway", Retry, Retry, Ignored},
	StreamError:   {"stream_error", Retry, Stop, Failure},

	EOFAfterWrite:   {"eof_after_write", Retry, Stop, Failure},
	ResetAfterWrite: {"reset_after_write", Retry, Stop, Failure},
	BrokenPipe:      {"broken_pipe", Retry, Stop, Failure},

	AttemptTimeout:    {"attempt_timeout", Retry, Stop, Failure},
	OverallDeadline:   {"overall_deadline", Stop, Stop, Ignored}, // Failure if the attempt had its full time
	CallerCancelled:   {"caller_cancelled", Stop, Stop, Ignored},
	MalformedResponse: {"malformed_response", Retry, Stop, Failure}, // once
	BodyBroken:        {"body_broken", Stop, Stop, Failure},
	OtherError:        {"other_error", Retry, Stop, Failure},

	FuncReturned:  {"func_returned", Stop, Stop, Success},
	FuncFailed:    {"func_failed", Retry, Stop, Failure},
	FuncPermanent: {"func_permanent", Stop, Stop, Failure},
	FuncIgnored:   {"func_ignored", Stop, Stop, Ignored},
}

// String is the condition's word in logs and events.
func (c Condition) String() string { return c.consequence().name }

// consequence takes a condition that does not exist for an error that nobody recognises.
func (c Condition) consequence() consequence {
	if int(c) < len(consequences) {
		return consequences[c]
	}
	return consequences[OtherError]
}
