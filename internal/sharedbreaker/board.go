// Package sharedbreaker keeps the fleet's breakers, overrides and policies in Redis.
//
// Lua counts and commits, Go decides: scripts add up what instances reported and return it, package policy decides on
// it, and a commit script swaps the state if epoch and generation are still those that were decided on. One commit
// wins a transition; it writes the transition log in the same step.
package sharedbreaker

import (
	"errors"
	"time"

	"github.com/retryplane/retryplane/pkg/policy"
)

// Errors that callers branch on. Everything else that a method returns means that Redis did not do it, or that nobody
// knows whether it did.
var (
	ErrConflict = errors.New("somebody else was faster")             // another revision than the expected one is in force
	ErrNotFound = errors.New("no such record")                       // nothing there to delete
	ErrInForce  = errors.New("an override of the dependency stands") // Forget refuses
)

// MaxNotBefore bounds how long a dependency may keep retries away at a time: a typing error in a header must not do so
// for a day.
const MaxNotBefore = time.Hour

// AnyRevision as an expected revision accepts whatever is there.
const AnyRevision int64 = -1

// Report is what one replica learned about one dependency since its last flush.
type Report struct {
	Name       string
	Policy     policy.BreakerPolicy
	ProbeLease time.Duration // how long a probe permit is valid: the per-attempt timeout + 500 ms

	Counts    []Counts   // rule counters by the generation under which the attempts were admitted
	Display   Display    // display counters: everything
	Instances []Instance // who reported, each once
	Probes    []Probe    // ended trial requests
	Asks      []string   // ids of the instances that want a probe permit, in order

	NotBefore time.Duration // the dependency asked an instance not to be retried for so long; 0 = it did not
}

// Counts are attempts' outcomes that count for the trip rules of one generation.
type Counts struct {
	Epoch                  string
	Generation             int64
	Success, Failure, Slow int64
}

// Display are the counters that people look at. They take everything, however late.
type Display struct {
	Requests, Attempts                   int64
	Success, Failure, Throttled, Ignored int64
	RejectedBreaker, RejectedBudget      int64
	AttemptsPerRequest                   [5]int64 // by number of attempts: 1, 2, 3, 4, 5 and more
	LatencySumMS, LatencyCount           int64
}

// Verdict is what an instance's latest report says of its own attempts.
type Verdict uint8

// Verdicts.
const (
	VerdictNone    Verdict = iota // no attempt ended in the report
	VerdictHealthy                // fewer than half failed
	VerdictFailing                // at least half failed
)

// Instance is one instance's part in a report. Its verdict counts only under the current epoch and generation.
type Instance struct {
	ID               string
	Verdict          Verdict
	Epoch            string
	Generation       int64
	OverrideRevision int64 // the override that the instance acts on, 0 = none
}

// Probe is the end of a trial request: it counts only while its permit, epoch and generation are current.
type Probe struct {
	Token      string
	Instance   string
	Epoch      string
	Generation int64
	Outcome    policy.Outcome
}

// Permit answers an ask.
type Permit struct {
	Instance string
	Token    string        // "" = no permit
	Lease    time.Duration // of a permit, from now
	Hold     time.Duration // without one: how long not to ask again
}

// Standing is where a dependency stands. Its times are on Redis's clock, as is Now.
type Standing struct {
	Name        string
	Now         time.Time
	Epoch       string
	Breaker     policy.Breaker
	Override    policy.Override // the zero value when there is none; one that expired stays until Advance has logged it
	Policy      Record          // the zero value when nobody configured it
	FailureRate policy.PPM      // over the trip rule's span
	Instances   int64           // live: reported within 30 s
	Failing     int64           // of these, failing at their latest report under this generation
	Applied     int64           // of these, acting on the override's revision
	NotBefore   time.Time       // no retries before, as the dependency asked; may have passed; zero = it never did
	LastReport  time.Time       // or when it was registered; from Read to a second

	// Only what Observe and the operator's methods return:
	Transitions []Transition // committed by this very call
	Permits     []Permit     // one for each ask, in order

	// Only what Read returns:
	Window Display // over the last 10 s
}

// Record is a policy as stored: its JSON and the version that the store gave it.
type Record struct {
	Version int64 // rises with every write; 0 = none
	JSON    string
}

// Transition is an entry of the transition log.
type Transition struct {
	ID         string // of the log entry
	Dependency string
	From, To   policy.State // effective states for operator and expiry, automatic ones otherwise
	Generation int64
	Reason     string
	Cause      policy.Cause
	Actor      string // "" = automatic
	At         time.Time
}

// Group is everything the store knows about the dependencies of one group.
type Group struct {
	Number    int
	Epoch     string
	Now       time.Time
	Standings []Standing
	Saved     []Saved
}

// Saved is an override, a policy or the tombstone of one, in the form in which a replica writes it back to a store
// that lost its memory.
type Saved struct {
	Kind     string // override, policy
	Name     string
	Revision int64
	Deleted  bool
	JSON     string
	Until    time.Time // override: its expiry; tombstone: when it may go; zero = for ever
}

// Add adds o to d.
func (d *Display) Add(o Display) {
	d.Requests += o.Requests
	d.Attempts += o.Attempts
	d.Success += o.Success
	d.Failure += o.Failure
	d.Throttled += o.Throttled
	d.Ignored += o.Ignored
	d.RejectedBreaker += o.RejectedBreaker
	d.RejectedBudget += o.RejectedBudget
	for i, n := range o.AttemptsPerRequest {
		d.AttemptsPerRequest[i] += n
	}
	d.LatencySumMS += o.LatencySumMS
	d.LatencyCount += o.LatencyCount
}
