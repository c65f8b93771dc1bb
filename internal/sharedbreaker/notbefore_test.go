package sharedbreaker

import (
	"testing"
	"time"

	"github.com/retryplane/retryplane/internal/keyspace"
	"github.com/retryplane/retryplane/internal/redistest"
	"github.com/retryplane/retryplane/pkg/policy"
)

// TestNotBefore: the latest demand of a dependency counts, for an hour at most, for all who look; an operator's reset ends
// it, an override does not.
func TestNotBefore(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, srv *redistest.Server) {
		const name = "payments"
		one, two := New(srv.Client(t)), New(srv.Client(t))
		observe := func(b *Board, demand time.Duration) Standing {
			t.Helper()
			s, err := b.Observe(t.Context(), keyspace.Group(name), []Report{{Name: name, Policy: policy.Default().Breaker, NotBefore: demand}})
			if err != nil {
				t.Fatal(err)
			}
			return s[0]
		}
		read := func(b *Board) Standing {
			t.Helper()
			g, err := b.Read(t.Context(), keyspace.Group(name))
			if err != nil || len(g.Standings) != 1 {
				t.Fatalf("%+v, %v", g, err)
			}
			return g.Standings[0]
		}
		if s := observe(one, 0); !s.NotBefore.IsZero() {
			t.Errorf("nobody asked for anything: %v", s.NotBefore)
		}
		first := observe(one, 2*time.Minute)
		if got := first.NotBefore.Sub(first.Now); got != 2*time.Minute {
			t.Errorf("got %v, want 2m", got)
		}
		if s := observe(two, time.Minute); !s.NotBefore.Equal(first.NotBefore) {
			t.Errorf("a lesser demand moved it from %v to %v", first.NotBefore, s.NotBefore)
		}
		if s := observe(two, 24*time.Hour); s.NotBefore.Sub(s.Now) != time.Hour {
			t.Errorf("a demand of a day came to %v, want an hour", s.NotBefore.Sub(s.Now))
		}
		latest := read(one)
		s, err := two.PutOverride(t.Context(), name, policy.Override{Mode: policy.ModeForceClosed, Reason: "a reason", Actor: "alice"}, time.Hour, AnyRevision)
		if err != nil || !s.NotBefore.Equal(latest.NotBefore) || latest.NotBefore.IsZero() {
			t.Errorf("under an override: %v, %v, want %v", s.NotBefore, err, latest.NotBefore)
		}
		if s, err = two.Reset(t.Context(), name, "alice"); err != nil || !s.NotBefore.IsZero() {
			t.Errorf("after a reset: %v, %v", s.NotBefore, err)
		}
		if s := read(one); !s.NotBefore.IsZero() {
			t.Errorf("after a reset, another replica reads %v", s.NotBefore)
		}
	})
}
