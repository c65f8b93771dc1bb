// Package otel says what happened to guarded calls in OpenTelemetry attributes. It is a package of its own, and needs
// nothing of OpenTelemetry but the attributes: tracer and span are the program's.
//
//	var how client.Call
//	err := payments.Do(ctx, charge, client.Record(&how))
//	span.SetAttributes(otel.Call(how)...)
//
// HTTP statuses go by the semantic conventions (http.response.status_code), everything else by names that begin with
// retryplane. All values are bounded, save the dependency's name: no error texts, no URLs.
package otel

import (
	"errors"

	"go.opentelemetry.io/otel/attribute"

	"github.com/retryplane/retryplane/pkg/client"
)

// The attributes.
const (
	Dependency = attribute.Key("retryplane.dependency")
	Attempts   = attribute.Key("retryplane.attempts") // sent; 0 = the call was stopped before the first
	Reason     = attribute.Key("retryplane.reason")   // why no further attempt followed, or why one does
	Source     = attribute.Key("retryplane.source")   // who decided: fleet, local, override
	Elapsed    = attribute.Key("retryplane.elapsed")  // of the whole call, in seconds
	Wait       = attribute.Key("retryplane.wait")     // before the next attempt, in seconds
	Kind       = attribute.Key("retryplane.event")
	From       = attribute.Key("retryplane.breaker.from")
	To         = attribute.Key("retryplane.breaker.to")
	Mode       = attribute.Key("retryplane.override")    // "" = taken back
	RetryAfter = attribute.Key("retryplane.retry_after") // how long the breaker still rejects, in seconds; absent if unknown
	Status     = attribute.Key("http.response.status_code")
)

// Call returns how a call went, as [client.Record] has it. The zero Call has no attributes.
func Call(c client.Call) []attribute.KeyValue {
	if c == (client.Call{}) {
		return nil
	}
	attrs := []attribute.KeyValue{
		Dependency.String(c.Dependency), Attempts.Int(c.Attempts), Reason.String(string(c.Reason)),
		Source.String(string(c.Source)), Elapsed.Float64(c.Elapsed.Seconds()),
	}
	if c.LastStatus != 0 {
		attrs = append(attrs, Status.Int(c.LastStatus))
	}
	return attrs
}

// Error returns how a call failed: [Call] of the [*client.Error] that err is or wraps, and for how long its breaker
// rejects calls. Of a bare [*client.OpenError], as [client.Dependency.Acquire] returns it, it says dependency, source and
// time. Other errors, and nil, have no attributes.
func Error(err error) []attribute.KeyValue {
	var attrs []attribute.KeyValue
	failed, isCall := errors.AsType[*client.Error](err)
	if isCall {
		attrs = Call(failed.Call)
	}
	open, ok := errors.AsType[*client.OpenError](err)
	switch {
	case !ok, isCall && open.Dependency != failed.Dependency: // a breaker below is not what stopped this call
		return attrs
	case !isCall:
		attrs = append(attrs, Dependency.String(open.Dependency), Source.String(string(open.Source)))
	}
	if open.RetryAfter > 0 {
		attrs = append(attrs, RetryAfter.Float64(open.RetryAfter.Seconds()))
	}
	return attrs
}

// Event returns what an event says. Its time belongs to the span event or log record that carries the attributes, and its
// error to the program.
func Event(e client.Event) []attribute.KeyValue {
	attrs := []attribute.KeyValue{Kind.String(string(e.Kind))}
	if e.Dependency != "" {
		attrs = append(attrs, Dependency.String(e.Dependency))
	}
	switch e.Kind {
	case client.EventBreaker, client.EventLocalOpened, client.EventLocalClosed:
		attrs = append(attrs, From.String(e.From.String()), To.String(e.To.String()))
	case client.EventOverride:
		attrs = append(attrs, Mode.String(string(e.Mode)))
	case client.EventRetry:
		attrs = append(attrs, Attempts.Int(e.Attempt), Wait.Float64(e.Wait.Seconds()))
	case client.EventGiveUp:
		attrs = append(attrs, Attempts.Int(e.Attempt))
	}
	if e.Source != "" {
		attrs = append(attrs, Source.String(string(e.Source)))
	}
	if e.Reason != "" {
		attrs = append(attrs, Reason.String(e.Reason))
	}
	return attrs
}
