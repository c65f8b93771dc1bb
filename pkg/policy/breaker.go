package policy

import (
	"math"
	"time"
)

// State is the automatic state of a breaker.
type State uint8

// The states.
const (
	Closed   State = iota // calls pass
	Open                  // calls are rejected until the open time is over
	HalfOpen              // probing, then ramping: see Breaker.Ramping
)

// String is the state's word on the wire.
func (s State) String() string {
	switch s {
	case Open:
		return "open"
	case HalfOpen:
		return "half_open"
	}
	return "closed"
}

// Cause says what kind of transition a breaker made.
type Cause string

// The causes.
const (
	CauseNone      Cause = ""          // no transition
	CauseTrip      Cause = "trip"      // closed -> open: an episode starts
	CauseReopen    Cause = "reopen"    // half-open -> open, within an episode
	CauseProbe     Cause = "probe"     // open -> half-open: the open time is over
	CauseRecovered Cause = "recovered" // half-open -> closed: the episode ends
	CauseOperator  Cause = "operator"  // an override was written or removed
	CauseExpiry    Cause = "expiry"    // an override's time was up
	CauseReset     Cause = "reset"     // an operator closed the breaker and forgot its episode
)

// Reasons why a breaker left the closed state or reopened.
const (
	ReasonFailureRate = "failure_rate"
	ReasonConsecutive = "consecutive_failures"
	ReasonSlow        = "slow_calls"
	ReasonProbes      = "probes_failed"
)

// Breaker is the automatic state of one dependency's breaker: a value that [Breaker.Step] maps to the next one. The
// zero value is closed, generation 0. Times are whatever clock the caller passes as now, always the same one.
type Breaker struct {
	State      State
	Ramping    bool      // half-open only: probing went well, traffic comes back step by step
	Generation int64     // rises by one with every change of State
	Reason     string    // why it left closed; "" while closed
	Since      time.Time // start of State; of the ramp while ramping
	Episode    time.Time // when it left closed; zero while closed
	Until      time.Time // open only: end of the open time
	Openings   int64     // openings since it was last closed for HealthyReset; the next open time follows from it
	Reopenings int64     // within this episode
	Rate       int64     // normal traffic before the episode, in requests per 1,000 s; 0 = unknown
}

// Input is what a step decides on. Everything in it belongs to the breaker's current generation.
type Input struct {
	Window Window // rule counters
	Run    int64  // failures since the last success
	Quorum Quorum // who reported failures over the window's span
	Round  Round  // verdicts of the current probing round
	Rate   int64  // requests per 1,000 s over the last 30 s; used at a trip
	Asked  bool   // somebody wants to probe, or a reconcile looks: due transitions are made
	Draw   float64
}

// Round counts the verdicts of a probing round.
type Round struct{ Good, Bad int64 }

// Step returns the breaker after in was seen at now, and what kind of transition that was; CauseNone and the
// unchanged breaker if there was none. A phase change from probing to ramping is no transition: it returns CauseNone
// and a changed breaker of the same generation.
func (b Breaker) Step(now time.Time, set BreakerPolicy, in Input) (Breaker, Cause) {
	switch {
	case b.State == Closed, b.State == HalfOpen && b.Ramping:
		if reason := b.Suspect(now, set, in.Window, in.Run); reason != "" && in.Quorum.Met(set) {
			return b.open(now, set, reason, in), tripOrReopen(b.State)
		}
		if b.State == HalfOpen && b.admit(now, set) >= Whole {
			return b.close(now), CauseRecovered
		}
	case b.State == Open:
		if in.Asked && !now.Before(b.Until) {
			next := b
			next.State, next.Ramping, next.Generation, next.Since, next.Until = HalfOpen, false, b.Generation+1, now, time.Time{}
			return next, CauseProbe
		}
	case b.State == HalfOpen:
		n, need := b.ProbeRound(set)
		if in.Round.Good >= need {
			if len(set.Ramp) == 0 || now.Sub(b.Episode) <= set.RampAfter {
				return b.close(now), CauseRecovered
			}
			next := b
			next.Ramping, next.Since = true, now
			return next, CauseNone
		}
		if in.Round.Bad > n-need {
			return b.open(now, set, ReasonProbes, in), CauseReopen
		}
	}
	return b, CauseNone
}

// Suspect returns the trip rule that the counters fulfil, "" if none does. It says nothing about the quorum, which is
// worth asking for only then.
func (b Breaker) Suspect(now time.Time, set BreakerPolicy, w Window, run int64) string {
	if b.State == Open || b.State == HalfOpen && !b.Ramping {
		return ""
	}
	span := w.Span(now, set.MinAttempts)
	// A ramp that admits a tenth of a quiet dependency's traffic must not reopen on one unlucky call.
	const rampFailures = 10
	ramping := b.State == HalfOpen
	if total := span.Success + span.Failure; total >= set.MinAttempts || ramping && span.Failure >= rampFailures {
		if ramping && span.Failure < rampFailures {
			return ""
		}
		if share(span.Failure, total) >= set.FailureRate {
			return ReasonFailureRate
		}
		if set.SlowCall > 0 && share(span.Slow, total) >= set.SlowRate {
			return ReasonSlow
		}
		return ""
	}
	if set.ConsecutiveFailures > 0 && run >= set.ConsecutiveFailures {
		return ReasonConsecutive
	}
	return ""
}

