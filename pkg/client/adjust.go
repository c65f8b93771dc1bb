package client

import (
	"fmt"
	"time"

	"github.com/retryplane/retryplane/pkg/policy"
)

// What a caller may set of the retry policy for a single call. It wins over the control plane's policy as over the
// client's own; of several options for the same the last one wins, and those of an argument come after those of
// [WithCall]. Nothing of it touches breaker, budget and operators' overrides, which belong to the fleet. An option that is
// out of its bounds fails the call before anything is sent, with an [*Error] that wraps a [*policy.FieldError].

// MaxAttempts sets how many attempts the call may take, the first included; 1 (no retries) to 20.
func MaxAttempts(n int) CallOption {
	return adjust(func(r *policy.RetryPolicy) { r.Attempts = n })
}

// Timeout sets how long the whole call may take, waits and the reading of a response's body included; 1 ms to 1 h. An
// earlier deadline of the caller's context still applies.
func Timeout(d time.Duration) CallOption {
	return adjust(func(r *policy.RetryPolicy) { r.Deadline = d })
}

// AttemptTimeout sets how long one attempt may take, of an HTTP request up to the response's headers; 1 ms to 1 h. An
// attempt never gets more than what the call has left.
func AttemptTimeout(d time.Duration) CallOption {
	return adjust(func(r *policy.RetryPolicy) { r.AttemptTimeout = d })
}

// Retry sets the whole retry policy of the call, such as the preset for jobs that nobody waits for:
//
//	client.Retry(policy.Background())
//
// The bounds are those of [policy.RetryPolicy]. Options behind it adjust it further.
func Retry(p policy.RetryPolicy) CallOption {
	return adjust(func(r *policy.RetryPolicy) { *r = p })
}

// Retry500 says whether status 500 is retried, of requests that may be repeated.
func Retry500(yes bool) CallOption {
	return adjust(func(r *policy.RetryPolicy) { r.Retry500 = yes })
}

// RetryThrottledWrites says whether status 429 is retried even if the request may not be repeated: for dependencies that
// check their limits before they do anything.
func RetryThrottledWrites(yes bool) CallOption {
	return adjust(func(r *policy.RetryPolicy) { r.RetryThrottledWrites = yes })
}

// RetryUnavailableWrites says whether status 503 with a Retry-After is retried even if the request may not be repeated.
func RetryUnavailableWrites(yes bool) CallOption {
	return adjust(func(r *policy.RetryPolicy) { r.RetryUnavailableWrites = yes })
}

// adjustment is one thing that a caller set of the policy, and what was set before it. It is immutable, so that contexts
// can share it. nil = nothing.
type adjustment struct {
	set    func(*policy.RetryPolicy)
	before *adjustment
}

func adjust(set func(*policy.RetryPolicy)) CallOption {
	return func(o *callOptions) { o.adjusted = &adjustment{set: set, before: o.adjusted} }
}

// over returns p with everything adjusted. p, which is shared, stays as it is; it is returned itself where nothing is
// adjusted, and with an error.
func (a *adjustment) over(p *policy.Policy) (*policy.Policy, error) {
	if a == nil {
		return p, nil
	}
	adjusted := *p
	a.apply(&adjusted.Retry)
	if err := adjusted.Retry.Validate(); err != nil {
		return p, fmt.Errorf("call options: %w", err)
	}
	return &adjusted, nil
}

func (a *adjustment) apply(r *policy.RetryPolicy) {
	if a.before != nil {
		a.before.apply(r)
	}
	a.set(r)
}
