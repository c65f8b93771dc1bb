package sharedbreaker

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/retryplane/retryplane/internal/redistest"
	"github.com/retryplane/retryplane/pkg/policy"
)

func isNotFound(err error) bool { return errors.Is(err, ErrNotFound) }

func equal(t testing.TB, got, want any) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

var maintenance = policy.Override{Mode: policy.ModeForceOpen, Reason: "provider's maintenance, \"bis 12 Uhr\"; <b>é", Actor: "alice"}

func (r *rig) force(t testing.TB, o policy.Override, ttl time.Duration) Standing {
	t.Helper()
	s, err := r.PutOverride(t.Context(), dep, o, ttl, AnyRevision)
	if err != nil {
		t.Fatalf("PutOverride: %v", err)
	}
	return s
}

func TestOverrideOfUnknownDependency(t *testing.T) {
	each(t, func(t *testing.T, r *rig) {
		s := r.force(t, maintenance, time.Hour)
		o := s.Override
		if o.Mode != maintenance.Mode || o.Reason != maintenance.Reason || o.Actor != "alice" ||
			!o.Created.Equal(s.Now) || !o.Expires.Equal(s.Now.Add(time.Hour)) || o.Revision < s.Now.UnixMilli() {
			t.Errorf("override is %+v", o)
		}
		wantState(t, s, policy.Closed, 1)
		read, ok := r.read(t)
		if !ok || read.Override != o || policy.Effective(read.Breaker, read.Override, read.Now) != policy.Open {
			t.Errorf("Read returns %+v", read)
		}
		if seen := r.observe(t, report(Standing{}, 1, 0, "a")); seen.Override != o {
			t.Errorf("Observe returns %+v", seen.Override)
		}
		log := r.log(t)
		if len(log) != 1 || log[0] != s.Transitions[0] || log[0].From != policy.Closed || log[0].To != policy.Open ||
			log[0].Cause != policy.CauseOperator || log[0].Actor != "alice" || log[0].Reason != maintenance.Reason {
			t.Errorf("log is %+v", log)
		}
	})
}

func TestOverrideRevisions(t *testing.T) {
	each(t, func(t *testing.T, r *rig) {
		put := func(expected int64) (Standing, error) {
			return r.PutOverride(t.Context(), dep, maintenance, time.Hour, expected)
		}
		first, err := put(0)
		if err != nil {
			t.Fatal(err)
		}
		for _, wrong := range []int64{0, first.Override.Revision - 1, first.Override.Revision + 1} {
			if _, err := put(wrong); !errors.Is(err, ErrConflict) {
				t.Errorf("expected %d: %v", wrong, err)
			}
			if _, err := r.DeleteOverride(t.Context(), dep, "bob", wrong); !errors.Is(err, ErrConflict) {
				t.Errorf("delete, expected %d: %v", wrong, err)
			}
		}
		second, err := put(first.Override.Revision)
		if err != nil || second.Override.Revision <= first.Override.Revision {
			t.Fatalf("revision %d after %d: %v", second.Override.Revision, first.Override.Revision, err)
		}
		gone, err := r.DeleteOverride(t.Context(), dep, "bob", second.Override.Revision)
		if err != nil || gone.Override != (policy.Override{}) {
			t.Fatalf("after DeleteOverride: %+v, %v", gone.Override, err)
		}
		if _, err := r.DeleteOverride(t.Context(), dep, "bob", AnyRevision); !isNotFound(err) {
			t.Errorf("deleted twice: %v", err)
		}
		third, err := put(0)
		if err != nil || third.Override.Revision <= second.Override.Revision+1 {
			t.Fatalf("revision %d after a deletion after %d: %v", third.Override.Revision, second.Override.Revision, err)
		}
		if got := causes(r.log(t)); got != "operator operator operator operator" {
			t.Errorf("log: %s", got)
		}
	})
}

func TestOverrideAgainstAbsurdInput(t *testing.T) {
	each(t, func(t *testing.T, r *rig) {
		for _, o := range []policy.Override{{}, {Mode: "half_open"}} {
			if _, err := r.PutOverride(t.Context(), dep, o, time.Hour, AnyRevision); err == nil {
				t.Errorf("%+v was accepted", o)
			}
		}
		if _, err := r.PutOverride(t.Context(), dep, maintenance, 0, AnyRevision); err == nil {
			t.Error("no time to live was accepted")
		}
	})
}

// An override outlives the automatic state's times, and what is computed meanwhile applies after it.
func TestForcedBeyondTheOpenTime(t *testing.T) {
	each(t, func(t *testing.T, r *rig) {
		r.tripped(t, r.started(t))
		r.force(t, maintenance, 500*time.Millisecond)
		r.elapse(150 * time.Millisecond)
		made := r.advance(t)
		if len(made) != 1 || made[0].Cause != policy.CauseProbe {
			t.Fatalf("made %+v", made)
		}
		read, _ := r.read(t)
		if got := policy.Effective(read.Breaker, read.Override, read.Now); got != policy.Open {
			t.Errorf("effective state %v, want open", got)
		}
		r.elapse(351 * time.Millisecond)
		made = r.advance(t)
		if len(made) != 1 || made[0].Cause != policy.CauseExpiry || made[0].From != policy.Open ||
			made[0].To != policy.HalfOpen || made[0].Generation != 3 {
			t.Fatalf("made %+v", made)
		}
		if again := r.advance(t); len(again) != 0 {
			t.Errorf("made again: %+v", again)
		}
		read, _ = r.read(t)
		if read.Override != (policy.Override{}) {
			t.Errorf("override is %+v", read.Override)
		}
		if log := r.log(t); causes(log) != "trip operator probe expiry" || log[0] != made[0] {
			t.Errorf("log: %s, %+v", causes(log), log[0])
		}
	})
}

