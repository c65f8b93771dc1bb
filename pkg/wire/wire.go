// Package wire is the JSON of the /v1 API: every name, path and error code that instances, operators and the
// control plane exchange. Golden files pin it; what one release wrote, every later one reads.
//
// Times that decide travel as durations in milliseconds, never as clock times, because the clocks of a fleet do not
// agree. Clock times appear only where people read them.
package wire

// Paths of the API.
const (
	PathSync         = "/v1/sync"
	PathStream       = "/v1/stream"
	PathDependencies = "/v1/dependencies"
	PathTransitions  = "/v1/transitions"
	PathChains       = "/v1/chains"
	PathStatus       = "/v1/status"
	PathWhoami       = "/v1/whoami"
)

// Limits of the API, named in the errors that enforce them.
const (
	MaxBody                  = 256 << 10 // bytes of a request body
	MaxReports               = 500       // reports in one sync
	MaxInstance              = 64        // characters of an instance id
	MaxLabel                 = 128       // characters of a service name or version
	MinReason                = 8         // characters of an override's reason
	MaxReason                = 500       // characters of an override's reason
	MaxCount                 = 10_000_000
	MaxProbesPerReport       = 100
	MaxNotBeforeMS           = 3_600_000 // longer demands of a dependency are cut
	MaxChainsPerReport       = 16
	MaxChainLayers           = 9 // the eight that a Retry-Context may hold, and the one that reports
	MaxOverrideMS      int64 = 7 * 24 * 3600 * 1000
)

// Breaker states on the wire.
const (
	Closed   = "closed"
	Open     = "open"
	HalfOpen = "half_open"
)

// SyncRequest is what one instance reports: everything it counted since its last sync.
type SyncRequest struct {
	Instance     string   `json:"instance"`          // random per process start
	Service      string   `json:"service,omitempty"` // labels for people
	Version      string   `json:"version,omitempty"`
	Seq          int64    `json:"seq"` // rises by one with every sync of this instance; the same number gets the same answer
	Dependencies []Report `json:"dependencies"`
}

// Report is one dependency in a sync. The same dependency appears once per generation that still had results.
// Every count is the difference to the last sync.
type Report struct {
	Name       string `json:"name"`
	Epoch      string `json:"epoch,omitempty"` // of the view under which the calls were admitted; "" before the first view
	Generation int64  `json:"generation,omitempty"`
	AgeMS      int64  `json:"age_ms,omitempty"` // how long ago the oldest of the counted requests began, at most

	Requests        int64 `json:"requests,omitempty"` // first attempts; what a breaker rejected is not among them
	Attempts        int64 `json:"attempts,omitempty"`
	Success         int64 `json:"success,omitempty"`
	Failure         int64 `json:"failure,omitempty"`
	Throttled       int64 `json:"throttled,omitempty"`
	Ignored         int64 `json:"ignored,omitempty"`
	Slow            int64 `json:"slow,omitempty"` // slower than the policy's slow_call
	RejectedBreaker int64 `json:"rejected_breaker,omitempty"`
	RejectedBudget  int64 `json:"rejected_budget,omitempty"`
	// AttemptsPerRequest counts the finished requests by their number of attempts: 1, 2, 3, 4, 5 and more.
	AttemptsPerRequest []int64 `json:"attempts_per_request,omitempty"`
	LatencySumMS       int64   `json:"latency_sum_ms,omitempty"` // over the sampled attempts
	LatencyCount       int64   `json:"latency_count,omitempty"`
	FailureRun         int64   `json:"failure_run,omitempty"` // failures since the last success, at the end of this report

	Ungranted int64         `json:"ungranted,omitempty"` // retries sent without a grant; the budget is charged for them
	Want      int64         `json:"want,omitempty"`      // retries this instance would like to send now
	WaitedMS  int64         `json:"waited_ms,omitempty"` // how long the oldest of these has been waiting
	WantProbe bool          `json:"want_probe,omitempty"`
	Probes    []ProbeResult `json:"probes,omitempty"`

	NotBeforeMS int64 `json:"not_before_ms,omitempty"` // the dependency asked that nobody retries before this

	// Chains are the chains of more than one retrying layer that these requests came through, this instance the last.
	Chains []Chain `json:"chains,omitempty"`

	Applied Applied `json:"applied,omitzero"`
}

// Chain is layers that retry, the outermost first. How often one request may be sent is the product of their attempts.
type Chain struct {
	Layers   []ChainLayer `json:"layers"`
	Requests int64        `json:"requests"`
}

// ChainLayer is one of them.
type ChainLayer struct {
	Name string `json:"name"`
	Most int64  `json:"most"` // attempts
}

// Applied says which decisions the instance acts on, so that an operator can see "applied by 38 of 40".
type Applied struct {
	Generation       int64 `json:"generation,omitempty"`
	OverrideRevision int64 `json:"override_revision,omitempty"`
	PolicyVersion    int64 `json:"policy_version,omitempty"`
}

// ProbeResult is the end of a trial request. It counts only while its token, epoch and generation are the current ones.
type ProbeResult struct {
	Token   string `json:"token"`
	Outcome string `json:"outcome"` // success, failure, throttled, ignored; the last two give the permit back
}

// SyncResponse answers a sync.
type SyncResponse struct {
	Seq          int64      `json:"seq"`
	NextSyncMS   int64      `json:"next_sync_ms"`       // when the next periodic sync is wanted; rises under load, at most 5000
	Degraded     bool       `json:"degraded,omitempty"` // the store is away: last known decisions, no grants, no permits
	Dependencies []Decision `json:"dependencies"`       // one for each dependency of the request, in its order of first appearance
}

// Decision is what the control plane says about one dependency. Durations count from when the request was sent.
type Decision struct {
	Name        string `json:"name"`
	Epoch       string `json:"epoch"`
	Generation  int64  `json:"generation"`
	State       string `json:"state"`                  // automatic: closed, open, half_open
	RemainingMS int64  `json:"remaining_ms,omitempty"` // open: until probing begins
	AdmitPPM    int64  `json:"admit_ppm,omitempty"`    // half_open: share of calls to admit; 0 while probing
	FailurePPM  int64  `json:"failure_ppm,omitempty"`  // the fleet's failure rate
	Instances   int64  `json:"instances,omitempty"`    // live instances that report this dependency

	Override    *Override `json:"override,omitempty"`
	Granted     int64     `json:"granted,omitempty"`
	GrantTTLMS  int64     `json:"grant_ttl_ms,omitempty"`
	HoldMS      int64     `json:"hold_ms,omitempty"` // budget exhausted: do not ask before this
	Permit      *Permit   `json:"permit,omitempty"`
	ProbeHoldMS int64     `json:"probe_hold_ms,omitempty"` // no permit: do not ask before this
	NotBeforeMS int64     `json:"not_before_ms,omitempty"` // the dependency asked that nobody retries before this

	PolicyVersion int64   `json:"policy_version,omitempty"` // 0 = the default policy
	Policy        *Policy `json:"policy,omitempty"`         // only when the instance has another version
}

// Permit allows one trial request while half-open.
type Permit struct {
	Token   string `json:"token"`
	LeaseMS int64  `json:"lease_ms"`
}

// Override is what an operator put over the automatic state, as instances see it.
type Override struct {
	Mode        string `json:"mode"` // force_open, force_closed, no_retries
	Revision    int64  `json:"revision"`
	RemainingMS int64  `json:"remaining_ms"`
}
