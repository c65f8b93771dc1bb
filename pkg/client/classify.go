package client

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"net/http"
	"net/textproto"
	"net/url"
	"slices"
	"strings"
	"syscall"

	"github.com/retryplane/retryplane/pkg/policy"
)

// classify says how an attempt that got no response ended, and with which error. What ended it by the clock or by the
// caller is told by the caller's context and our own timer, never by err: the timeouts of a transport look like those of
// a context, and over HTTP/2 the end of ours looks like a cancellation by the caller.
func (x *exchange) classify(a *attempt, err error) (condition policy.Condition, fullTime bool, told error) {
	if condition, fullTime, ok := x.ended(a.began); ok {
		if condition == policy.OverallDeadline && x.ctx.Err() == nil {
			err = &timeoutError{"no response", x.policy.Retry.Deadline}
		}
		return condition, fullTime, err
	}
	if a.expired {
		err = &timeoutError{"no response headers", a.timeout}
		if a.waiting() {
			return policy.TimeoutBeforeHeaders, true, err
		}
		return policy.AttemptTimeout, true, err
	}
	if x.body != nil {
		if bodyErr := x.body.usable(); bodyErr != nil && bodyErr != errBodyLost { //nolint:errorlint // usable returns it itself
			return policy.LocalError, false, err
		}
	}
	return conditionOf(err, a), false, err
}

// conditionOf reads the error of a transport. Errors with a type or a value come first, because texts may quote what
// the server sent.
func conditionOf(err error, a *attempt) policy.Condition {
	// A guard below this one, or a marked error of a base that knows better.
	if marked, _ := marking(err); marked != policy.FuncFailed {
		return marked
	}
	for _, of := range [...]func(error) (policy.Condition, bool){ofTLS, ofConnecting, ofConnection, ofText} {
		if c, ok := of(err); ok {
			if unsent, known := whenUnsent[c]; known && a.unsent() {
				return unsent
			}
			return c
		}
	}
	switch {
	case a.waiting():
		return policy.DialUnreachable // such as a proxy that refuses to connect
	case a.unsent():
		return policy.ResetBeforeHeaders
	}
	return policy.OtherError
}

// whenUnsent is what some ends mean when the transport proved that nothing was written.
var whenUnsent = map[policy.Condition]policy.Condition{
	policy.EOFAfterWrite:   policy.EOFBeforeHeaders,
	policy.ResetAfterWrite: policy.ResetBeforeHeaders,
	policy.BrokenPipe:      policy.ResetBeforeHeaders,
	policy.StreamError:     policy.ResetBeforeHeaders,
	policy.AttemptTimeout:  policy.TimeoutBeforeHeaders,
}

// ofTLS recognises what is wrong with the TLS of either side, and stays wrong.
func ofTLS(err error) (policy.Condition, bool) {
	var (
		unknown x509.UnknownAuthorityError
		roots   x509.SystemRootsError
		host    x509.HostnameError
		invalid x509.CertificateInvalidError
		verify  *tls.CertificateVerificationError
		ech     *tls.ECHRejectionError
		record  tls.RecordHeaderError
		alert   *net.OpError
	)
	switch {
	case errors.Is(err, http.ErrSchemeMismatch):
		return policy.PlainHTTP, true
	case errors.As(err, &record):
		if string(record.RecordHeader[:]) == "HTTP/" {
			return policy.PlainHTTP, true
		}
		return policy.TLSRejected, true
	case errors.As(err, &unknown), errors.As(err, &roots):
		return policy.TLSUnknownCA, true
	case errors.As(err, &host):
		return policy.TLSWrongHost, true
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired:
		return policy.TLSExpired, true
	case errors.As(err, &invalid), errors.As(err, &verify), errors.As(err, &ech):
		return policy.TLSRejected, true
	case errors.As(err, &alert) && alert.Op == "remote error" && alert.Err.Error() != alertInternalError:
		return policy.TLSRejected, true
	}
	return 0, false
}

// alertInternalError is the one alert by which a server says that it is in trouble rather than that we are
// (RFC 8446, section 6.2).
const alertInternalError = "tls: internal error"

// ofConnecting recognises errors of looking up a name and of dialing.
func ofConnecting(err error) (policy.Condition, bool) {
	var (
		lookup  *net.DNSError
		address *net.AddrError
		badURL  *url.Error
		escape  url.EscapeError
	)
	switch {
	case errors.As(err, &lookup):
		if lookup.IsNotFound {
			return policy.DNSNotFound, true
		}
		return policy.DNSTemporary, true
	case errors.As(err, &address), errors.As(err, &badURL) && badURL.Op == "parse", errors.As(err, &escape):
		return policy.BadURL, true
	case !dialing(err):
		return 0, false
	case isAny(err, syscall.ECONNREFUSED, syscall.ECONNRESET):
		return policy.DialRefused, true
	case isAny(err, syscall.EMFILE, syscall.ENFILE, syscall.EADDRNOTAVAIL, syscall.EACCES, syscall.EPERM, syscall.ENOBUFS,
		syscall.ENOMEM, syscall.EAFNOSUPPORT):
		return policy.LocalError, true // this machine is out of ports or files, or is not allowed to
	case isTimeout(err):
		return policy.DialTimeout, true
	}
	return policy.DialUnreachable, true
}

