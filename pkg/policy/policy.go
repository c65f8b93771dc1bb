package policy

import (
	"errors"
	"fmt"
	"regexp"
	"time"
)

// PPM is a share in parts per million: 1,000,000 is all. Shares are integers everywhere, so that the Lua scripts,
// the JSON and this package compute the same number.
type PPM = int64

// Whole is the share of everything.
const Whole PPM = 1_000_000

// Outcome is what the end of one attempt tells the breaker.
type Outcome uint8

// The outcomes.
const (
	Ignored   Outcome = iota // caller cancelled, local error, never attempted; gives a probe permit back
	Success                  // the dependency answered and works
	Failure                  // the dependency failed or did not answer in time
	Throttled                // the dependency works and asks for less; slows retries, never opens a breaker
)

// String is the outcome's word on the wire, in metrics and in logs.
func (o Outcome) String() string {
	switch o {
	case Success:
		return "success"
	case Failure:
		return "failure"
	case Throttled:
		return "throttled"
	}
	return "ignored"
}

// Policy is every number that steers one dependency. The zero value is not usable: start from [Default].
// A Policy is a value; Ramp is shared and must not be written to.
type Policy struct {
	Breaker BreakerPolicy
	Budget  BudgetPolicy
	Retry   RetryPolicy
	ViewTTL time.Duration // how long an instance may act on what it was told last; 1 s to 60 s, default 3 s
}

// BreakerPolicy steers the breaker of one dependency, the fleet's and (LocalFailures) each instance's own.
type BreakerPolicy struct {
	FailureRate         PPM           // failures/(successes+failures) that trips; 1 % to 100 %, default 90 %
	MinAttempts         int64         // outcomes the span must hold before a rate means anything; 1 to 10,000, default 20
	ConsecutiveFailures int64         // run of failures that trips a quiet dependency; 0 = off, default 10
	SlowCall            time.Duration // an attempt that takes longer is slow; 0 = rule off (default)
	SlowRate            PPM           // share of slow attempts that trips; used only with SlowCall, default 100 %
	MinFailingInstances int64         // distinct failing instances a trip needs; 1 to 1,000, default 3
	MinFailingShare     PPM           // share of the reporting instances that must be failing; 0 to 100 %, default 50 %
	OpenFor             time.Duration // first open time; 100 ms to 10 min, default 500 ms
	OpenBackoff         float64       // factor per reopening from the third on; 1 to 10, default 2
	OpenMax             time.Duration // longest open time; OpenFor to 10 min, default 15 s
	OpenJitter          PPM           // open times vary by +- this share; 0 to 50 %, default 10 %
	ProbeShare          PPM           // share of normal traffic that probing may take; 0.1 % to 100 %, default 2 %
	HealthyReset        time.Duration // closed for this long, the open time starts over; 0 to 1 h, default 60 s
	Probes              int64         // verdicts a probing round wants; 1 to 100, default 5
	ProbeSuccesses      int64         // successes that end a round well; 1 to Probes, default 2
	Ramp                []PPM         // admitted shares on the way to closed, each for RampStep; empty = close at once
	RampStep            time.Duration // 100 ms to 60 s, default 500 ms
	RampAfter           time.Duration // shorter episodes close without a ramp; 0 to 1 h, default 10 s
	LocalFailures       int64         // failures in a row that open an instance's own breaker; 0 = no local breaker, default 5
}

// BudgetPolicy steers the fleet's retry budget: retries <= Ratio * requests + Floor, over Window.
type BudgetPolicy struct {
	Ratio    PPM           // retries per request; 0 to 100 %, default 10 %
	Floor    int64         // retries per window for the whole fleet, whatever the traffic; 0 to 10,000, default 10
	Window   time.Duration // 1 s to 60 s, default 10 s
	GrantTTL time.Duration // how long a granted retry may be used; 1 s to 60 s, default 3 s
}

