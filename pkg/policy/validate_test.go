package policy_test

import (
	"errors"
	"testing"
	"time"

	"github.com/retryplane/retryplane/pkg/policy"
)

// TestRetryPolicyValidate: alone it is judged as within a whole policy.
func TestRetryPolicyValidate(t *testing.T) {
	t.Parallel()
	for _, preset := range []policy.RetryPolicy{policy.Interactive(), policy.Background()} {
		if err := preset.Validate(); err != nil {
			t.Errorf("%+v: %v", preset, err)
		}
	}
	for field, spoil := range map[string]func(*policy.RetryPolicy){
		"retry.attempts":            func(r *policy.RetryPolicy) { r.Attempts = 21 },
		"retry.deadline_ms":         func(r *policy.RetryPolicy) { r.Deadline = 0 },
		"retry.attempt_timeout_ms":  func(r *policy.RetryPolicy) { r.AttemptTimeout = 2 * time.Hour },
		"retry.base_ms":             func(r *policy.RetryPolicy) { r.Base = -time.Second },
		"retry.cap_ms":              func(r *policy.RetryPolicy) { r.Cap = time.Hour },
		"retry.jitter":              func(r *policy.RetryPolicy) { r.Jitter = policy.JitterNone + 1 },
		"retry.retry_after_cap_ms":  func(r *policy.RetryPolicy) { r.RetryAfterCap = 2 * time.Hour },
		"retry.replay_buffer_bytes": func(r *policy.RetryPolicy) { r.ReplayBuffer = 65 << 20 },
	} {
		whole := policy.Default()
		spoil(&whole.Retry)
		var wrong *policy.FieldError
		if err := whole.Retry.Validate(); !errors.As(err, &wrong) || wrong.Field != field || wrong.Limit == "" {
			t.Errorf("%s: got %v", field, err)
		} else if all := whole.Validate(); all == nil || all.Error() != err.Error() {
			t.Errorf("%s: got %v within a policy, %v alone", field, all, err)
		}
	}
}
