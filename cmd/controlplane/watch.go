package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/url"
	"time"

	"github.com/retryplane/retryplane/pkg/wire"
)

// watchFlags select what is watched.
type watchFlags struct {
	Dependencies []dependencyName `arg:"" optional:"" name:"dependency" help:"Only these; without any, all."`
	Reopenings   bool             `help:"Also the reopenings and probings within an episode."`
}

// Validate is kong's, which does not look into lists.
func (f *watchFlags) Validate() error {
	for _, n := range f.Dependencies {
		if err := n.Validate(); err != nil {
			return err
		}
	}
	return nil
}

// Run follows the stream until ctx ends, which is success. It gives up only when the server cannot be reached at the
// very beginning, or refuses.
func (f *watchFlags) Run(ctx context.Context, o *operator) error {
	w := &watcher{operator: o, shown: map[string]shown{}, retry: firstRetry}
	w.query = url.Values{}
	for _, n := range f.Dependencies {
		w.query.Add("dependency", string(n))
	}
	if f.Reopenings {
		w.query.Set("reopenings", "true")
	}
	for failures := 0; ; failures++ {
		err := w.listen(ctx)
		if ctx.Err() != nil {
			return nil //nolint:nilerr // whoever watches wanted an end; err says only that
		}
		if !w.begun || final(err) {
			return fmt.Errorf("watch: %w", err)
		}
		if w.live {
			failures = 0
		}
		// With jitter, for all who watched a replica that went away come back together.
		base := min(w.retry<<min(failures, 5), mostRetry)
		wait := base/2 + rand.N(base)
		o.note("watch: %v; connecting again in %s", err, wait.Round(100*time.Millisecond))
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return nil
		}
	}
}

// Bounds of the waits between connections and within them.
const (
	firstRetry = time.Second // until the server says otherwise
	mostRetry  = 30 * time.Second
	silence    = 35 * time.Second // the server gives a sign of life every 15 s
)

// outputError says that nobody reads what is printed.
type outputError struct{ error }

func (e outputError) Unwrap() error { return e.error }

// final reports whether it is no use to connect again: what is printed goes nowhere, or the server does not want us.
func final(err error) bool {
	if _, ok := errors.AsType[outputError](err); ok {
		return true
	}
	p, ok := errors.AsType[*wire.Problem](err)
	return ok && p.Status < http.StatusInternalServerError && p.Status != http.StatusTooManyRequests
}

// watcher prints what a stream tells.
type watcher struct {
	*operator
	query url.Values
	shown map[string]shown // by dependency
	width int              // of the longest name so far
	begun bool             // a stream has told the state once
	live  bool             // the present or last connection did
	retry time.Duration
}

// shown is what a dependency's last line said. Only another one is worth a new line.
type shown struct {
	effective, automatic string
	revision             int64
}

// listen prints one connection's events until it ends, which is always an error.
func (w *watcher) listen(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	limit := time.AfterFunc(w.plane.timeout, func() { cancel(fmt.Errorf("no answer within %s", w.plane.timeout)) })
	defer limit.Stop()
	w.live = false
	a := ask{path: wire.PathStream, query: w.query}
	resp, err := w.plane.send(ctx, a)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }() // only read
	limit.Stop()
	quiet := time.AfterFunc(silence, func() { cancel(fmt.Errorf("not a sign of life for %s", silence)) })
	defer quiet.Stop()

	events := newEventReader(resp.Body, func() { quiet.Reset(silence) })
	for {
		e, err := events.next()
		if errors.Is(err, io.EOF) {
			return errors.New("the stream ended")
		}
		if err != nil {
			return w.plane.unreachable(ctx, a, err)
		}
		if events.retry > 0 {
			w.retry = min(events.retry, mostRetry)
		}
		if e.name == wire.EventGoaway {
			return errors.New("the server shuts down")
		}
		if err := w.tell(e); err != nil {
			return err
		}
	}
}

// tell prints an event: as JSON whatever it is, as text what changed a dependency's state.
func (w *watcher) tell(e event) error {
	if e.name == wire.EventState {
		w.begun, w.live = true, true
	}
	if w.json {
		line, err := json.Marshal(map[string]any{"event": e.name, "data": json.RawMessage(e.data)})
		if err != nil {
			return fmt.Errorf("read the event %q: %w", e.name, err)
		}
		return w.print(string(line))
	}
	switch e.name {
	case wire.EventState:
		var state wire.StreamState
		if err := json.Unmarshal([]byte(e.data), &state); err != nil {
			return fmt.Errorf("read the event %q: %w", e.name, err)
		}
		return w.state(state.Dependencies)
	case wire.EventChange:
		var d wire.Dependency
		if err := json.Unmarshal([]byte(e.data), &d); err != nil {
			return fmt.Errorf("read the event %q: %w", e.name, err)
		}
		return w.line(&d)
	case wire.EventForget:
		var f wire.Forgotten
		if err := json.Unmarshal([]byte(e.data), &f); err != nil {
			return fmt.Errorf("read the event %q: %w", e.name, err)
		}
		return w.forget(f.Name, time.Now())
	}
	return nil // a transition says less than the change beside it; others are news to us
}

// state prints what changed while there was no connection; at first that is everything.
func (w *watcher) state(all []wire.Dependency) error {
	there := make(map[string]bool, len(all))
	for i := range all {
		there[all[i].Name] = true
		w.width = max(w.width, len(all[i].Name))
	}
	for i := range all {
		if err := w.line(&all[i]); err != nil {
			return err
		}
	}
	for name := range w.shown {
		if !there[name] {
			if err := w.forget(name, time.Now()); err != nil {
				return err
			}
		}
	}
	return nil
}

// line prints a dependency if its state is another one than the last line said.
func (w *watcher) line(d *wire.Dependency) error {
	is := shown{effective: d.Breaker.Effective, automatic: d.Breaker.Automatic.State}
	if o := d.Breaker.Override; o != nil {
		is.revision = o.Revision
	}
	was, known := w.shown[d.Name]
	if known && is == was {
		return nil
	}
	w.shown[d.Name] = is
	w.width = max(w.width, len(d.Name))
	state := stateCell(d)
	if known && was.effective != is.effective {
		state = was.effective + " -> " + state
	}
	line := fmt.Sprintf("%s  %-*s  %s", clock(d.AsOf), w.width, d.Name, state)
	if o := d.Breaker.Override; o != nil {
		line += "  " + overrideCell(d) + ": " + o.Reason
	} else if why := d.Breaker.Automatic.Reason; why != "" {
		line += "  " + why
	}
	return w.print(fmt.Sprintf("%s  (%s/s, failed %s, instances %s)", line, rateCell(d), failedCell(d), instancesCell(d)))
}

func (w *watcher) forget(name string, at time.Time) error {
	delete(w.shown, name)
	return w.print(fmt.Sprintf("%s  %-*s  forgotten", clock(at), w.width, name))
}

func (w *watcher) print(line string) error {
	if _, err := fmt.Fprintln(w.stdout, line); err != nil {
		return outputError{err}
	}
	return nil
}
