package client

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/retryplane/retryplane/pkg/policy"
	"github.com/retryplane/retryplane/pkg/wire"
)

// says has the plane answer every report about every dependency the same.
func says(dec wire.Decision) func(*plane) {
	return func(p *plane) {
		p.decide = func(rep wire.Report) wire.Decision {
			d := dec
			if d.Granted < 0 {
				d.Granted = rep.Want
			}
			return d
		}
	}
}

// learn makes one call and gives the client time to be told.
func learn(t *testing.T, d *Dependency) {
	t.Helper()
	_ = call(t, d, Success)
	time.Sleep(150 * time.Millisecond)
	synctest.Wait()
}

func rejected(t *testing.T, d *Dependency) *OpenError {
	t.Helper()
	err := call(t, d, Success)
	var open *OpenError
	if !errors.As(err, &open) || !errors.Is(err, ErrOpen) {
		t.Fatalf("got %v, want an OpenError", err)
	}
	return open
}

func passes(t *testing.T, d *Dependency) {
	t.Helper()
	if err := call(t, d, Success); err != nil {
		t.Fatalf("rejected: %v", err)
	}
}

func TestFleetOpen(t *testing.T) {
	bubble(t, func(t *testing.T, p *plane, c *Client) {
		p.set(says(wire.Decision{Epoch: "e", Generation: 5, State: wire.Open, RemainingMS: 10_000}))
		d := c.Dependency("a")
		learn(t, d)
		open := rejected(t, d)
		if open.Source != SourceFleet || open.Dependency != "a" || open.RetryAfter > 10*time.Second || open.RetryAfter < 8*time.Second {
			t.Errorf("got %+v", open)
		}
		time.Sleep(2 * time.Second)
		p.set(says(wire.Decision{Epoch: "e", Generation: 5, State: wire.Open, RemainingMS: 8_000}))
		for range 20 {
			rejected(t, d)
			time.Sleep(100 * time.Millisecond)
		}
		if got := rejected(t, d).RetryAfter; got > 8*time.Second+100*time.Millisecond {
			t.Errorf("time left is %v and does not go down", got)
		}
		got := sum(p.seen(), "a")
		if got.RejectedBreaker == 0 || got.Requests != 1 {
			t.Errorf("rejected calls neither deposit nor stay unreported: %+v", got)
		}
	})
}

