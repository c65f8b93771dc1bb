package client

import (
	"bytes"
	"errors"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/retryplane/retryplane/pkg/wire"
)

// TestTokenRefused: a wrong token used to be logged as a control plane out of reach, so that people looked at their
// network. It is said once, as what it is, and told to whoever asks.
func TestTokenRefused(t *testing.T) {
	for name, tc := range map[string]struct {
		status int
		code   string
		token  string
		logged string
	}{
		"wrong":   {http.StatusUnauthorized, wire.CodeUnauthorized, "mine", "the control plane refused the token"},
		"missing": {http.StatusUnauthorized, wire.CodeUnauthorized, "", "the control plane wants a token"},
		"role":    {http.StatusForbidden, wire.CodeForbidden, "mine", "the control plane refused the token"},
	} {
		t.Run(name, func(t *testing.T) {
			var logged bytes.Buffer
			var events []Event
			bubble(t, func(t *testing.T, p *plane, c *Client) {
				p.set(func(p *plane) { p.status, p.code = tc.status, tc.code })
				d := c.Dependency("a")
				for range 120 {
					passes(t, d)
					<-time.After(500 * time.Millisecond)
				}
				synctest.Wait()
				text := logged.String()
				if strings.Count(text, "\n") != 1 || !strings.Contains(text, tc.logged) || strings.Contains(text, "out of reach") {
					t.Errorf("logged:\n%s", text)
				}
				if s := c.Stats(); !s.Degraded || !errors.Is(s.LastError, ErrTokenRefused) {
					t.Errorf("stats: degraded %v, %v", s.Degraded, s.LastError)
				}
				if len(events) != 1 || events[0].Kind != EventDegraded || !errors.Is(events[0].Err, ErrTokenRefused) {
					t.Errorf("events %+v", events)
				}
				if err := c.Flush(t.Context()); !errors.Is(err, ErrTokenRefused) {
					t.Errorf("flush: %v", err)
				}

				p.set(back)
				<-time.After(6 * time.Second)
				synctest.Wait()
				if s := c.Stats(); s.Degraded || s.LastError != nil {
					t.Errorf("stats: degraded %v, %v", s.Degraded, s.LastError)
				}
				if !strings.Contains(logged.String(), "control plane answers again") || len(events) != 2 {
					t.Errorf("events %+v, logged:\n%s", events, logged.String())
				}
			},
				WithToken(tc.token), WithLogger(slog.New(slog.NewTextHandler(&logged, nil))),
				WithEvents(func(e Event) { events = append(events, e) }))
		})
	}
}

// TestOutOfReachIsNoRefusal: the other way round, nobody is sent to look at a token that is fine.
func TestOutOfReachIsNoRefusal(t *testing.T) {
	var logged bytes.Buffer
	bubble(t, func(t *testing.T, p *plane, c *Client) {
		p.set(func(p *plane) { p.down = true })
		passes(t, c.Dependency("a"))
		<-time.After(10 * time.Second)
		synctest.Wait()
		if text := logged.String(); strings.Count(text, "\n") != 1 || !strings.Contains(text, "out of reach") {
			t.Errorf("logged:\n%s", text)
		}
		if s := c.Stats(); s.LastError == nil || errors.Is(s.LastError, ErrTokenRefused) {
			t.Errorf("last error %v", s.LastError)
		}
	}, WithLogger(slog.New(slog.NewTextHandler(&logged, nil))))
}
