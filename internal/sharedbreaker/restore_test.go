package sharedbreaker

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/retryplane/retryplane/pkg/policy"
)

func (r *rig) saved(t testing.TB) []Saved {
	t.Helper()
	g, err := r.Read(t.Context(), group)
	if err != nil {
		t.Fatal(err)
	}
	slices.SortFunc(g.Saved, func(a, b Saved) int { return strings.Compare(a.Kind+a.Name, b.Kind+b.Name) })
	return g.Saved
}

func (r *rig) flush(t testing.TB) {
	t.Helper()
	if err := r.rdb.FlushAll(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
}

func (r *rig) restore(t testing.TB, saved []Saved) {
	t.Helper()
	if err := r.Restore(t.Context(), group, saved); err != nil {
		t.Fatalf("Restore: %v", err)
	}
}

func TestRestore(t *testing.T) {
	each(t, func(t *testing.T, r *rig) {
		r.force(t, maintenance, time.Hour)
		if _, err := r.PutPolicy(t.Context(), dep, `{"a":1}`, 0); err != nil {
			t.Fatal(err)
		}
		if _, err := r.PutPolicy(t.Context(), "gone", `{}`, 0); err != nil {
			t.Fatal(err)
		}
		before, _ := r.read(t)
		saved := r.saved(t)
		r.flush(t)
		if g, err := r.Read(t.Context(), group); err != nil || g.Epoch != "" || len(g.Standings) != 0 {
			t.Fatalf("an empty store is read as %+v, %v", g, err)
		}
		for range 2 { // every replica does
			r.restore(t, saved)
			equal(t, r.saved(t), saved)
		}
		after, ok := r.read(t)
		if !ok || after.Override != before.Override || after.Policy != before.Policy {
			t.Errorf("got %+v, want %+v", after, before)
		}
		if after.Epoch == before.Epoch || after.Epoch == "" {
			t.Errorf("epoch %q after %q", after.Epoch, before.Epoch)
		}
		if log := r.log(t); len(log) != 0 {
			t.Errorf("restoring is no decision, but the log holds %+v", log)
		}
	})
}

// One replica was cut off while an operator deleted the override, and does not know. Then the store is emptied.
func TestDeletedStaysDeleted(t *testing.T) {
	for _, first := range []string{"informed", "cut off"} {
		t.Run(first, func(t *testing.T) {
			each(t, func(t *testing.T, r *rig) {
				r.force(t, maintenance, time.Hour)
				cutOff := r.saved(t)
				if _, err := r.DeleteOverride(t.Context(), dep, "bob", AnyRevision); err != nil {
					t.Fatal(err)
				}
				informed := r.saved(t)
				if len(informed) != 1 || !informed[0].Deleted || informed[0].Revision <= cutOff[0].Revision ||
					informed[0].Until.IsZero() {
					t.Fatalf("the tombstone is %+v", informed)
				}
				r.flush(t)
				order := [][]Saved{informed, cutOff, informed}
				if first == "cut off" {
					order = [][]Saved{cutOff, informed, cutOff}
				}
				for _, saved := range order {
					r.restore(t, saved)
				}
				if s := r.observe(t, report(Standing{}, 0, 0, "a")); s.Override != (policy.Override{}) {
					t.Errorf("it is back: %+v", s.Override)
				}
				equal(t, r.saved(t), informed)
			})
		})
	}
}

func TestExpiredIsNotRestored(t *testing.T) {
	each(t, func(t *testing.T, r *rig) {
		r.force(t, maintenance, 50*time.Millisecond)
		saved := r.saved(t)
		r.flush(t)
		r.elapse(60 * time.Millisecond)
		r.restore(t, saved)
		if got := r.saved(t); len(got) != 0 {
			t.Errorf("restored %+v", got)
		}
	})
}

// An override that came back must still end, and be deletable.
func TestRestoredOverrideExpires(t *testing.T) {
	each(t, func(t *testing.T, r *rig) {
		r.force(t, maintenance, 500*time.Millisecond)
		saved := r.saved(t)
		r.flush(t)
		r.restore(t, saved)
		if _, err := r.DeleteOverride(t.Context(), dep, "bob", saved[0].Revision-1); !errors.Is(err, ErrConflict) {
			t.Errorf("delete another revision: %v", err)
		}
		r.elapse(501 * time.Millisecond)
		made := r.advance(t)
		if len(made) != 1 || made[0].Cause != policy.CauseExpiry || made[0].Reason != maintenance.Reason {
			t.Errorf("made %+v", made)
		}
	})
}

func TestTombstonesGoAfterAWeek(t *testing.T) {
	r := embedded(t)
	r.force(t, maintenance, time.Hour)
	if _, err := r.DeleteOverride(t.Context(), dep, "bob", AnyRevision); err != nil {
		t.Fatal(err)
	}
	if _, err := r.PutPolicy(t.Context(), dep, `{}`, 0); err != nil {
		t.Fatal(err)
	}
	if err := r.DeletePolicy(t.Context(), dep, AnyRevision); err != nil {
		t.Fatal(err)
	}
	for range 6 {
		r.elapse(24 * time.Hour)
		r.advance(t)
	}
	if got := r.saved(t); len(got) != 2 {
		t.Fatalf("after six days there are %+v", got)
	}
	r.elapse(25 * time.Hour)
	r.advance(t)
	if got := r.saved(t); len(got) != 0 {
		t.Errorf("after a week there are %+v", got)
	}
}

func TestForget(t *testing.T) {
	each(t, func(t *testing.T, r *rig) {
		if err := r.Forget(t.Context(), dep); !isNotFound(err) {
			t.Errorf("unknown: %v", err)
		}
		s := r.tripped(t, r.started(t))
		if _, err := r.PutPolicy(t.Context(), dep, `{}`, 0); err != nil {
			t.Fatal(err)
		}
		r.force(t, maintenance, time.Hour)
		if err := r.Forget(t.Context(), dep); !errors.Is(err, ErrInForce) {
			t.Errorf("with an override: %v", err)
		}
		if _, err := r.DeleteOverride(t.Context(), dep, "bob", AnyRevision); err != nil {
			t.Fatal(err)
		}
		if err := r.Forget(t.Context(), dep); err != nil {
			t.Fatal(err)
		}
		if got, ok := r.read(t); ok {
			t.Errorf("still there: %+v", got)
		}
		if got := causes(r.log(t)); got != "trip operator operator" {
			t.Errorf("log: %s", got)
		}
		if err := r.Forget(t.Context(), dep); !isNotFound(err) {
			t.Errorf("twice: %v", err)
		}
		// It comes back as a new one. A lower generation of the same epoch would be taken for older news.
		back := r.observe(t, report(s, 0, 100, "a", "b", "c", "d"))
		wantState(t, back, policy.Closed, 3)
		if back.Policy != (Record{}) || back.Epoch != s.Epoch {
			t.Errorf("got %+v", back)
		}
	})
}

func TestForgottenAfterADay(t *testing.T) {
	r := embedded(t)
	r.tripped(t, r.started(t))
	if _, err := r.PutPolicy(t.Context(), dep, `{}`, 0); err != nil {
		t.Fatal(err)
	}
	r.force(t, maintenance, 48*time.Hour)
	for range 47 {
		r.elapse(time.Hour)
		r.advance(t)
	}
	s, ok := r.read(t)
	if !ok {
		t.Fatal("forgotten though it has an override")
	}
	wantState(t, s, policy.HalfOpen, 3)
	r.elapse(time.Hour)
	r.advance(t)
	if _, ok := r.read(t); ok {
		t.Error("not forgotten")
	}
	back := r.observe(t, report(Standing{}, 0, 0, "a"))
	wantState(t, back, policy.Closed, 4)
	if back.Policy.JSON != `{}` {
		t.Error("its policy was forgotten")
	}
}

// An idle dependency leaves nothing behind but what people decided, even if no replica runs to tidy up.
func TestIdleKeysExpire(t *testing.T) {
	r := embedded(t)
	half := r.probing(t, r.tripped(t, r.started(t)), "a", "b")
	r.observe(t, result(half, granted(half)[0], policy.Success))
	if _, err := r.PutPolicy(t.Context(), dep, `{}`, 0); err != nil {
		t.Fatal(err)
	}
	for range 2 * 24 {
		r.elapse(time.Hour)
	}
	for _, k := range r.Embedded.Keys() {
		if !strings.HasSuffix(k, ":pol") && !strings.HasSuffix(k, ":log") && !strings.HasSuffix(k, ":epoch") {
			t.Errorf("after two days without a report there is %q", k)
		}
	}
	r.elapse(31 * 24 * time.Hour)
	if keys := r.Embedded.Keys(); len(keys) != 1 || !strings.HasSuffix(keys[0], ":pol") {
		t.Errorf("after a month there are %q, want the policy alone", keys)
	}
}
