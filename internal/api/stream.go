package api

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/retryplane/retryplane/pkg/policy"
	"github.com/retryplane/retryplane/pkg/wire"
)

const (
	pingEvery = 15 * time.Second
	// writeWithin bounds one write. It is what drops a client that does not read.
	writeWithin = 5 * time.Second
	// settle lets a burst pass before a stream that it overflowed gets the state again.
	settle = 100 * time.Millisecond
	// mostWatched bounds the names that one stream asks for.
	mostWatched = wire.MaxReports
)

// stream serves the events of the watched dependencies until the client leaves, stops reading, its token expires or
// the replica shuts down.
func (s *Server) stream(c *gin.Context) error {
	u, err := subscription(c)
	if err != nil {
		return err
	}
	first, err := s.hub.join(u)
	if err != nil {
		return err
	}
	defer s.hub.leave(u)

	h := c.Writer.Header()
	h.Set("Content-Type", "text/event-stream")
	h.Set("Cache-Control", "no-store, no-transform") // no-transform: proxies that compress would hold events back
	h.Set("X-Accel-Buffering", "no")
	c.Status(http.StatusOK)
	c.Writer.WriteHeaderNow()
	ctx := c.Request.Context()
	if !u.caller.expires.IsZero() {
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadline(ctx, u.caller.expires)
		defer cancel()
	}
	_ = s.hub.write(ctx, newOutlet(c.Writer), u, first) // the client is gone, or could not keep up: it comes back
	return nil
}

// subscription reads what a client wants to watch.
func subscription(c *gin.Context) (*subscriber, error) {
	q := &query{c: c}
	who := callerOf(c)
	names := c.QueryArray("dependency")
	if len(names) > mostWatched {
		return nil, invalid(wire.ProblemField{Field: "dependency", Limit: fmt.Sprintf("at most %d names", mostWatched)})
	}
	var only map[string]bool
	var out []wire.ProblemField
	for _, name := range names {
		if only == nil {
			only = make(map[string]bool, len(names))
		}
		only[name] = true
		switch {
		case !policy.ValidName(name):
			q.wrong("dependency", policy.NameLimit)
		case !who.sees(name):
			out = append(out, wire.ProblemField{Field: "dependency", Limit: who.limit() + ", not " + name})
		}
	}
	withCounters, reopens := q.truth("counters"), q.truth("reopenings")
	switch {
	case len(q.fields) > 0:
		return nil, invalid(q.fields...)
	case len(out) > 0:
		return nil, who.forbidden(out...)
	}
	return newSubscriber(who, only, withCounters, withCounters || reopens), nil
}

// write sends a stream's state and then its events. It returns when the stream is over: nil if we ended it.
func (h *hub) write(ctx context.Context, out *outlet, u *subscriber, first *snapshot) error {
	// Spread, so that the clients of a replica that went away do not come back all at once.
	if err := out.send(fmt.Appendf(nil, "retry: %d\n\n", 1000+rand.IntN(2000))); err != nil {
		return err
	}
	if err := out.sendState(first); err != nil {
		return err
	}
	ping := time.NewTicker(pingEvery)
	defer ping.Stop()
	for {
		var err error
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-h.drained:
			return out.send([]byte("event: " + wire.EventGoaway + "\ndata: {}\n\n"))
		case data := <-u.frames:
			err = out.send(data)
		case <-u.late:
			select {
			case <-time.After(settle):
			case <-ctx.Done():
			}
			err = out.sendState(h.restart(u))
		case <-ping.C:
			err = out.send([]byte(": ping\n\n"))
		}
		if err != nil {
			return err
		}
	}
}

// outlet writes to one client, each write under a deadline of its own. The server's timeouts do not apply to it.
type outlet struct {
	w  http.ResponseWriter
	rc *http.ResponseController
}

func newOutlet(w http.ResponseWriter) *outlet {
	// gin's Flush hides the error that says that the client is gone; the server's own writer tells.
	if g, ok := w.(interface{ Unwrap() http.ResponseWriter }); ok {
		w = g.Unwrap()
	}
	o := &outlet{w: w, rc: http.NewResponseController(w)}
	// A server's ReadTimeout would end the request's context in the middle of the stream.
	_ = o.rc.SetReadDeadline(time.Time{}) // a writer without deadlines has no timeout either
	return o
}

func (o *outlet) sendState(s *snapshot) error {
	data, err := s.frame()
	if err != nil {
		return err
	}
	return o.send(data)
}

func (o *outlet) send(data []byte) error {
	_ = o.rc.SetWriteDeadline(time.Now().Add(writeWithin)) // as above
	if _, err := o.w.Write(data); err != nil {
		return fmt.Errorf("write to a stream: %w", err)
	}
	if err := o.rc.Flush(); err != nil {
		return fmt.Errorf("write to a stream: %w", err)
	}
	_ = o.rc.SetWriteDeadline(time.Time{}) // an HTTP/2 stream would end between two writes
	return nil
}
