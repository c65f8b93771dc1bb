package client

import (
	"context"
	"log/slog"
	"net/url"
	"regexp"
	"strings"

	"github.com/retryplane/retryplane/pkg/policy"
)

// LogEvents returns a handler for [WithEvents] that logs every event as one record with a constant message, the time of the
// event, and attributes for what is known: dependency, from, to, source, mode, attempt, wait, reason, error.
//
//	Warn   a breaker opened, here or in the fleet; the control plane is out of reach
//	Info   everything else that changed for a dependency or for the client
//	Debug  what happened to a single call: its retries, and that it gave up, which its caller is told anyway
//
// URLs within errors lose their user, query and fragment. With [WithLogger] to the same logger, "degraded" and
// "recovered" are logged twice, once in the words for people. log nil logs nothing. The handler is safe for concurrent use
// if log is.
func LogEvents(log *slog.Logger) func(Event) {
	if log == nil {
		return func(Event) {}
	}
	return func(e Event) {
		ctx := context.Background()
		level, message := e.describe()
		if !log.Enabled(ctx, level) {
			return
		}
		r := slog.NewRecord(e.At, level, message, 0)
		e.attributes(&r)
		_ = log.Handler().Handle(ctx, r) // there is nowhere left to complain
	}
}

// describe is what a person reads first.
func (e Event) describe() (slog.Level, string) {
	switch e.Kind {
	case EventBreaker:
		if e.To == policy.Open {
			return slog.LevelWarn, "breaker opened"
		}
		return slog.LevelInfo, "breaker changed"
	case EventOverride:
		return slog.LevelInfo, "override changed"
	case EventDegraded:
		return slog.LevelWarn, "control plane lost"
	case EventRecovered:
		return slog.LevelInfo, "control plane back"
	case EventLocalOpened:
		return slog.LevelWarn, "local breaker opened"
	case EventLocalClosed:
		return slog.LevelInfo, "local breaker closed"
	case EventRetry:
		return slog.LevelDebug, "retry"
	case EventGiveUp:
		return slog.LevelDebug, "call gave up"
	}
	return slog.LevelInfo, "event"
}

// attributes adds what the kind of event sets. Zero is a value of the states and of a retry's wait; elsewhere it means
// that there is nothing to say.
func (e Event) attributes(r *slog.Record) {
	r.AddAttrs(slog.String("event", string(e.Kind)))
	if e.Dependency != "" {
		r.AddAttrs(slog.String("dependency", e.Dependency))
	}
	switch e.Kind {
	case EventBreaker, EventLocalOpened, EventLocalClosed:
		r.AddAttrs(slog.String("from", e.From.String()), slog.String("to", e.To.String()))
	case EventOverride:
		r.AddAttrs(slog.String("mode", string(e.Mode))) // "" = taken back
	case EventRetry:
		r.AddAttrs(slog.Int("attempt", e.Attempt), slog.Duration("wait", e.Wait))
	case EventGiveUp:
		r.AddAttrs(slog.Int("attempt", e.Attempt))
	}
	if e.Source != "" {
		r.AddAttrs(slog.String("source", string(e.Source)))
	}
	if e.Reason != "" {
		r.AddAttrs(slog.String("reason", e.Reason))
	}
	if e.Err != nil {
		r.AddAttrs(logged(e.Err))
	}
}

// logged is an error as an attribute, without what URLs in its text may carry that is nobody's business.
func logged(err error) slog.Attr { return slog.String("error", withoutSecrets(err.Error())) }

// urls finds them as Go's errors quote them, blanks and escaped quotes included, and in plain text, where punctuation at
// the end is the text's.
var urls = regexp.MustCompile(`"[A-Za-z][A-Za-z0-9+.-]*://(?:[^"\\]|\\.)*"|[A-Za-z][A-Za-z0-9+.-]*://[^\s"]*[^\s":,;.)]`)

func withoutSecrets(text string) string {
	return urls.ReplaceAllStringFunc(text, func(s string) string {
		bare, quoted := strings.CutPrefix(s, `"`)
		if quoted {
			bare = strings.TrimSuffix(bare, `"`)
			return `"` + withoutQuery(bare) + `"`
		}
		return withoutQuery(bare)
	})
}

// withoutQuery keeps scheme, host and path. Of what is no URL after all, it keeps the scheme.
func withoutQuery(s string) string {
	if end := strings.IndexAny(s, "?#"); end >= 0 {
		s = s[:end]
	}
	u, err := url.Parse(s)
	if err != nil {
		scheme, _, _ := strings.Cut(s, "://")
		return scheme + "://..."
	}
	return u.Scheme + "://" + u.Host + u.EscapedPath()
}