// At returns the breaker as a reader sees it at now: an open one whose time is over is half-open, without that
// anything was decided.
func (b Breaker) At(now time.Time) Breaker {
	if b.State == Open && !now.Before(b.Until) {
		b.State, b.Until = HalfOpen, time.Time{}
	}
	return b
}

// Remaining is how long an open breaker still rejects; 0 otherwise.
func (b Breaker) Remaining(now time.Time) time.Duration {
	if b.State != Open {
		return 0
	}
	return max(b.Until.Sub(now), 0)
}

// Admit is the share of calls that a breaker lets through at now: Whole while closed, a ramp's step, otherwise 0.
func (b Breaker) Admit(now time.Time, set BreakerPolicy) PPM {
	switch {
	case b.State == Closed:
		return Whole
	case b.State == HalfOpen && b.Ramping:
		return b.admit(now, set)
	}
	return 0
}

func (b Breaker) admit(now time.Time, set BreakerPolicy) PPM {
	step := int(max(now.Sub(b.Since), 0) / max(set.RampStep, time.Millisecond))
	if step >= len(set.Ramp) {
		return Whole
	}
	return set.Ramp[step]
}

// Reset returns the breaker after an operator's reset: closed, with a clean slate.
func (b Breaker) Reset(now time.Time) Breaker {
	return Breaker{Generation: b.Generation + 1, Since: now}
}

// ProbeRound returns how many verdicts a probing round wants, and how many successes end it well. A quiet dependency
// gets as many probes as half a second of its normal traffic brings, at least one.
func (b Breaker) ProbeRound(set BreakerPolicy) (n, need int64) {
	n = set.Probes
	if b.Rate > 0 {
		n = min(n, max((b.Rate+1000)/2000, 1)) // requests per 1,000 s, over half a second, rounded
	}
	return n, min(set.ProbeSuccesses, n)
}

func (b Breaker) open(now time.Time, set BreakerPolicy, reason string, in Input) Breaker {
	next := b.opened(now, reason, set.HealthyReset)
	if b.State == Closed {
		next.Rate = in.Rate
	}
	next.Until = now.Add(spread(next.openTime(set), set.OpenJitter, in.Draw))
	return next
}

// opened is the breaker after one more opening, its open time not yet set.
func (b Breaker) opened(now time.Time, reason string, healthyReset time.Duration) Breaker {
	next := Breaker{
		State: Open, Generation: b.Generation + 1, Reason: reason, Since: now,
		Episode: b.Episode, Openings: b.Openings + 1, Reopenings: b.Reopenings + 1, Rate: b.Rate,
	}
	if b.State == Closed {
		next.Episode, next.Reopenings = now, 0
		if now.Sub(b.Since) >= healthyReset {
			next.Openings = 1
		}
	}
	return next
}

func (b Breaker) close(now time.Time) Breaker {
	return Breaker{Generation: b.Generation + 1, Since: now, Openings: b.Openings}
}

// openTime is how long the latest of b.Openings lasts: OpenFor three times, then times OpenBackoff each; at most what
// keeps probing within ProbeShare of the normal traffic, which is never less than 2 s nor more than OpenMax.
func (b Breaker) openTime(set BreakerPolicy) time.Duration {
	const repeats, leastCap = 2, 2 * time.Second
	most := set.OpenMax
	if b.Rate > 0 {
		n, _ := b.ProbeRound(set)
		// n probes each time are ProbeShare of Rate: t = n / (ProbeShare/1e6 * Rate/1000) seconds.
		t := float64(n) * 1e9 / (float64(set.ProbeShare) * float64(b.Rate))
		most = min(most, max(seconds(t), leastCap))
	}
	return grown(set.OpenFor, set.OpenBackoff, b.Openings-1-repeats, most)
}

// grown is first * factor^n, at most most.
func grown(first time.Duration, factor float64, n int64, most time.Duration) time.Duration {
	return min(seconds(first.Seconds()*math.Pow(factor, float64(max(n, 0)))), most)
}

// spread varies d by +- jitter; draw is from [0, 1).
func spread(d time.Duration, jitter PPM, draw float64) time.Duration {
	return d + time.Duration(float64(d)*float64(jitter)/float64(Whole)*(2*draw-1))
}

// seconds converts without overflow.
func seconds(s float64) time.Duration {
	const most = float64(1 << 62)
	return time.Duration(min(s*float64(time.Second), most))
}

func tripOrReopen(from State) Cause {
	if from == Closed {
		return CauseTrip
	}
	return CauseReopen
}

// share is part of total in ppm, 0 of nothing.
func share(part, total int64) PPM {
	if total <= 0 {
		return 0
	}
	return part * Whole / total
}
