package sharedbreaker

import (
	"context"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/retryplane/retryplane/internal/redistest"
	"github.com/retryplane/retryplane/pkg/policy"
)

func TestFlushAll(t *testing.T) {
	each(t, func(t *testing.T, r *rig) {
		open := r.tripped(t, r.started(t))
		r.flush(t)
		if made := r.advance(t); len(made) != 0 {
			t.Errorf("made %+v of an empty store", made)
		}
		s := r.observe(t, report(open, 0, 100, "a", "b", "c", "d"))
		wantState(t, s, policy.Closed, 1)
		if s.Epoch == open.Epoch || s.Epoch == "" {
			t.Errorf("epoch %q after %q", s.Epoch, open.Epoch)
		}
		wantState(t, r.tripped(t, s), policy.Open, 2) // within one exchange with the instances
	})
}

func TestNewEpoch(t *testing.T) {
	each(t, func(t *testing.T, r *rig) {
		open := r.tripped(t, r.started(t))
		forced := r.force(t, maintenance, time.Hour)
		other := r.board(t)
		if _, err := other.Observe(t.Context(), group, []Report{report(open, 0, 0, "a")}); err != nil {
			t.Fatal(err)
		}
		epoch, err := r.NewEpoch(t.Context(), group)
		if err != nil || epoch == open.Epoch {
			t.Fatalf("epoch %q after %q, %v", epoch, open.Epoch, err)
		}
		// The other replica saw the same fault. One new epoch is enough.
		if again, err := other.NewEpoch(t.Context(), group); err != nil || again != epoch {
			t.Errorf("epoch %q, want %q, %v", again, epoch, err)
		}
		read, _ := r.read(t)
		wantState(t, read, policy.Closed, 0) // nothing is known of it yet
		r.elapse(101 * time.Millisecond)
		if made := r.advance(t); len(made) != 0 {
			t.Errorf("made %+v of the old epoch's state", made)
		}
		s := r.observe(t, report(open, 0, 100, "a", "b", "c", "d"))
		wantState(t, s, policy.Closed, 1)
		if s.Epoch != epoch || s.Override != forced.Override {
			t.Errorf("got %+v", s)
		}
		if s, err = r.Reset(t.Context(), dep, "alice"); err != nil {
			t.Error(err)
		}
	})
}

func TestResetAfterNewEpoch(t *testing.T) {
	each(t, func(t *testing.T, r *rig) {
		r.tripped(t, r.started(t))
		if _, err := r.NewEpoch(t.Context(), group); err != nil {
			t.Fatal(err)
		}
		s, err := r.Reset(t.Context(), dep, "alice")
		if err != nil || s.Breaker.State != policy.Closed {
			t.Errorf("got %+v, %v", s, err)
		}
	})
}

func TestClockRunsBackward(t *testing.T) {
	r := embedded(t)
	open := r.tripped(t, r.started(t))
	r.elapse(-900 * time.Millisecond) // within what a failover may bring
	s := r.observe(t, report(open, 0, 0, "a"))
	wantState(t, s, policy.Open, 2)
	r.elapse(-time.Hour)
	s = r.observe(t, report(open, 0, 100, "a"))
	wantState(t, s, policy.Closed, 1)
	if s.Epoch == open.Epoch {
		t.Error("the epoch stayed")
	}
	// What was written under the future's clock is in nobody's way.
	r.elapse(time.Second)
	s = r.observe(t, report(s, 3, 0, "a"))
	if s.Instances != 1 {
		t.Errorf("%d instances, want 1", s.Instances)
	}
	if read, _ := r.read(t); read.Window.Success != 3 {
		t.Errorf("window is %+v", read.Window)
	}
	s = r.observe(t, report(s, 0, 100, "a"))
	wantState(t, s, policy.Open, 2)
	r.elapse(time.Second)
	if made := r.advance(t); len(made) != 1 || made[0].Cause != policy.CauseProbe {
		t.Errorf("made %+v", made)
	}
}

func TestClockJumpsForward(t *testing.T) {
	for _, by := range []string{"Observe", "Advance"} {
		t.Run(by, func(t *testing.T) {
			r := embedded(t)
			open := r.tripped(t, r.started(t))
			r.Elapse(9 * time.Second) // the replica's clock stands still
			s := r.observe(t, report(open, 0, 0, "a"))
			wantState(t, s, policy.Open, 2)
			r.Elapse(time.Hour)
			if by == "Observe" {
				s = r.observe(t, asking(report(open, 0, 0), "a"))
				wantState(t, s, policy.Closed, 0)
				if s.Epoch == open.Epoch {
					t.Error("the epoch stayed")
				}
			} else if made := r.advance(t); len(made) != 0 {
				t.Errorf("made %+v", made)
			}
			s = r.observe(t, report(open, 0, 100, "a", "b", "c", "d"))
			wantState(t, s, policy.Closed, 1)
			if s.Epoch == open.Epoch {
				t.Error("the epoch stayed")
			}
		})
	}
}

// In a bubble both clocks are the bubble's: hours pass at once, and that is no jump.
func TestClocksInABubble(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := miniredis.NewMiniRedis()
		defer m.Close()
		rdb := redis.NewClient(&redis.Options{
			Addr: "127.0.0.1:6379", MaxRetries: -1, // a name would be looked up, outside of the bubble
			Dialer: func(context.Context, string, string) (net.Conn, error) { return m.Dial() },
		})
		defer func() { _ = rdb.Close() }()
		r := &rig{Server: &redistest.Server{Elapse: time.Sleep}, Board: New(rdb), rdb: rdb}
		open := r.tripped(t, r.started(t))
		if read, _ := r.read(t); !read.Now.Equal(time.Now().Truncate(time.Millisecond)) {
			t.Errorf("the store's time is %v", read.Now)
		}
		time.Sleep(2 * time.Hour)
		s := r.observe(t, asking(report(open, 0, 0), "a"))
		wantState(t, s, policy.HalfOpen, 3)
		time.Sleep(2 * time.Hour)
		if made := r.advance(t); len(made) != 0 {
			t.Errorf("made %+v", made)
		}
		if read, _ := r.read(t); read.Epoch != open.Epoch {
			t.Error("a new epoch began")
		}
	})
}
