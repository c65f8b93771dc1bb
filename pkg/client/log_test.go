package client

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"testing"
	"testing/synctest"
	"time"

	"github.com/retryplane/retryplane/pkg/policy"
)

func TestLogEvents(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	failed := &url.Error{Op: "Post", URL: "https://u:p@api.test/v1/charges?card=4242#x", Err: errors.New("EOF")}
	for _, tc := range []struct {
		event Event
		want  string
	}{
		{
			Event{Kind: EventBreaker, Dependency: "payments", From: policy.Closed, To: policy.Open, Source: SourceFleet},
			`level=WARN msg="breaker opened" event=breaker dependency=payments from=closed to=open source=fleet`,
		},
		{
			Event{Kind: EventBreaker, Dependency: "payments", From: policy.Open, To: policy.HalfOpen, Source: SourceFleet},
			`level=INFO msg="breaker changed" event=breaker dependency=payments from=open to=half_open source=fleet`,
		},
		{
			Event{Kind: EventOverride, Dependency: "payments", Mode: policy.ModeForceOpen, Source: SourceOverride},
			`level=INFO msg="override changed" event=override dependency=payments mode=force_open source=override`,
		},
		{
			Event{Kind: EventDegraded, Err: ErrTokenRefused},
			`level=WARN msg="control plane lost" event=degraded error="token refused by the control plane"`,
		},
		{Event{Kind: EventRecovered}, `level=INFO msg="control plane back" event=recovered`},
		{
			Event{Kind: EventLocalOpened, Dependency: "crm", To: policy.Open, Source: SourceLocal, Reason: "consecutive_failures"},
			`level=WARN msg="local breaker opened" event=local_opened dependency=crm from=closed to=open source=local reason=consecutive_failures`,
		},
		{
			Event{Kind: EventLocalClosed, Dependency: "crm", From: policy.HalfOpen, Source: SourceLocal},
			`level=INFO msg="local breaker closed" event=local_closed dependency=crm from=half_open to=closed source=local`,
		},
		{
			Event{Kind: EventRetry, Dependency: "payments", Attempt: 1, Reason: "eof_after_write", Err: failed},
			`level=DEBUG msg=retry event=retry dependency=payments attempt=1 wait=0s reason=eof_after_write error="Post \"https://api.test/v1/charges\": EOF"`,
		},
		{
			Event{Kind: EventGiveUp, Dependency: "payments", Attempt: 3, Reason: "attempts"},
			`level=DEBUG msg="call gave up" event=give_up dependency=payments attempt=3 reason=attempts`,
		},
		{Event{Kind: "of a later version"}, `level=INFO msg=event event="of a later version"`},
	} {
		tc.event.At = at
		var out bytes.Buffer
		LogEvents(slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{Level: slog.LevelDebug})))(tc.event)
		if got, want := out.String(), "time=2026-03-01T12:00:00.000Z "+tc.want+"\n"; got != want {
			t.Errorf("got  %swant %s", got, want)
		}
	}

	var out bytes.Buffer
	LogEvents(slog.New(slog.NewTextHandler(&out, nil)))(Event{Kind: EventRetry})
	LogEvents(nil)(Event{Kind: EventDegraded})
	if out.Len() > 0 {
		t.Errorf("logged below its level: %s", out.String())
	}
}

func TestLoggedErrorsKeepSecrets(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"down":                                    "down",
		`Get "http://api.test/a?b=c": EOF`:        `Get "http://api.test/a": EOF`,
		`Get "http://u:p@api.test": EOF`:          `Get "http://api.test": EOF`,
		`Get "http://api.test/?q=\"x y\" z": EOF`: `Get "http://api.test/": EOF`,
		`parse "http://u:p ss@api.test": invalid`: `parse "http://...": invalid`,
		`at http://u:p@api.test:80/x?y: refused`:  `at http://api.test:80/x: refused`,
		`http://api.test:8080: refused`:           `http://api.test:8080: refused`,
		`redis://:secret@h:6379/0, again`:         `redis://h:6379/0, again`,
		`two: http://a?1 and "https://b/%2F?2"`:   `two: http://a and "https://b/%2F"`,
		`https://r.test/@scope/pkg`:               `https://r.test/@scope/pkg`,
		`http://user:pa/ss@api.test/`:             `http://...`,
		`"http://`:                                `"http://`,
	} {
		if got := withoutSecrets(text); got != want {
			t.Errorf("%s:\ngot  %s\nwant %s", text, got, want)
		}
	}
}

// TestLogHarmsNothing: a log that hangs or panics costs events, never a call. The same log used to be asked to tell of its
// own panic, which ended the program.
func TestLogHarmsNothing(t *testing.T) {
	for name, log := range map[string]slog.Handler{
		"panics": hostile{handle: func(ctx context.Context) { panic("log") }},
		"hangs":  hostile{handle: func(ctx context.Context) { <-time.After(time.Hour) }},
	} {
		t.Run(name, func(t *testing.T) {
			own := policy.Default()
			own.Retry.Base, own.Retry.Jitter, own.Breaker.LocalFailures = time.Millisecond, policy.JitterNone, 0
			logger := slog.New(log)
			bubble(t, func(t *testing.T, p *plane, c *Client) {
				start, calls := time.Now(), 0
				for range 100 {
					_ = c.Dependency("a").Do(t.Context(), func(context.Context) error { calls++; return fmt.Errorf("call %d", calls) })
				}
				if took := time.Since(start); calls != 300 || took > 10*time.Second { // hangs would take hours
					t.Errorf("%d calls took %v", calls, took)
				}
				if name == "hangs" {
					<-time.After(300 * time.Hour)
				}
				synctest.Wait()
			}, WithPolicy(own), WithLogger(logger), WithEvents(LogEvents(logger)))
		})
	}
}

// hostile is a log handler that does as it is told.
type hostile struct{ handle func(context.Context) }

func (h hostile) Enabled(context.Context, slog.Level) bool { return true }
func (h hostile) Handle(ctx context.Context, _ slog.Record) error {
	h.handle(ctx)
	return nil
}
func (h hostile) WithAttrs([]slog.Attr) slog.Handler { return h }
func (h hostile) WithGroup(string) slog.Handler      { return h }
