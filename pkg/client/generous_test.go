package client_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/retryplane/retryplane/pkg/client"
	"github.com/retryplane/retryplane/pkg/policy"
	"github.com/retryplane/retryplane/pkg/wire"
)

// generous is a control plane in memory that keeps every breaker closed and grants what is asked for, up to a limit. It
// adds up what is reported.
type generous struct {
	mu        sync.Mutex
	grants    int64 // still to be had
	open      bool  // the breakers are, for a minute
	notBefore time.Time
	down      bool // it is out of reach
	reported  wire.Report
}

func (g *generous) RoundTrip(r *http.Request) (*http.Response, error) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	r.Body.Close()
	if r.URL.Path != wire.PathSync {
		return &http.Response{StatusCode: http.StatusNotFound, Header: http.Header{}, Body: http.NoBody, Request: r}, nil
	}
	var asked wire.SyncRequest
	if err := json.Unmarshal(body, &asked); err != nil {
		return nil, err
	}
	told := wire.SyncResponse{Seq: asked.Seq, NextSyncMS: 1000}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.down {
		return nil, errors.New("out of reach")
	}
	for _, report := range asked.Dependencies {
		told.Dependencies = append(told.Dependencies, g.decide(report))
	}
	answer, err := json.Marshal(told)
	if err != nil {
		return nil, err
	}
	return &http.Response{
		StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"application/json"}},
		Body: io.NopCloser(bytes.NewReader(answer)), ContentLength: int64(len(answer)), Request: r,
	}, nil
}

func (g *generous) decide(r wire.Report) wire.Decision {
	d := wire.Decision{
		Name: r.Name, Epoch: "e", Generation: 1, State: wire.Closed, Instances: 1,
		NotBeforeMS: max(time.Until(g.notBefore), 0).Milliseconds(),
	}
	if g.open {
		d.State, d.RemainingMS, d.Generation = wire.Open, 60_000, 2
	}
	sum := &g.reported
	sum.Chains = append(sum.Chains, r.Chains...)
	sum.Requests += r.Requests
	sum.Attempts += r.Attempts
	sum.Success += r.Success
	sum.Failure += r.Failure
	sum.Throttled += r.Throttled
	sum.Ignored += r.Ignored
	sum.Ungranted += r.Ungranted
	sum.RejectedBudget += r.RejectedBudget
	if r.Want > 0 {
		d.Granted = min(r.Want, g.grants)
		g.grants -= d.Granted
		d.GrantTTLMS = 3000
		if d.Granted < r.Want {
			d.HoldMS = 60_000
		}
	}
	return d
}

// set changes what the control plane does from now on.
func (g *generous) set(change func(*generous)) {
	g.mu.Lock()
	defer g.mu.Unlock()
	change(g)
}

// report is what the instance has reported about all its calls.
func (g *generous) report(t *testing.T, c *client.Client) wire.Report {
	t.Helper()
	if err := c.Flush(context.WithoutCancel(t.Context())); err != nil {
		t.Fatalf("flush: %v", err)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.reported
}

// quick is the default policy with waits that tests can wait for, and without chance.
func quick() policy.Policy {
	p := policy.Default()
	p.Retry.Base, p.Retry.Cap, p.Retry.Jitter = time.Millisecond, time.Millisecond, policy.JitterNone
	p.Breaker.LocalFailures = 0
	return p
}

// newGuard returns a client of a control plane that grants up to 1,000 retries.
func newGuard(t *testing.T, p policy.Policy, opts ...client.Option) (*client.Client, *generous) {
	t.Helper()
	plane := &generous{grants: 1000}
	opts = append([]client.Option{client.WithHTTPClient(&http.Client{Transport: plane}), client.WithPolicy(p)}, opts...)
	c, err := client.New("http://control.plane.test", opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(context.Background()); err != nil && !plane.down {
			t.Errorf("close: %v", err)
		}
	})
	return c, plane
}