func TestOverrideAfterAnExpiredOne(t *testing.T) {
	each(t, func(t *testing.T, r *rig) {
		first := r.force(t, maintenance, 50*time.Millisecond)
		r.elapse(60 * time.Millisecond)
		if _, err := r.DeleteOverride(t.Context(), dep, "bob", AnyRevision); !isNotFound(err) {
			t.Errorf("an expired override was deleted: %v", err)
		}
		calm := policy.Override{Mode: policy.ModeNoRetries, Reason: "retries hurt", Actor: "bob"}
		second, err := r.PutOverride(t.Context(), dep, calm, time.Hour, 0)
		if err != nil || second.Override.Revision <= first.Override.Revision {
			t.Fatalf("got %+v, %v", second.Override, err)
		}
		r.advance(t)
		log := r.log(t)
		if got := causes(log); got != "operator expiry operator" {
			t.Errorf("log: %s", got)
		}
		if log[0].From != policy.Closed || log[0].To != policy.Closed {
			t.Errorf("no_retries is no state: %+v", log[0])
		}
	})
}

func TestAppliedOverride(t *testing.T) {
	each(t, func(t *testing.T, r *rig) {
		r.started(t)
		s := r.force(t, maintenance, time.Hour)
		r.elapse(1010 * time.Millisecond)
		rep := report(s, 0, 0, "a", "b", "c", "d")
		for i := range 3 {
			rep.Instances[i].OverrideRevision = s.Override.Revision
		}
		s = r.observe(t, rep)
		if s.Instances != 4 || s.Applied != 3 {
			t.Errorf("applied by %d of %d, want 3 of 4", s.Applied, s.Instances)
		}
		read, _ := r.read(t)
		if read.Instances != 4 || read.Applied != 3 {
			t.Errorf("Read: applied by %d of %d, want 3 of 4", read.Applied, read.Instances)
		}
		if s = r.force(t, maintenance, time.Hour); s.Applied != 0 {
			t.Errorf("the next revision is applied by %d", s.Applied)
		}
	})
}

func TestPolicies(t *testing.T) {
	each(t, func(t *testing.T, r *rig) {
		const doc = `{"breaker":{"probes":3},"x":"a,b"}`
		if err := r.DeletePolicy(t.Context(), dep, AnyRevision); !isNotFound(err) {
			t.Errorf("delete nothing: %v", err)
		}
		first, err := r.PutPolicy(t.Context(), dep, doc, 0)
		if err != nil || first.Version == 0 || first.JSON != doc {
			t.Fatalf("got %+v, %v", first, err)
		}
		if _, err := r.PutPolicy(t.Context(), dep, doc, 0); !errors.Is(err, ErrConflict) {
			t.Errorf("put against an old version: %v", err)
		}
		second, err := r.PutPolicy(t.Context(), dep, doc, first.Version)
		if err != nil || second.Version <= first.Version {
			t.Fatalf("got %+v, %v", second, err)
		}
		if read, ok := r.read(t); !ok || read.Policy != second {
			t.Errorf("Read returns %+v", read)
		}
		if s := r.observe(t, report(Standing{}, 0, 0, "a")); s.Policy != second {
			t.Errorf("Observe returns %+v", s.Policy)
		}
		if err := r.DeletePolicy(t.Context(), dep, first.Version); !errors.Is(err, ErrConflict) {
			t.Errorf("delete an old version: %v", err)
		}
		if err := r.DeletePolicy(t.Context(), dep, second.Version); err != nil {
			t.Fatal(err)
		}
		if read, _ := r.read(t); read.Policy != (Record{}) {
			t.Errorf("after the deletion: %+v", read.Policy)
		}
		third, err := r.PutPolicy(t.Context(), dep, doc, 0)
		if err != nil || third.Version <= second.Version+1 {
			t.Errorf("version %d after a deletion after %d: %v", third.Version, second.Version, err)
		}
	})
}

func TestPolicyChangeKeepsTheState(t *testing.T) {
	each(t, func(t *testing.T, r *rig) {
		open := r.tripped(t, r.started(t))
		if _, err := r.PutPolicy(t.Context(), dep, `{}`, AnyRevision); err != nil {
			t.Fatal(err)
		}
		set := quick()
		set.MinAttempts, set.OpenFor, set.OpenMax = 1000, time.Minute, time.Minute
		s := r.observe(t, report(open, 0, 0, "a").with(set))
		if s.Breaker != open.Breaker {
			t.Errorf("%+v became %+v", open.Breaker, s.Breaker)
		}
	})
}

func TestNothingPretendsWithoutRedis(t *testing.T) {
	t.Parallel()
	r := newRig(t, redistest.Real(t))
	r.started(t)
	r.Kill(t)
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	if s, err := r.PutOverride(ctx, dep, maintenance, time.Hour, AnyRevision); err == nil {
		t.Errorf("accepted: %+v", s)
	}
	if _, err := r.Observe(ctx, group, []Report{report(Standing{}, 1, 0, "a")}); err == nil {
		t.Error("observed")
	}
	if err := r.Ping(ctx); err == nil {
		t.Error("pinged")
	}
	r.Restart(t)
	s := r.observe(t, report(Standing{}, 0, 0, "a"))
	if s.Override != (policy.Override{}) {
		t.Errorf("it surfaced later: %+v", s.Override)
	}
}
