package otel_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"go.opentelemetry.io/otel/attribute"

	"github.com/retryplane/retryplane/pkg/client"
	"github.com/retryplane/retryplane/pkg/client/otel"
	"github.com/retryplane/retryplane/pkg/policy"
)

// text is what an exporter would show.
func text(attrs []attribute.KeyValue) []string {
	var out []string
	for _, a := range attrs {
		out = append(out, string(a.Key)+"="+a.Value.String())
	}
	return out
}

func TestAttributes(t *testing.T) {
	t.Parallel()
	call := client.Call{
		Dependency: "payments", Attempts: 3, Reason: policy.StopAttempts, Elapsed: 1500 * time.Millisecond, LastStatus: 503,
		Source: client.SourceFleet,
	}
	said := []string{
		"retryplane.dependency=payments", "retryplane.attempts=3", "retryplane.reason=attempts", "retryplane.source=fleet",
		"retryplane.elapsed=1.5",
	}
	open := &client.OpenError{Dependency: "payments", RetryAfter: 2 * time.Second, Source: client.SourceOverride}
	unknown := &client.OpenError{Dependency: "payments", Source: client.SourceLocal}
	for name, tc := range map[string]struct{ got, want []string }{
		"no call":     {text(otel.Call(client.Call{})), nil},
		"call":        {text(otel.Call(call)), append(slices.Clone(said), "http.response.status_code=503")},
		"no error":    {text(otel.Error(nil)), nil},
		"other error": {text(otel.Error(errors.New("down"))), nil},
		"error":       {text(otel.Error(fmt.Errorf("charge: %w", &client.Error{Call: call}))), append(slices.Clone(said), "http.response.status_code=503")},
		"open": {text(otel.Error(open)), []string{
			"retryplane.dependency=payments", "retryplane.source=override", "retryplane.retry_after=2",
		}},
		"open, nobody knows how long": {text(otel.Error(unknown)), []string{"retryplane.dependency=payments", "retryplane.source=local"}},
		"breaker": {
			text(otel.Event(client.Event{Kind: client.EventBreaker, Dependency: "crm", To: policy.Open, Source: client.SourceFleet})),
			[]string{"retryplane.event=breaker", "retryplane.dependency=crm", "retryplane.breaker.from=closed", "retryplane.breaker.to=open", "retryplane.source=fleet"},
		},
		"override": {
			text(otel.Event(client.Event{Kind: client.EventOverride, Dependency: "crm", Mode: policy.ModeNoRetries, Source: client.SourceOverride})),
			[]string{"retryplane.event=override", "retryplane.dependency=crm", "retryplane.override=no_retries", "retryplane.source=override"},
		},
		"retry": {
			text(otel.Event(client.Event{Kind: client.EventRetry, Dependency: "crm", Attempt: 1, Wait: 250 * time.Millisecond, Reason: "503"})),
			[]string{"retryplane.event=retry", "retryplane.dependency=crm", "retryplane.attempts=1", "retryplane.wait=0.25", "retryplane.reason=503"},
		},
		"give up": {
			text(otel.Event(client.Event{Kind: client.EventGiveUp, Dependency: "crm", Attempt: 3, Reason: "attempts", Err: errors.New("secret")})),
			[]string{"retryplane.event=give_up", "retryplane.dependency=crm", "retryplane.attempts=3", "retryplane.reason=attempts"},
		},
		"degraded": {text(otel.Event(client.Event{Kind: client.EventDegraded, Err: errors.New("refused")})), []string{"retryplane.event=degraded"}},
	} {
		if !slices.Equal(tc.got, tc.want) {
			t.Errorf("%s:\ngot  %q\nwant %q", name, tc.got, tc.want)
		}
	}
}

// TestAttributesOfCalls: with what real calls return.
func TestAttributesOfCalls(t *testing.T) {
	t.Parallel()
	c, err := client.New("http://127.0.0.1:1", client.WithoutBackground())
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	defer c.Close(ctx)
	var how client.Call
	below := &client.OpenError{Dependency: "ledger", RetryAfter: time.Minute}
	err = c.Dependency("payments").Do(t.Context(), func(context.Context) error { return below }, client.Record(&how))
	got := attribute.NewSet(otel.Error(err)...)
	recorded := attribute.NewSet(otel.Call(how)...)
	if !got.Equals(&recorded) || got.HasValue(otel.RetryAfter) {
		t.Errorf("got %v, recorded %v: the ledger's breaker is not this call's", got.ToSlice(), recorded.ToSlice())
	}
	if v, _ := got.Value(otel.Attempts); v.AsInt64() != 1 {
		t.Errorf("attempts %v", v)
	}
}