// RetryPolicy steers one call.
type RetryPolicy struct {
	Attempts       int           // most attempts, the first included; 1 (no retries) to 20, default 3
	Deadline       time.Duration // of the whole call; 1 ms to 1 h, default 10 s
	AttemptTimeout time.Duration // of one attempt, up to the response's headers; 1 ms to Deadline's bound, default 3 s
	Base           time.Duration // first backoff ceiling; 0 to Cap's bound, default 100 ms
	Cap            time.Duration // largest backoff ceiling; 0 to 10 min, default 3 s
	Jitter         Jitter        // default JitterFull
	RetryAfterCap  time.Duration // longer demands of the server are not waited for; 0 to 1 h, default 60 s
	ReplayBuffer   int64         // largest request body kept for replay, in bytes; 0 to 64 MiB, default 1 MiB

	Retry500               bool // retry status 500 of idempotent requests
	RetryThrottledWrites   bool // retry 429 of requests that are not idempotent
	RetryUnavailableWrites bool // retry 503 with a Retry-After of requests that are not idempotent

	// Context sends Retry-Context with every attempt, so that a dependency that is a layer of ours does not retry our
	// retries. It names this service to the dependency, so it is off by default.
	Context bool
}

// Default returns the policy of a dependency that nobody configured.
func Default() Policy {
	return Policy{
		Breaker: BreakerPolicy{
			FailureRate: 900_000, MinAttempts: 20, ConsecutiveFailures: 10, SlowRate: Whole,
			MinFailingInstances: 3, MinFailingShare: 500_000,
			OpenFor: 500 * time.Millisecond, OpenBackoff: 2, OpenMax: 15 * time.Second, OpenJitter: 100_000,
			ProbeShare: 20_000, HealthyReset: 60 * time.Second, Probes: 5, ProbeSuccesses: 2,
			Ramp: []PPM{100_000, 250_000, 500_000}, RampStep: 500 * time.Millisecond, RampAfter: 10 * time.Second,
			LocalFailures: 5,
		},
		Budget:  BudgetPolicy{Ratio: 100_000, Floor: 10, Window: 10 * time.Second, GrantTTL: 3 * time.Second},
		Retry:   Interactive(),
		ViewTTL: 3 * time.Second,
	}
}

// Interactive is the default retry policy: somebody is waiting for the answer.
func Interactive() RetryPolicy {
	return RetryPolicy{
		Attempts: 3, Deadline: 10 * time.Second, AttemptTimeout: 3 * time.Second,
		Base: 100 * time.Millisecond, Cap: 3 * time.Second, Jitter: JitterFull,
		RetryAfterCap: 60 * time.Second, ReplayBuffer: 1 << 20,
	}
}

// Background is the preset for jobs that nobody waits for: 7 attempts over up to 5 minutes.
func Background() RetryPolicy {
	r := Interactive()
	r.Attempts, r.Deadline, r.Base, r.Cap = 7, 5*time.Minute, time.Second, 32*time.Second
	return r
}

// FieldError says which field of a policy is out of its bounds. Field is the field's name in JSON.
type FieldError struct {
	Field string
	Limit string // the bounds, for people: "1 to 10000"
}

func (e *FieldError) Error() string { return fmt.Sprintf("%s: must be %s", e.Field, e.Limit) }