// TestLateResults: what a call that was admitted before the breaker moved brings later counts under the
// generation of its admission, and moves nothing here.
func TestLateResults(t *testing.T) {
	bubble(t, func(t *testing.T, p *plane, c *Client) {
		d := c.Dependency("a")
		learn(t, d)
		slow, err := d.Acquire(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		var failing []Permit
		for range 20 {
			f, err := d.Acquire(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			failing = append(failing, f)
		}
		time.Sleep(1500 * time.Millisecond)
		p.set(says(wire.Decision{Epoch: "e", Generation: 2, State: wire.Open, RemainingMS: 3000}))
		passes(t, d)
		time.Sleep(1500 * time.Millisecond)
		rejected(t, d)
		p.seen()
		for i := range failing { // they fail over more than a second
			failing[i].Done(Failure)
			time.Sleep(100 * time.Millisecond)
		}
		slow.Done(Success)
		if got := d.State(); got.Local != policy.Closed || got.Generation != 2 || got.Fleet != policy.Open {
			t.Errorf("late results moved the breaker: %+v", got)
		}
		rejected(t, d)
		time.Sleep(1500 * time.Millisecond)
		synctest.Wait()
		for _, s := range p.seen() {
			for _, rep := range s.req.Dependencies {
				if rep.Failure+rep.Success > 0 && (rep.Generation != 1 || rep.Epoch != "e") {
					t.Errorf("late results reported under generation %d: %+v", rep.Generation, rep)
				}
			}
		}
		if got := d.stats(); got.Failure != 20 {
			t.Errorf("%d failures in the statistics, want 20", got.Failure)
		}
	})
}

// TestSameDependencyTwice: a sync carries a dependency once per generation that still had results.
func TestSameDependencyTwice(t *testing.T) {
	bubble(t, func(t *testing.T, p *plane, c *Client) {
		d := c.Dependency("a")
		learn(t, d)
		late, _ := d.Acquire(t.Context())
		time.Sleep(1300 * time.Millisecond)
		p.set(says(wire.Decision{Epoch: "e", Generation: 3, State: wire.Closed}))
		passes(t, d)
		time.Sleep(1300 * time.Millisecond)
		passes(t, d)
		late.Done(Failure)
		p.seen()
		time.Sleep(1300 * time.Millisecond)
		synctest.Wait()
		var generations []int64
		for _, s := range p.seen() {
			for _, rep := range s.req.Dependencies {
				generations = append(generations, rep.Generation)
			}
		}
		if !slices.Equal(generations, []int64{1, 3}) {
			t.Errorf("reported generations %v, want 1 and 3", generations)
		}
	})
}

func TestOrder(t *testing.T) {
	closed := func(epoch string, generation int64) *wire.Decision {
		return &wire.Decision{Name: "a", Epoch: epoch, Generation: generation, State: wire.Closed}
	}
	bubble(t, func(t *testing.T, p *plane, c *Client) {
		d := c.Dependency("a")
		t0 := time.Now()
		steps := []struct {
			name       string
			epoch      string
			generation int64
			sent       time.Duration
			want       string
			wantGen    int64
		}{
			{"first", "e", 5, 10, "e", 5},
			{"higher generation, sent earlier", "e", 6, 5, "e", 6},
			{"lower generation, sent later", "e", 4, 20, "e", 6},
			{"another epoch, sent earlier", "x", 99, 5, "e", 6},
			{"another epoch, sent later", "x", 1, 30, "x", 1},
			{"old epoch, sent earlier", "e", 100, 20, "x", 1},
		}
		for _, s := range steps {
			d.tell(&parcel{dep: d}, closed(s.epoch, s.generation), t0.Add(s.sent*time.Second), false)
			if got := d.State(); got.Epoch != s.want || got.Generation != s.wantGen {
				t.Errorf("%s: %s/%d, want %s/%d", s.name, got.Epoch, got.Generation, s.want, s.wantGen)
			}
		}
		d.tell(&parcel{dep: d}, &wire.Decision{Epoch: "x", Generation: 1, State: wire.HalfOpen, AdmitPPM: 500_000}, t0.Add(40*time.Second), false)
		d.tell(&parcel{dep: d}, &wire.Decision{Epoch: "x", Generation: 1, State: wire.HalfOpen, AdmitPPM: 100_000}, t0.Add(35*time.Second), false)
		if got := d.State().Admit; got != 500_000 {
			t.Errorf("admit %d: of one generation the later sent request wins", got)
		}
	})
}

func TestRamp(t *testing.T) {
	bubble(t, func(t *testing.T, p *plane, c *Client) {
		p.set(says(wire.Decision{Epoch: "e", Generation: 5, State: wire.HalfOpen, AdmitPPM: 250_000}))
		d := c.Dependency("a")
		learn(t, d)
		passed := 0
		for range 4000 {
			if call(t, d, Success) == nil {
				passed++
			}
		}
		if passed < 850 || passed > 1150 {
			t.Errorf("%d of 4000 calls passed, want about a quarter", passed)
		}
		if d.breakerClosed() {
			t.Error("a ramp is closed for retries")
		}
		// The end of the ramp is known soon: it syncs as often as the ramp steps.
		p.set(says(wire.Decision{Epoch: "e", Generation: 6, State: wire.Closed}))
		_ = call(t, d, Success)
		time.Sleep(700 * time.Millisecond)
		passes(t, d)
		if got := d.State(); got.State != policy.Closed {
			t.Errorf("state %v", got.State)
		}
	})
}

func TestOverrides(t *testing.T) {
	bubble(t, func(t *testing.T, p *plane, c *Client) {
		override := func(mode string, ms int64) *wire.Override {
			return &wire.Override{Mode: mode, Revision: 7, RemainingMS: ms}
		}
		d := c.Dependency("a")
		p.set(says(wire.Decision{Epoch: "e", Generation: 1, State: wire.Closed, Override: override("force_open", 5000)}))
		learn(t, d)
		if open := rejected(t, d); open.Source != SourceOverride || open.RetryAfter < 4*time.Second {
			t.Errorf("got %+v", open)
		}
		// It holds without a control plane, until its time is up.
		p.set(func(p *plane) { p.down = true })
		for range 45 {
			rejected(t, d)
			time.Sleep(100 * time.Millisecond)
		}
		time.Sleep(500 * time.Millisecond)
		synctest.Wait()
		passes(t, d)

		p.set(func(p *plane) { p.down = false })
		p.set(says(wire.Decision{Epoch: "e", Generation: 2, State: wire.Open, RemainingMS: 60_000, Override: override("force_closed", 60_000)}))
		time.Sleep(7 * time.Second)
		learn(t, d)
		// Not even this instance's own breaker opens against it.
		for range 30 {
			if err := call(t, d, Failure); err != nil {
				t.Fatal(err)
			}
			time.Sleep(100 * time.Millisecond)
		}
		if !d.breakerClosed() {
			t.Error("forced closed, and retries are refused")
		}

		p.set(says(wire.Decision{Epoch: "e", Generation: 3, State: wire.Closed, Granted: -1, Override: override("no_retries", 60_000)}))
		time.Sleep(2 * time.Second)
		passes(t, d)
		time.Sleep(2 * time.Second)
		passes(t, d)
		if _, err := d.reserve(t.Context(), 100*time.Millisecond, time.Time{}); !errors.Is(err, ErrBudget) {
			t.Errorf("got %v, want ErrBudget", err)
		}
		applied := int64(0)
		for _, s := range p.seen() {
			for _, rep := range s.req.Dependencies {
				applied = max(applied, rep.Applied.OverrideRevision)
			}
		}
		if applied != 7 {
			t.Errorf("applied revision %d reported", applied)
		}
	})
}

// TestCallerCancels: it is no failure, and gives a probe back.
func TestCallerCancels(t *testing.T) {
	bubble(t, func(t *testing.T, p *plane, c *Client) {
		d := c.Dependency("a")
		learn(t, d)
		for range 100 {
			if err := call(t, d, Ignored); err != nil {
				t.Fatal(err)
			}
			time.Sleep(50 * time.Millisecond)
		}
		if got := d.State(); got.Local != policy.Closed {
			t.Errorf("local breaker is %v", got.Local)
		}
		synctest.Wait()
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if got := sum(p.seen(), "a"); got.Ignored != 100 || got.Failure != 0 {
			t.Errorf("reported %+v", got)
		}
	})
}

// TestRates: under concurrency every call is counted once.
func TestRates(t *testing.T) {
	bubble(t, func(t *testing.T, p *plane, c *Client) {
		d := c.Dependency("a")
		learn(t, d)
		const callers, calls = 8, 500
		done := make(chan struct{})
		for i := range callers {
			go func() {
				for j := range calls {
					o := Success
					if (i+j)%4 == 0 {
						o = Failure
					}
					_ = call(t, d, o)
					if j%100 == 0 {
						time.Sleep(300 * time.Millisecond)
						c.Stats()
					}
				}
				done <- struct{}{}
			}()
		}
		for range callers {
			<-done
		}
		time.Sleep(3 * time.Second)
		synctest.Wait()
		got, own := sum(p.seen(), "a"), d.stats()
		if got.Requests != callers*calls+1 || got.Success+got.Failure != got.Requests {
			t.Errorf("reported %+v", got)
		}
		if own.Requests != got.Requests || own.Failure != got.Failure || own.RequestAttempts[0] != got.AttemptsPerRequest[0] {
			t.Errorf("statistics %+v, reported %+v", own, got)
		}
	})
}

func TestPolicy(t *testing.T) {
	own := policy.Default()
	own.Retry.Attempts = 7
	bubble(t, func(t *testing.T, p *plane, c *Client) {
		d := c.Dependency("a")
		if got := d.policy().Retry.Attempts; got != 7 {
			t.Errorf("%d attempts before anything was told, want the client's own 7", got)
		}
		five, bad := int64(5), int64(-3)
		p.set(says(wire.Decision{Epoch: "e", Generation: 1, State: wire.Closed, PolicyVersion: 3,
			Policy: &wire.Policy{Retry: &wire.RetryPolicy{Attempts: &five}}}))
		learn(t, d)
		if got := d.policy().Retry.Attempts; got != 5 {
			t.Errorf("%d attempts, want 5", got)
		}
		p.seen()
		p.set(says(wire.Decision{Epoch: "e", Generation: 1, State: wire.Closed, PolicyVersion: 4,
			Policy: &wire.Policy{Retry: &wire.RetryPolicy{Attempts: &bad}}}))
		time.Sleep(2 * time.Second)
		learn(t, d)
		time.Sleep(2 * time.Second)
		if got := d.policy().Retry.Attempts; got != 5 {
			t.Errorf("%d attempts after a policy that makes no sense, want 5", got)
		}
		if syncs := p.seen(); syncs[len(syncs)-1].req.Dependencies[0].Applied.PolicyVersion != 3 {
			t.Errorf("claims to have applied %+v", syncs[len(syncs)-1].req.Dependencies[0].Applied)
		}
		p.set(says(wire.Decision{Epoch: "e", Generation: 1, State: wire.Closed}))
		time.Sleep(2 * time.Second)
		learn(t, d)
		time.Sleep(2 * time.Second)
		if got := d.policy().Retry.Attempts; got != 7 {
			t.Errorf("%d attempts after the policy was deleted, want the client's own 7", got)
		}
	}, WithPolicy(own))
}

func TestInvalidName(t *testing.T) {
	bubble(t, func(t *testing.T, p *plane, c *Client) {
		d := c.Dependency("BAD NAME")
		_, err := d.Acquire(t.Context())
		var invalid *InvalidNameError
		if !errors.As(err, &invalid) || invalid.Name != "BAD NAME" {
			t.Errorf("got %v", err)
		}
		if _, err := d.reserve(context.Background(), 0, time.Time{}); !errors.As(err, &invalid) {
			t.Errorf("reserve: got %v", err)
		}
		d.finished(3)
		d.ungranted(2)
		_ = d.State()
		_ = d.breakerClosed()
		if n := len(c.Stats().Dependencies); n != 0 {
			t.Errorf("%d dependencies known", n)
		}
	})
}

// TestForbiddenDependency: a dependency that the client's token is not for goes alone; the others are not cut off with
// it.
func TestForbiddenDependency(t *testing.T) {
	bubble(t, func(t *testing.T, p *plane, c *Client) {
		p.set(func(p *plane) { p.forbid = "b" })
		a, b := c.Dependency("a"), c.Dependency("b")
		for range 100 {
			passes(t, a)
			passes(t, b)
			time.Sleep(100 * time.Millisecond)
		}
		synctest.Wait()
		if c.Stats().Degraded || !a.State().Known || b.State().Known {
			t.Errorf("a %+v, b %+v", a.State(), b.State())
		}
		if got := sum(p.seen(), "a"); got.Requests < 80 {
			t.Errorf("reported %+v", got)
		}
		failFor(t, b, 1500*time.Millisecond)
		if got := rejected(t, b); got.Source != SourceLocal {
			t.Errorf("%+v", got)
		}
		p.set(func(p *plane) { p.forbid = "" })
		for range 80 {
			_ = call(t, b, Success)
			time.Sleep(time.Second)
		}
		if !b.State().Known {
			t.Error("not asked again")
		}
	})
}
