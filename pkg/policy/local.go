package policy

import (
	"math"
	"time"
)

// Local is an instance's own breaker. It runs the instance's attempts through the states of [Breaker], with one probe
// at a time and without a ramp, and it protects the instance while the fleet's breaker cannot know yet: because only
// this instance is sick, or because the control plane is away. The zero value is closed.
type Local struct {
	Breaker Breaker
	Run     int64     // failures since the last success, while closed
	First   time.Time // when that run began

	probeUntil time.Time // half-open: until when the one probe is out; zero = none is
}

const (
	localSpan      = time.Second // a run must last this long: ten failures in a millisecond are one event
	localOpen      = time.Second
	localOpenMax   = 5 * time.Second
	cutOffOpen     = 5 * time.Second // cut off from the control plane there is nobody who would call off the alarm
	cutOffOpenMax  = 15 * time.Second
	localMostInRow = 50
	localChance    = 1e-4
)

// LocalThreshold is the run of failures that opens a local breaker: LocalFailures, and in a brown-out, with the
// fleet's failure rate f known, so many that chance alone gives them with a probability of 1e-4 (ln 1e-4 / ln f), at
// most 50. A fleetFailure of 0 means unknown. The result is 0 when there is no local breaker.
func LocalThreshold(set BreakerPolicy, fleetFailure PPM) int64 {
	if set.LocalFailures <= 0 || fleetFailure <= 0 {
		return max(set.LocalFailures, 0)
	}
	if fleetFailure >= Whole {
		return max(set.LocalFailures, localMostInRow)
	}
	n := math.Ceil(math.Log(localChance) / math.Log(float64(fleetFailure)/float64(Whole)))
	return max(set.LocalFailures, int64(min(n, localMostInRow)))
}

// Fail counts a failed attempt of the closed breaker and reports whether that opened it. threshold is from
// [LocalThreshold]; draw in [0, 1) spreads the open time.
func (l Local) Fail(now time.Time, set BreakerPolicy, threshold int64, cutOff bool, draw float64) (Local, bool) {
	if l.Breaker.State != Closed || threshold <= 0 {
		return l, false
	}
	if l.Run == 0 {
		l.First = now
	}
	l.Run++
	if l.Run < threshold || now.Sub(l.First) < localSpan {
		return l, false
	}
	return l.open(now, set, ReasonConsecutive, cutOff, draw), true
}

// Succeed ends a run of failures.
func (l Local) Succeed() Local {
	if l.Breaker.State == Closed {
		l.Run, l.First = 0, time.Time{}
	}
	return l
}

// Suspend makes a breaker that the fleet held open half-open for this instance alone, which lost the control plane:
// nobody else will probe for it.
func (l Local) Suspend(now time.Time) Local {
	if l.Breaker.State == Closed {
		l.Breaker = Breaker{State: HalfOpen, Generation: l.Breaker.Generation + 1, Reason: ReasonConsecutive, Since: now,
			Episode: now, Openings: 1}
		l.Run, l.First, l.probeUntil = 0, time.Time{}, time.Time{}
	}
	return l
}

// Probe asks for the one trial request; lease is how long it may take. While closed nothing needs probing.
func (l Local) Probe(now time.Time, lease time.Duration) (Local, bool) {
	switch {
	case l.Breaker.State == Open && !now.Before(l.Breaker.Until):
		l.Breaker.State, l.Breaker.Generation, l.Breaker.Since = HalfOpen, l.Breaker.Generation+1, now
	case l.Breaker.State == HalfOpen && !now.Before(l.probeUntil):
	default:
		return l, false
	}
	l.probeUntil = now.Add(lease)
	return l, true
}

// Probed ends the probe. Success closes, failure opens again, anything else only lets the next one go.
func (l Local) Probed(now time.Time, set BreakerPolicy, o Outcome, cutOff bool, draw float64) Local {
	if l.Breaker.State != HalfOpen {
		return l
	}
	l.probeUntil = time.Time{}
	switch o {
	case Success:
		l.Breaker = l.Breaker.close(now)
		l.Run, l.First = 0, time.Time{}
	case Failure:
		return l.open(now, set, ReasonProbes, cutOff, draw)
	}
	return l
}

// Wait is how long calls are still rejected for certain at now; 0 when one may be let through.
func (l Local) Wait(now time.Time) time.Duration {
	switch l.Breaker.State {
	case Open:
		return l.Breaker.Remaining(now)
	case HalfOpen:
		return max(l.probeUntil.Sub(now), 0)
	}
	return 0
}

func (l Local) open(now time.Time, set BreakerPolicy, reason string, cutOff bool, draw float64) Local {
	first, most := localOpen, localOpenMax
	if cutOff {
		first, most = cutOffOpen, cutOffOpenMax
	}
	next := l.Breaker.opened(now, reason, set.HealthyReset)
	d := grown(first, 2, next.Openings-1, most)
	next.Until = now.Add(spread(d, set.OpenJitter, draw))
	return Local{Breaker: next}
}