// Validate reports every field that is out of bounds, as one error that joins a [*FieldError] each.
func (p Policy) Validate() error {
	var c bounds
	b := p.Breaker
	c.int("breaker.failure_rate_ppm", b.FailureRate, 10_000, Whole)
	c.int("breaker.min_attempts", b.MinAttempts, 1, 10_000)
	c.int("breaker.consecutive_failures", b.ConsecutiveFailures, 0, 10_000)
	c.dur("breaker.slow_call_ms", b.SlowCall, 0, time.Hour)
	c.int("breaker.slow_rate_ppm", b.SlowRate, 10_000, Whole)
	c.int("breaker.min_failing_instances", b.MinFailingInstances, 1, 1_000)
	c.int("breaker.min_failing_share_ppm", b.MinFailingShare, 0, Whole)
	c.dur("breaker.open_for_ms", b.OpenFor, 100*time.Millisecond, 10*time.Minute)
	c.check("breaker.open_backoff", b.OpenBackoff >= 1 && b.OpenBackoff <= 10, "1 to 10")
	c.dur("breaker.open_max_ms", b.OpenMax, 100*time.Millisecond, 10*time.Minute)
	c.check("breaker.open_max_ms", b.OpenMax >= b.OpenFor, "at least open_for_ms")
	c.int("breaker.open_jitter_ppm", b.OpenJitter, 0, 500_000)
	c.int("breaker.probe_share_ppm", b.ProbeShare, 1_000, Whole)
	c.dur("breaker.healthy_reset_ms", b.HealthyReset, 0, time.Hour)
	c.int("breaker.probes", b.Probes, 1, 100)
	c.int("breaker.probe_successes", b.ProbeSuccesses, 1, 100)
	c.check("breaker.probe_successes", b.ProbeSuccesses <= b.Probes, "at most probes")
	c.check("breaker.ramp_ppm", len(b.Ramp) <= 10, "at most 10 steps")
	for _, share := range b.Ramp {
		if share < 1 || share > Whole {
			c.check("breaker.ramp_ppm", false, "shares of 1 to 1000000")
			break
		}
	}
	c.dur("breaker.ramp_step_ms", b.RampStep, 100*time.Millisecond, time.Minute)
	c.dur("breaker.ramp_after_ms", b.RampAfter, 0, time.Hour)
	c.int("breaker.local_failures", b.LocalFailures, 0, 10_000)

	g := p.Budget
	c.int("budget.ratio_ppm", g.Ratio, 0, Whole)
	c.int("budget.floor", g.Floor, 0, 10_000)
	c.dur("budget.window_ms", g.Window, time.Second, time.Minute)
	c.dur("budget.grant_ttl_ms", g.GrantTTL, time.Second, time.Minute)

	p.Retry.bounds(&c)

	c.dur("view_ttl_ms", p.ViewTTL, time.Second, time.Minute)
	return errors.Join(c.errs...)
}

// Validate is [Policy.Validate] for the policy of one call. Fields are named as they are there: "retry.attempts".
func (r RetryPolicy) Validate() error {
	var c bounds
	r.bounds(&c)
	return errors.Join(c.errs...)
}

func (r RetryPolicy) bounds(c *bounds) {
	c.int("retry.attempts", int64(r.Attempts), 1, 20)
	c.dur("retry.deadline_ms", r.Deadline, time.Millisecond, time.Hour)
	c.dur("retry.attempt_timeout_ms", r.AttemptTimeout, time.Millisecond, time.Hour)
	c.dur("retry.base_ms", r.Base, 0, 10*time.Minute)
	c.dur("retry.cap_ms", r.Cap, 0, 10*time.Minute)
	c.check("retry.jitter", r.Jitter <= JitterNone, "one of full, equal, decorrelated, proportional, none")
	c.dur("retry.retry_after_cap_ms", r.RetryAfterCap, 0, time.Hour)
	c.int("retry.replay_buffer_bytes", r.ReplayBuffer, 0, 64<<20)
}

// bounds collects the fields that are out of theirs.
type bounds struct{ errs []error }

func (c *bounds) check(field string, ok bool, limit string) {
	if !ok {
		c.errs = append(c.errs, &FieldError{Field: field, Limit: limit})
	}
}

func (c *bounds) int(field string, v, low, high int64) {
	c.check(field, v >= low && v <= high, fmt.Sprintf("%d to %d", low, high))
}

func (c *bounds) dur(field string, v, low, high time.Duration) {
	c.int(field, v.Milliseconds(), low.Milliseconds(), high.Milliseconds())
}

var dependencyName = regexp.MustCompile(`^[a-z0-9][a-z0-9._/@-]{0,127}$`)

// NameLimit is the rule for dependency names, for error messages.
const NameLimit = "1 to 128 characters of a-z 0-9 . _ / @ -, the first a letter or digit"

// ValidName reports whether s can name a dependency.
func ValidName(s string) bool { return dependencyName.MatchString(s) }
