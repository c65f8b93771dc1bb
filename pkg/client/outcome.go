package client

import "github.com/retryplane/retryplane/pkg/policy"

// Outcome is what the end of one attempt tells the breaker.
type Outcome = policy.Outcome

// The outcomes.
const (
	Ignored   = policy.Ignored   // caller cancelled, local error, never attempted; gives a probe permit back
	Success   = policy.Success   // the dependency answered and works
	Failure   = policy.Failure   // the dependency failed or did not answer in time
	Throttled = policy.Throttled // the dependency works and asks for less; never opens a breaker
)
