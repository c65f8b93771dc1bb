package sharedbreaker

import (
	"context"
	"fmt"
	"time"

	"github.com/retryplane/retryplane/pkg/policy"
)

// decide makes every transition that is due on a dependency, and answers asks for probe permits. d is what observe
// told; afterwards it is what holds now. asked says that a breaker whose open time is over may be probed.
//
//	closed --trip--> open --asked, time is over--> probing --went well--> ramping --over--> closed
//	                  ^                               |  \                    |               ^
//	                  +---------round failed----------+   \--short episode----|---------------+
//	                  +---------------------trip rules-------------------------+
//
// Somebody may commit between the look and the commit. Then the commit is lost, and the decision starts over from what
// the winner left.
func (b *Board) decide(ctx context.Context, d *dossier, results []Probe, asks []string, asked bool) error {
	const tries = 8
	s := &d.standing
	forced := s.Override.InForce(s.Now) && s.Override.Mode == policy.ModeForceOpen
	var permits []Permit
	for range tries {
		in := policy.Input{Window: d.window, Run: d.run, Asked: asked && (len(asks) == 0 || !forced), Draw: b.draw()}
		version, current, err := "", true, error(nil)
		switch {
		case s.Breaker.Suspect(s.Now, d.set, d.window, d.run) != "":
			version, current, err = b.evidence(ctx, d, &in)
		case phase(s.Breaker) == phaseProbing:
			results = ofGeneration(results, s.Epoch, s.Breaker.Generation)
			if len(results) > 0 || len(asks) > 0 {
				in.Round, permits, current, err = b.probe(ctx, d, results, asks)
				if current {
					results = nil
				}
			}
		}
		if err != nil {
			return err
		}
		if current {
			next, cause := s.Breaker.Step(s.Now, d.set, in)
			if next == s.Breaker {
				break
			}
			permits = nil // of a round that is over
			if current, err = b.commit(ctx, d, next, cause, version, "", ""); err != nil {
				return err
			}
		}
		if !current {
			if err := b.look(ctx, d); err != nil {
				return err
			}
		}
	}
	if permits == nil {
		permits = d.refuse(asks, forced)
	}
	s.Permits = permits
	return nil
}

// refuse answers asks without a round of probes.
func (d *dossier) refuse(asks []string, forced bool) []Permit {
	if len(asks) == 0 {
		return nil
	}
	const least, most = 50 * time.Millisecond, time.Second
	s := &d.standing
	var hold time.Duration // while calls pass nothing needs asking
	switch {
	case forced:
		hold = min(max(s.Override.Expires.Sub(s.Now), least), most)
	case s.Breaker.State == policy.Open:
		hold = max(s.Breaker.Remaining(s.Now), least)
	case !s.Breaker.Ramping && s.Breaker.State == policy.HalfOpen:
		hold = least
	}
	permits := make([]Permit, len(asks))
	for i, instance := range asks {
		permits[i] = Permit{Instance: instance, Hold: hold}
	}
	return permits
}

// look learns anew where a dependency stands. Transitions that this call committed stay noted.
func (b *Board) look(ctx context.Context, d *dossier) error {
	fresh, err := b.observe(ctx, d.group, []Report{{Name: d.standing.Name, Policy: d.set, ProbeLease: d.lease}}, true)
	if err != nil {
		return err
	}
	made := d.standing.Transitions
	*d = fresh[0]
	d.standing.Transitions = made
	return nil
}

// evidence completes what a decision to open rests on. What it returns is of one moment, and version names it: the
// commit fails if anything was counted since. current is false if the breaker has moved on.
func (b *Board) evidence(ctx context.Context, d *dossier, in *policy.Input) (version string, current bool, err error) {
	s := &d.standing
	k := groupKeys[d.group]
	r := newReply(evidenceScript.Run(ctx, b.rdb,
		[]string{k.epoch, stateKey(s.Name), sampleKey(s.Name), displayKey(s.Name)}, head(s.Epoch, s.Breaker)))
	if r.int() == 0 {
		return "", false, r.wrap("gather evidence")
	}
	now, run, counts, registered := moment(r.text()), r.text(), r.text(), moment(r.text())
	buckets, sample, display := r.texts(), r.texts(), r.texts()
	if r.err != nil {
		return "", false, r.wrap("gather evidence")
	}
	t := tag(s.Breaker)
	run64, n := decodeRun(t, run)
	s.Now, d.run, d.window = now, run64, decodeWindow(t, buckets)
	span := d.window.Span(now, d.set.MinAttempts)
	in.Window, in.Run = d.window, d.run
	in.Quorum = quorum(sample, decodeFleet(counts), s.Epoch+":"+t, now, span.Since(now))
	in.Rate = requestRate(display, registered, now)
	s.FailureRate = span.FailureRate()
	return text(n), true, nil
}

// commit tries to make next the breaker of a dependency. until is when an operator's order is too old, "" for the
// decisions of reports. It reports false if another one than the breaker that was
// decided on stands there by now, or if version is given and rule counters have changed.
func (b *Board) commit(ctx context.Context, d *dossier, next policy.Breaker, cause policy.Cause, version, actor, until string) (bool, error) {
	s := &d.standing
	k := groupKeys[d.group]
	reason := next.Reason
	if cause == policy.CauseProbe {
		reason = "" // the breaker keeps why it left closed; that is not why it is probed
	}
	r := newReply(commitScript.Run(ctx, b.rdb, []string{k.epoch, stateKey(s.Name), k.log, k.due},
		s.Name, head(s.Epoch, s.Breaker), version, encodeBreaker(s.Epoch, next), millis(due(next, d.set)),
		string(cause), s.Breaker.State.String(), next.State.String(), text(next.Generation), reason, actor, until))
	switch won := r.int(); {
	case r.err != nil:
		return false, r.wrap("commit")
	case won == 0:
		return false, nil
	case won == 2:
		return false, errLate
	}
	now, id := moment(r.text()), r.text()
	if r.err != nil {
		return false, r.wrap("commit")
	}
	if cause != policy.CauseNone {
		s.Transitions = append(s.Transitions, Transition{
			ID: id, Dependency: s.Name, From: s.Breaker.State, To: next.State, Generation: next.Generation,
			Reason: reason, Cause: cause, Actor: actor, At: now,
		})
	}
	s.Breaker, s.Now = next, now
	d.window, d.run = nil, 0 // they were the last generation's
	s.Failing, s.FailureRate = 0, 0
	return true, nil
}

// due is when a breaker needs a look though nobody calls; the zero time for never.
func due(b policy.Breaker, set policy.BreakerPolicy) time.Time {
	switch phase(b) {
	case phaseOpen:
		return b.Until
	case phaseRamping:
		return b.Since.Add(time.Duration(len(set.Ramp)) * set.RampStep)
	}
	return time.Time{}
}

func (r *reply) wrap(what string) error {
	if r.err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", what, r.err)
}
