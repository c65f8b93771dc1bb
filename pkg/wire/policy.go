package wire

import (
	"time"

	"github.com/retryplane/retryplane/pkg/policy"
)

// Policy is a policy in JSON and YAML. A field that is absent keeps the default; zero means zero ("off" where the
// field says so).
type Policy struct {
	Breaker   *BreakerPolicy `json:"breaker,omitempty" yaml:"breaker"`
	Budget    *BudgetPolicy  `json:"budget,omitempty" yaml:"budget"`
	Retry     *RetryPolicy   `json:"retry,omitempty" yaml:"retry"`
	ViewTTLMS *int64         `json:"view_ttl_ms,omitempty" yaml:"view_ttl_ms"`
}

// BreakerPolicy is [policy.BreakerPolicy] on the wire.
type BreakerPolicy struct {
	FailureRatePPM      *int64   `json:"failure_rate_ppm,omitempty" yaml:"failure_rate_ppm"`
	MinAttempts         *int64   `json:"min_attempts,omitempty" yaml:"min_attempts"`
	ConsecutiveFailures *int64   `json:"consecutive_failures,omitempty" yaml:"consecutive_failures"`
	SlowCallMS          *int64   `json:"slow_call_ms,omitempty" yaml:"slow_call_ms"`
	SlowRatePPM         *int64   `json:"slow_rate_ppm,omitempty" yaml:"slow_rate_ppm"`
	MinFailingInstances *int64   `json:"min_failing_instances,omitempty" yaml:"min_failing_instances"`
	MinFailingSharePPM  *int64   `json:"min_failing_share_ppm,omitempty" yaml:"min_failing_share_ppm"`
	OpenForMS           *int64   `json:"open_for_ms,omitempty" yaml:"open_for_ms"`
	OpenBackoff         *float64 `json:"open_backoff,omitempty" yaml:"open_backoff"`
	OpenMaxMS           *int64   `json:"open_max_ms,omitempty" yaml:"open_max_ms"`
	OpenJitterPPM       *int64   `json:"open_jitter_ppm,omitempty" yaml:"open_jitter_ppm"`
	ProbeSharePPM       *int64   `json:"probe_share_ppm,omitempty" yaml:"probe_share_ppm"`
	HealthyResetMS      *int64   `json:"healthy_reset_ms,omitempty" yaml:"healthy_reset_ms"`
	Probes              *int64   `json:"probes,omitempty" yaml:"probes"`
	ProbeSuccesses      *int64   `json:"probe_successes,omitempty" yaml:"probe_successes"`
	RampPPM             *[]int64 `json:"ramp_ppm,omitempty" yaml:"ramp_ppm"`
	RampStepMS          *int64   `json:"ramp_step_ms,omitempty" yaml:"ramp_step_ms"`
	RampAfterMS         *int64   `json:"ramp_after_ms,omitempty" yaml:"ramp_after_ms"`
	LocalFailures       *int64   `json:"local_failures,omitempty" yaml:"local_failures"`
}

// BudgetPolicy is [policy.BudgetPolicy] on the wire.
type BudgetPolicy struct {
	RatioPPM   *int64 `json:"ratio_ppm,omitempty" yaml:"ratio_ppm"`
	Floor      *int64 `json:"floor,omitempty" yaml:"floor"`
	WindowMS   *int64 `json:"window_ms,omitempty" yaml:"window_ms"`
	GrantTTLMS *int64 `json:"grant_ttl_ms,omitempty" yaml:"grant_ttl_ms"`
}

// RetryPolicy is [policy.RetryPolicy] on the wire.
type RetryPolicy struct {
	Attempts               *int64  `json:"attempts,omitempty" yaml:"attempts"`
	DeadlineMS             *int64  `json:"deadline_ms,omitempty" yaml:"deadline_ms"`
	AttemptTimeoutMS       *int64  `json:"attempt_timeout_ms,omitempty" yaml:"attempt_timeout_ms"`
	BaseMS                 *int64  `json:"base_ms,omitempty" yaml:"base_ms"`
	CapMS                  *int64  `json:"cap_ms,omitempty" yaml:"cap_ms"`
	Jitter                 *string `json:"jitter,omitempty" yaml:"jitter"`
	RetryAfterCapMS        *int64  `json:"retry_after_cap_ms,omitempty" yaml:"retry_after_cap_ms"`
	ReplayBufferBytes      *int64  `json:"replay_buffer_bytes,omitempty" yaml:"replay_buffer_bytes"`
	Retry500               *bool   `json:"retry_500,omitempty" yaml:"retry_500"`
	RetryThrottledWrites   *bool   `json:"retry_throttled_writes,omitempty" yaml:"retry_throttled_writes"`
	RetryUnavailableWrites *bool   `json:"retry_unavailable_writes,omitempty" yaml:"retry_unavailable_writes"`
	Context                *bool   `json:"context,omitempty" yaml:"context"` // send Retry-Context
}

