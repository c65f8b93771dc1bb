package wire

import "time"

// Dependency is one dependency as people and tools read it: GET /v1/dependencies/{name}.
type Dependency struct {
	Name    string        `json:"name"`
	Breaker BreakerStatus `json:"breaker"`
	Budget  BudgetStatus  `json:"budget"`
	Window  Window        `json:"window"`
	Policy  PolicyStatus  `json:"policy"`
	// NotBefore is until when the dependency asked not to be retried, by a Retry-After to any instance; null if it did not.
	NotBefore *time.Time `json:"not_before"`
	AsOf      time.Time  `json:"as_of"`
}

// BreakerStatus holds the calculated state and what an operator put over it.
type BreakerStatus struct {
	Effective string          `json:"effective"` // closed, open, half_open
	Automatic AutomaticState  `json:"automatic"`
	Override  *OverrideStatus `json:"override"` // null when there is none
}

// AutomaticState is the calculated state.
type AutomaticState struct {
	State       string     `json:"state"`
	Reason      string     `json:"reason"` // why it left closed; "" while closed
	Epoch       string     `json:"epoch"`
	Generation  int64      `json:"generation"`
	Since       *time.Time `json:"since"` // start of the episode, or of the closed state; null if it never changed
	Reopenings  int64      `json:"reopenings"`
	RemainingMS int64      `json:"remaining_ms"`
	AdmitPPM    int64      `json:"admit_ppm"`
}

// OverrideStatus is an override as people read it.
type OverrideStatus struct {
	Mode      string    `json:"mode"`
	Reason    string    `json:"reason"`
	Actor     string    `json:"actor"`
	CreatedAt time.Time `json:"created_at"`
	ExpiresAt time.Time `json:"expires_at"`
	Revision  int64     `json:"revision"`
	AppliedBy int64     `json:"applied_by"` // instances that act on it
	Instances int64     `json:"instances"`  // live instances of this dependency
}

// BudgetStatus is the retry budget over its window.
type BudgetStatus struct {
	RatioPPM  int64 `json:"ratio_ppm"`
	Floor     int64 `json:"floor"`
	WindowMS  int64 `json:"window_ms"`
	Requests  int64 `json:"requests"`
	Retries   int64 `json:"retries"` // granted, and sent without a grant
	Allowed   int64 `json:"allowed"`
	Remaining int64 `json:"remaining"` // below zero after retries without grants
	Denied    int64 `json:"denied"`
}

// Window is what was reported over the budget's window.
type Window struct {
	Requests           int64    `json:"requests"`
	Attempts           int64    `json:"attempts"`
	Success            int64    `json:"success"`
	Failure            int64    `json:"failure"`
	Throttled          int64    `json:"throttled"`
	Ignored            int64    `json:"ignored"`
	RetryRatio         float64  `json:"retry_ratio"` // (attempts - requests) / requests; 0 without requests
	RejectedBreaker    int64    `json:"rejected_breaker"`
	RejectedBudget     int64    `json:"rejected_budget"`
	AttemptsPerRequest [5]int64 `json:"attempts_per_request"`
	Instances          int64    `json:"instances"`
	FailingInstances   int64    `json:"failing_instances"`
}

// PolicyStatus is the policy in force and where it comes from.
type PolicyStatus struct {
	Source  string `json:"source"`  // default, api, file
	Version int64  `json:"version"` // 0 = default
	Policy
}

// DependencyList answers GET /v1/dependencies.
type DependencyList struct {
	Dependencies []Dependency `json:"dependencies"`
	Next         string       `json:"next,omitempty"` // cursor of the next page
}

// Transition is one change of a breaker's effective or automatic state.
type Transition struct {
	Dependency string    `json:"dependency"`
	From       string    `json:"from"`
	To         string    `json:"to"`
	Generation int64     `json:"generation"`
	Reason     string    `json:"reason"`
	Cause      string    `json:"cause"` // trip, reopen, probe, recovered, operator, expiry, reset
	Actor      string    `json:"actor"` // "" = automatic
	At         time.Time `json:"at"`
}

// TransitionList answers GET /v1/transitions, newest first.
type TransitionList struct {
	Transitions []Transition `json:"transitions"`
	Next        string       `json:"next,omitempty"`
}

// Series answers GET /v1/dependencies/{name}/series: what was reported, in steps, oldest first. The columns have one
// entry per step; the last step is the current one, which goes on.
type Series struct {
	Name            string    `json:"name"`
	Start           time.Time `json:"start"` // of the first step
	StepMS          int64     `json:"step_ms"`
	Requests        []int64   `json:"requests"`
	Attempts        []int64   `json:"attempts"`
	Success         []int64   `json:"success"`
	Failure         []int64   `json:"failure"`
	Throttled       []int64   `json:"throttled"`
	Ignored         []int64   `json:"ignored"`
	RejectedBreaker []int64   `json:"rejected_breaker"`
	RejectedBudget  []int64   `json:"rejected_budget"`
	// AttemptsPerRequest is over all steps.
	AttemptsPerRequest [5]int64 `json:"attempts_per_request"`
}

// ChainList answers GET /v1/chains: the chains of retrying layers that were seen within a day, the latest first.
type ChainList struct {
	Chains []SeenChain `json:"chains"`
}

// SeenChain is a chain of layers that retry one after the other, the outermost first, above a dependency. More than
// three sends of one request (Product) are too many.
type SeenChain struct {
	Dependency string       `json:"dependency"`
	Layers     []ChainLayer `json:"layers"`
	Product    int64        `json:"product"`  // most sends of one request
	Requests   int64        `json:"requests"` // that came through it while it was remembered
	LastSeen   time.Time    `json:"last_seen"`
}

// OverrideRequest is the body of PUT /v1/dependencies/{name}/override.
type OverrideRequest struct {
	Mode        string `json:"mode"`
	Reason      string `json:"reason"`
	ExpiresInMS int64  `json:"expires_in_ms"`
}

// Status answers GET /v1/status.
type Status struct {
	Version       string `json:"version"`
	Ready         bool   `json:"ready"`
	Degraded      bool   `json:"degraded"`
	Store         string `json:"store"`          // embedded, redis
	StoreUp       bool   `json:"store_up"`       //
	StoreError    string `json:"store_error"`    // "" while it answers
	Dependencies  int    `json:"dependencies"`   //
	StreamClients int    `json:"stream_clients"` //
	UptimeMS      int64  `json:"uptime_ms"`
}

// Whoami answers GET /v1/whoami.
type Whoami struct {
	Name         string   `json:"name"`
	Roles        []string `json:"roles"`
	Dependencies []string `json:"dependencies,omitempty"` // globs; empty = all
}

// Event names of GET /v1/stream. "state" carries a StreamState, "change" a Dependency, "transition" a Transition,
// "forget" a Forgotten, "goaway" nothing: reconnect elsewhere.
const (
	EventState      = "state"
	EventChange     = "change"
	EventTransition = "transition"
	EventForget     = "forget"
	EventGoaway     = "goaway"
)

// StreamState is the first event of a stream: everything that is watched, as it is now.
type StreamState struct {
	Dependencies []Dependency `json:"dependencies"`
}

// Forgotten says that a dependency is gone.
type Forgotten struct {
	Name string `json:"name"`
}