// dialing reports whether err came from dialing, a proxy or the dependency itself.
func dialing(err error) bool {
	var op *net.OpError
	for errors.As(err, &op) {
		if op.Op == "dial" {
			return true
		}
		err = op.Err
	}
	return false
}

// ofConnection recognises the ways in which a connection ends under a request that was sent.
func ofConnection(err error) (policy.Condition, bool) {
	_, malformed := errors.AsType[textproto.ProtocolError](err)
	switch {
	case malformed:
		return policy.MalformedResponse, true
	case isAny(err, io.EOF, io.ErrUnexpectedEOF), err.Error() == "http: server closed idle connection":
		return policy.EOFAfterWrite, true
	case isAny(err, syscall.EPIPE, io.ErrClosedPipe):
		return policy.BrokenPipe, true
	case isAny(err, syscall.ECONNRESET, syscall.ECONNABORTED, syscall.ETIMEDOUT, syscall.EHOSTUNREACH, syscall.ENETUNREACH,
		net.ErrClosed):
		return policy.ResetAfterWrite, true
	case errors.Is(err, context.Canceled):
		return policy.CallerCancelled, true // by the base's own means
	}
	return 0, false
}

// texts are the beginnings of errors of net/http and crypto/tls that have neither a type nor a value; the first that
// fits counts. What follows a beginning may be the server's words.
var texts = [...]struct {
	prefix    string
	condition policy.Condition
}{
	{"unsupported protocol scheme ", policy.BadScheme},
	{"http2: unsupported scheme", policy.BadScheme},
	{"http2: unencrypted HTTP/2 not enabled", policy.BadScheme},
	{"net/http: invalid method ", policy.BadMethod},
	{"net/http: invalid header ", policy.BadHeader},
	{"net/http: invalid trailer ", policy.BadHeader},
	{"http: invalid Host header", policy.BadHeader},
	{"http: nil Request.Header", policy.BadHeader},
	{"http2: request header list larger than", policy.BadHeader},
	{"http: no Host in request URL", policy.BadURL},
	{"http: nil Request.URL", policy.BadURL},
	{"net/http: can't write control character in Request.URL", policy.BadURL},
	{"http2: Request.URL is nil", policy.BadURL},
	{"http2: invalid request :path ", policy.BadURL},
	{"http2: invalid ", policy.BadHeader},

	{"http: ContentLength=", policy.LocalError}, // the body is not as long as the request says
	{"http: Request.ContentLength=", policy.LocalError},
	{"http2: request body larger than specified content length", policy.LocalError},

	{"net/http: TLS handshake timeout", policy.TLSTimeout},
	{"tls: ", policy.TLSRejected},

	{"http2: Transport: cannot retry err [", policy.RefusedStream}, // or GOAWAY: the error of a stream that was not begun
	{"http2: Transport received GOAWAY from server", policy.GoAway},
	{"http2: Transport received Server's graceful shutdown GOAWAY", policy.GoAway},
	{"http2: server sent GOAWAY and closed the connection", policy.StreamError}, // our stream is not above its last one
	{"http2: client connection lost", policy.StreamError},
	{"connection error: ", policy.StreamError},

	{"malformed HTTP ", policy.MalformedResponse},
	{"bad Content-Length ", policy.MalformedResponse},
	{"invalid empty Content-Length", policy.MalformedResponse},
	{"http: message cannot contain multiple Content-Length headers", policy.MalformedResponse},
	{"unsupported transfer encoding", policy.MalformedResponse},
	{"too many transfer encodings", policy.MalformedResponse},
	{"net/http: server response headers exceeded ", policy.MalformedResponse},
	{"http2: response header list larger than", policy.MalformedResponse},
	{"http2: failed reading the frame payload: ", policy.MalformedResponse}, // the server answered in HTTP/1.1

	{"net/http: request canceled", policy.CallerCancelled},
	{"net/http: cannot rewind body after connection loss", policy.ResetAfterWrite},
}

func ofText(err error) (policy.Condition, bool) {
	text := strings.TrimPrefix(err.Error(), "net/http: HTTP/1.x transport connection broken: ")
	if stream, ok := strings.CutPrefix(text, "stream error: stream ID "); ok {
		if _, code, _ := strings.Cut(stream, "; "); strings.HasPrefix(code, "REFUSED_STREAM") {
			return policy.RefusedStream, true
		}
		return policy.StreamError, true
	}
	for _, t := range texts {
		if strings.HasPrefix(text, t.prefix) {
			return t.condition, true
		}
	}
	if isTimeout(err) { // ResponseHeaderTimeout, or a deadline that the base set itself
		return policy.AttemptTimeout, true
	}
	return 0, false
}

func isAny(err error, targets ...error) bool {
	return slices.ContainsFunc(targets, func(target error) bool { return errors.Is(err, target) })
}

func isTimeout(err error) bool {
	timeout, ok := errors.AsType[net.Error](err)
	return ok && timeout.Timeout()
}