// Over returns base with the fields that w sets, validated. The error joins a [*policy.FieldError] per wrong field.
func (w Policy) Over(base policy.Policy) (policy.Policy, error) {
	p := base
	if b := w.Breaker; b != nil {
		q := &p.Breaker
		set(&q.FailureRate, b.FailureRatePPM)
		set(&q.MinAttempts, b.MinAttempts)
		set(&q.ConsecutiveFailures, b.ConsecutiveFailures)
		setMS(&q.SlowCall, b.SlowCallMS)
		set(&q.SlowRate, b.SlowRatePPM)
		set(&q.MinFailingInstances, b.MinFailingInstances)
		set(&q.MinFailingShare, b.MinFailingSharePPM)
		setMS(&q.OpenFor, b.OpenForMS)
		set(&q.OpenBackoff, b.OpenBackoff)
		setMS(&q.OpenMax, b.OpenMaxMS)
		set(&q.OpenJitter, b.OpenJitterPPM)
		set(&q.ProbeShare, b.ProbeSharePPM)
		setMS(&q.HealthyReset, b.HealthyResetMS)
		set(&q.Probes, b.Probes)
		set(&q.ProbeSuccesses, b.ProbeSuccesses)
		set(&q.Ramp, b.RampPPM)
		setMS(&q.RampStep, b.RampStepMS)
		setMS(&q.RampAfter, b.RampAfterMS)
		set(&q.LocalFailures, b.LocalFailures)
	}
	if g := w.Budget; g != nil {
		q := &p.Budget
		set(&q.Ratio, g.RatioPPM)
		set(&q.Floor, g.Floor)
		setMS(&q.Window, g.WindowMS)
		setMS(&q.GrantTTL, g.GrantTTLMS)
	}
	if r := w.Retry; r != nil {
		q := &p.Retry
		if r.Attempts != nil {
			q.Attempts = int(min(max(*r.Attempts, 0), 1000)) // Validate names the real bounds
		}
		setMS(&q.Deadline, r.DeadlineMS)
		setMS(&q.AttemptTimeout, r.AttemptTimeoutMS)
		setMS(&q.Base, r.BaseMS)
		setMS(&q.Cap, r.CapMS)
		if r.Jitter != nil {
			var err error
			if q.Jitter, err = policy.ParseJitter(*r.Jitter); err != nil {
				q.Jitter = policy.JitterNone + 1 // out of bounds: Validate reports it by its name
			}
		}
		setMS(&q.RetryAfterCap, r.RetryAfterCapMS)
		set(&q.ReplayBuffer, r.ReplayBufferBytes)
		set(&q.Retry500, r.Retry500)
		set(&q.RetryThrottledWrites, r.RetryThrottledWrites)
		set(&q.RetryUnavailableWrites, r.RetryUnavailableWrites)
		set(&q.Context, r.Context)
	}
	setMS(&p.ViewTTL, w.ViewTTLMS)
	return p, p.Validate()
}

// FromPolicy returns p on the wire with every field set.
func FromPolicy(p policy.Policy) Policy {
	b, g, r := p.Breaker, p.Budget, p.Retry
	ramp := append([]int64{}, b.Ramp...) // [] and not null
	return Policy{
		Breaker: &BreakerPolicy{
			FailureRatePPM: &b.FailureRate, MinAttempts: &b.MinAttempts, ConsecutiveFailures: &b.ConsecutiveFailures,
			SlowCallMS: ms(b.SlowCall), SlowRatePPM: &b.SlowRate,
			MinFailingInstances: &b.MinFailingInstances, MinFailingSharePPM: &b.MinFailingShare,
			OpenForMS: ms(b.OpenFor), OpenBackoff: &b.OpenBackoff, OpenMaxMS: ms(b.OpenMax), OpenJitterPPM: &b.OpenJitter,
			ProbeSharePPM: &b.ProbeShare, HealthyResetMS: ms(b.HealthyReset), Probes: &b.Probes, ProbeSuccesses: &b.ProbeSuccesses,
			RampPPM: &ramp, RampStepMS: ms(b.RampStep), RampAfterMS: ms(b.RampAfter), LocalFailures: &b.LocalFailures,
		},
		Budget: &BudgetPolicy{RatioPPM: &g.Ratio, Floor: &g.Floor, WindowMS: ms(g.Window), GrantTTLMS: ms(g.GrantTTL)},
		Retry: &RetryPolicy{
			Attempts: new(int64(r.Attempts)), DeadlineMS: ms(r.Deadline), AttemptTimeoutMS: ms(r.AttemptTimeout),
			BaseMS: ms(r.Base), CapMS: ms(r.Cap), Jitter: new(r.Jitter.String()), RetryAfterCapMS: ms(r.RetryAfterCap),
			ReplayBufferBytes: &r.ReplayBuffer, Retry500: &r.Retry500,
			RetryThrottledWrites: &r.RetryThrottledWrites, RetryUnavailableWrites: &r.RetryUnavailableWrites,
			Context: &r.Context,
		},
		ViewTTLMS: ms(p.ViewTTL),
	}
}

func set[T any](to *T, from *T) {
	if from != nil {
		*to = *from
	}
}

// setMS sets a duration; milliseconds that no duration can hold become one that every bound refuses.
func setMS(to *time.Duration, from *int64) {
	const most = int64(1<<63-1) / int64(time.Millisecond)
	if from != nil {
		*to = time.Duration(min(max(*from, -most), most)) * time.Millisecond
	}
}

func ms(d time.Duration) *int64 { return new(d.Milliseconds()) }
