package client

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/retryplane/retryplane/pkg/wire"
)

// stream listens to what the control plane pushes about the dependencies in use. It makes changes known earlier and
// keeps views fresh while syncs fail; reports, grants, permits and policies go by syncs alone. Every connection begins
// with the full state, so nothing needs replaying.
type stream struct {
	client *Client
	begin  sync.Once
	ends   sync.WaitGroup

	// The goroutine's own:
	retry   time.Duration   // what the control plane wants between two connections
	watched map[string]bool // what the connection watches: never nothing, which would mean everything
}

const (
	streamRetry    = time.Second
	mostRetry      = 30 * time.Second
	mostStreamLine = 4 << 20 // bytes
	mostWatched    = 200     // dependencies, for the length of the URL
)

func (s *stream) init(c *Client) {
	s.client, s.retry, s.watched = c, streamRetry, map[string]bool{}
}

// start begins to listen when the first dependency comes into use, if the user wants a stream.
func (s *stream) start() {
	if s.client.config.stream && !s.client.config.serverless {
		s.begin.Do(func() {
			s.ends.Add(1)
			go s.run()
		})
	}
}

func (s *stream) run() {
	defer s.ends.Done()
	failures := 0
	for {
		began := s.client.now()
		err := s.listen(s.client.life)
		s.note(time.Time{})
		failures++
		wait := min(s.retry<<min(failures-1, 5), mostRetry)
		switch {
		case errors.Is(err, errWatch):
			failures, wait = 0, 0
		case since(s.client.now(), began) > streamSilence:
			failures = 1
		}
		timer := time.NewTimer(wait/2 + rand.N(wait+1))
		select {
		case <-timer.C:
		case <-s.client.life.Done():
			timer.Stop()
			return
		}
	}
}

// note notes a sign of life, or with the zero time the end of it.
func (s *stream) note(at time.Time) {
	before, after := s.client.link.heard(at)
	if at.IsZero() {
		s.client.relink(before, after, nil)
	}
}

// errWatch ends a connection that does not watch everything that is in use.
var errWatch = errors.New("watch more dependencies")

// listen reads one connection until it ends, falls silent or watches too little.
func (s *stream) listen(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	silence := time.AfterFunc(streamSilence, cancel)
	defer silence.Stop()

	for _, name := range s.unwatched() {
		s.watched[name] = true
	}
	query := url.Values{"dependency": slices.Sorted(maps.Keys(s.watched))}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.client.base+wire.PathStream+"?"+query.Encode(), nil)
	if err != nil {
		return err
	}
	req.Header.Set("Accept", "text/event-stream")
	s.client.authorize(req)
	resp, err := s.client.config.http.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("stream: %s", resp.Status)
	}
	return s.read(resp.Body, silence)
}

// unwatched are the dependencies in use that the connection does not watch, as many as there is room for; syncs do for
// the rest. Those in use take the places of those that were.
func (s *stream) unwatched() []string {
	var names []string
	actives := s.client.syncer.actives()
	for _, d := range actives {
		if !s.watched[d.name] {
			names = append(names, d.name)
		}
	}
	if len(names) > 0 && len(s.watched)+len(names) > mostWatched && len(actives) <= mostWatched {
		clear(s.watched)
		names = names[:0]
		for _, d := range actives {
			names = append(names, d.name)
		}
	}
	return names[:min(len(names), mostWatched-len(s.watched))]
}

// read takes events in as the HTML standard describes them (section 9.2.6); every line is a sign of life.
func (s *stream) read(body io.Reader, silence *time.Timer) error {
	lines := bufio.NewScanner(body)
	lines.Buffer(make([]byte, 0, 4096), mostStreamLine)
	var event string
	var data strings.Builder
	for lines.Scan() {
		silence.Reset(streamSilence)
		s.note(s.client.now())
		line := lines.Text()
		field, value, _ := strings.Cut(line, ":")
		value = strings.TrimPrefix(value, " ")
		if line != "" && field == "" {
			continue // a comment
		}
		switch field {
		case "event":
			event = value
		case "data":
			data.WriteString(value)
		case "retry":
			if n, err := strconv.ParseInt(value, 10, 64); err == nil && n >= 0 {
				s.retry = min(max(time.Duration(min(n, maxRetryMS))*time.Millisecond, 100*time.Millisecond), mostRetry)
			}
		case "":
			if event == wire.EventGoaway {
				return errors.New("the control plane says goodbye")
			}
			s.dispatch(event, data.String())
			event = ""
			data.Reset()
			if len(s.unwatched()) > 0 {
				return errWatch
			}
		}
	}
	return lines.Err()
}

const maxRetryMS = 3_600_000

// dispatch acts on one event. What it cannot read it leaves to the next sync.
func (s *stream) dispatch(event, data string) {
	switch event {
	case wire.EventState:
		var state wire.StreamState
		if json.Unmarshal([]byte(data), &state) == nil {
			for i := range state.Dependencies {
				s.tell(&state.Dependencies[i])
			}
		}
	case wire.EventChange:
		var dep wire.Dependency
		if json.Unmarshal([]byte(data), &dep) == nil {
			s.tell(&dep)
		}
	}
}

// tell applies what is said about one dependency, if this client has it.
func (s *stream) tell(dep *wire.Dependency) {
	d := s.client.registry.find(dep.Name)
	if d == nil {
		return
	}
	now := s.client.now()
	d.mu.Lock()
	defer d.mu.Unlock()
	auto := dep.Breaker.Automatic
	dec := &wire.Decision{
		Epoch: auto.Epoch, Generation: auto.Generation, State: auto.State, RemainingMS: auto.RemainingMS,
		AdmitPPM: auto.AdmitPPM, FailurePPM: d.told.failure, Instances: d.told.instances, PolicyVersion: d.version,
	}
	if o := dep.Breaker.Override; o != nil {
		// Both times are the control plane's, so its clock need not agree with ours.
		if rest := o.ExpiresAt.Sub(dep.AsOf); rest > 0 {
			dec.Override = &wire.Override{Mode: o.Mode, Revision: o.Revision, RemainingMS: rest.Milliseconds()}
		}
	}
	if dep.NotBefore != nil {
		dec.NotBeforeMS = max(dep.NotBefore.Sub(dep.AsOf), 0).Milliseconds()
	}
	_ = d.order(dec, now, now, false)
	d.adopt(dec, now, now, false)
	d.rebuild(now)
}
