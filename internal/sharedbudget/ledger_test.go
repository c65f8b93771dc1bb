package sharedbudget

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/retryplane/retryplane/internal/keyspace"
	"github.com/retryplane/retryplane/internal/redistest"
	"github.com/retryplane/retryplane/pkg/policy"
)

// one draws from one budget.
func one(t testing.TB, l *Ledger, d Draw) Drawn {
	t.Helper()
	out, err := l.Draw(t.Context(), keyspace.Group(d.Name), []Draw{d})
	if err != nil {
		t.Fatal(err)
	}
	return out[0]
}

func read(t testing.TB, l *Ledger, name string, set policy.BudgetPolicy) policy.Usage {
	t.Helper()
	out, err := l.Read(t.Context(), keyspace.Group(name), []Ask{{Name: name, Budget: set}})
	if err != nil {
		t.Fatal(err)
	}
	return out[0]
}

func budget(ratio, floor int64) policy.BudgetPolicy {
	b := policy.Default().Budget
	b.Ratio, b.Floor = ratio, floor
	return b
}

// brief is the shortest budget there is, for servers whose clock cannot be turned.
func brief(ratio, floor int64) policy.BudgetPolicy {
	return policy.BudgetPolicy{Ratio: ratio, Floor: floor, Window: time.Second, GrantTTL: time.Second}
}

// names returns n dependencies of one group.
func names(group, n int) []string {
	var out []string
	for i := 0; len(out) < n; i++ {
		if name := fmt.Sprintf("d%d", i); keyspace.Group(name) == group {
			out = append(out, name)
		}
	}
	return out
}

func TestLedger(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, srv *redistest.Server) {
		l := New(srv.Client(t))
		for _, test := range []struct {
			name string
			set  policy.BudgetPolicy
			run  func(t *testing.T, d Draw)
		}{
			{"a ratio without a floor", budget(600_000, 0), func(t *testing.T, d Draw) {
				d.Deposits, d.Want = 10, 100
				if got := one(t, l, d).Granted; got != 6 {
					t.Errorf("granted %d, want 6", got)
				}
			}},
			{"a request pays for its own retry", budget(policy.Whole, 0), func(t *testing.T, d Draw) {
				d.Deposits, d.Want = 1, 1
				if got := one(t, l, d).Granted; got != 1 {
					t.Errorf("granted %d, want 1", got)
				}
			}},
			{"all requests fail together", budget(100_000, 0), func(t *testing.T, d Draw) {
				d.Deposits, d.Want = 100, 100
				if got := one(t, l, d).Granted; got != 10 {
					t.Errorf("granted %d, want 10 for 100 requests", got)
				}
			}},
			{"a denied draw costs nothing", budget(100_000, 0), func(t *testing.T, d Draw) {
				d.Deposits, d.Want = 5, 3
				if got := one(t, l, d); got.Granted != 0 || got.Hold < policy.HoldMin || got.Hold > policy.HoldMax {
					t.Errorf("got %+v, want nothing and a hold", got)
				}
				d.Deposits = 15
				got := one(t, l, d)
				want := policy.Usage{Requests: 20, Granted: 2, Denied: 4, Allowed: 2}
				if got.Granted != 2 || got.Usage != want {
					t.Errorf("got %+v, want 2 granted and %+v", got, want)
				}
			}},
			{"the floor is there when the ratio is used up", budget(100_000, 5), func(t *testing.T, d Draw) {
				d.Deposits, d.Want = 100, 10
				if got := one(t, l, d).Granted; got != 10 {
					t.Fatalf("granted %d, want 10", got)
				}
				d.Deposits = 0
				if got := one(t, l, d); got.Granted != 5 || got.Hold == 0 {
					t.Errorf("got %+v, want the floor of 5 and a hold", got)
				}
			}},
			{"debits overdraw", budget(100_000, 10), func(t *testing.T, d Draw) {
				d.Debits, d.Want = 25, 1
				if got := one(t, l, d); got.Granted != 0 || got.Usage.Remaining != -15 {
					t.Errorf("got %+v, want nothing and -15 left", got)
				}
			}},
			{"the operator changes the ratio", budget(100_000, 0), func(t *testing.T, d Draw) {
				d.Deposits = 100
				one(t, l, d)
				d.Deposits, d.Want, d.Budget.Ratio = 0, 100, 500_000
				if got := one(t, l, d).Granted; got != 50 {
					t.Errorf("granted %d, want 50", got)
				}
				d.Budget.Ratio = 0
				if got := one(t, l, d); got.Granted != 0 || got.Usage.Remaining != -50 {
					t.Errorf("got %+v, want nothing and -50 left", got)
				}
			}},
			{"counts out of bounds", budget(policy.Whole, 0), func(t *testing.T, d Draw) {
				d.Deposits, d.Debits, d.Want = -5, -5, -5
				if got := one(t, l, d); got != (Drawn{Name: d.Name}) {
					t.Errorf("got %+v, want nothing", got)
				}
				d.Deposits, d.Debits, d.Want = 1<<62, 0, 1<<62
				if got := one(t, l, d).Granted; got != mostCount {
					t.Errorf("granted %d, want %d", got, int64(mostCount))
				}
			}},
			{"a read changes nothing", budget(100_000, 10), func(t *testing.T, d Draw) {
				if got := read(t, l, d.Name, d.Budget); got != (policy.Usage{Allowed: 10, Remaining: 10}) {
					t.Errorf("got %+v of an unused budget", got)
				}
				d.Deposits, d.Debits, d.Want = 50, 1, 20
				want := one(t, l, d).Usage
				rdb := srv.Client(t)
				before, err := rdb.HGetAll(t.Context(), key(d.Name)).Result()
				if err != nil {
					t.Fatal(err)
				}
				srv.Elapse(10 * time.Millisecond)
				if got := read(t, l, d.Name, d.Budget); got != want {
					t.Errorf("got %+v, want %+v", got, want)
				}
				after, err := rdb.HGetAll(t.Context(), key(d.Name)).Result()
				if diff := cmp.Diff(before, after); err != nil || diff != "" {
					t.Errorf("%v (-before +after):\n%s", err, diff)
				}
			}},
			{"forgotten", budget(0, 3), func(t *testing.T, d Draw) {
				d.Want = 3
				one(t, l, d)
				for range 2 {
					if err := l.Forget(t.Context(), d.Name); err != nil {
						t.Fatal(err)
					}
				}
				if got := one(t, l, d).Granted; got != 3 {
					t.Errorf("granted %d, want 3 again", got)
				}
			}},
			{"credit goes with the window, charges with the grants", brief(policy.Whole, 0), func(t *testing.T, d Draw) {
				d.Deposits, d.Want = 100_000, 3
				one(t, l, d) // a good day
				srv.Elapse(1600 * time.Millisecond)
				d.Deposits, d.Want = 0, 1
				if got := one(t, l, d); got.Granted != 0 || got.Usage.Requests != 0 || got.Usage.Granted != 3 {
					t.Errorf("in the outage: %+v, want nothing granted, 3 still charged", got)
				}
				srv.Elapse(time.Second)
				d.Deposits, d.Want = 5, 5
				if got := one(t, l, d).Granted; got != 5 {
					t.Errorf("after the outage: granted %d, want 5", got)
				}
			}},
			{"asking again after the hold", brief(0, 2), func(t *testing.T, d Draw) {
				d.Want = 3
				if got := one(t, l, d); got.Granted != 2 || got.Hold != policy.HoldMax {
					t.Fatalf("got %+v, want 2 and the longest hold: nothing ages out for 2 s", got)
				}
				srv.Elapse(1800 * time.Millisecond)
				got := one(t, l, d)
				if got.Granted != 0 || got.Hold == 0 {
					t.Fatalf("got %+v, want nothing and a hold", got)
				}
				srv.Elapse(got.Hold)
				if got := one(t, l, d).Granted; got != 2 {
					t.Errorf("granted %d after the hold, want 2", got)
				}
			}},
		} {
			t.Run(test.name, func(t *testing.T) {
				test.run(t, Draw{Name: strings.ReplaceAll(test.name, " ", "-"), Budget: test.set})
			})
		}
	})
}

// TestManyInstancesShareOneFloor: 10,000 failing instances are not 10,000 floors.
func TestManyInstancesShareOneFloor(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, srv *redistest.Server) {
		const replicas, each = 4, 100
		var mu sync.Mutex
		var total int64
		var wg sync.WaitGroup
		for range replicas {
			l := New(srv.Client(t))
			wg.Go(func() {
				for range each {
					out, err := l.Draw(t.Context(), keyspace.Group("a"), []Draw{{Name: "a", Want: 25, Budget: budget(0, 100)}})
					if err != nil {
						t.Error(err)
						return
					}
					mu.Lock()
					total += out[0].Granted
					mu.Unlock()
				}
			})
		}
		wg.Wait()
		if total != 100 {
			t.Errorf("granted %d in all, want 100", total)
		}
	})
}

func TestDrawOfAGroup(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, srv *redistest.Server) {
		l := New(srv.Client(t))
		var draws []Draw
		var asks []Ask
		for i, name := range names(5, 300) { // three calls
			draws = append(draws, Draw{Name: name, Want: int64(i), Budget: budget(0, 100)})
			asks = append(asks, Ask{Name: name, Budget: budget(0, 100)})
		}
		out, err := l.Draw(t.Context(), 5, draws)
		if err != nil {
			t.Fatal(err)
		}
		usages, err := l.Read(t.Context(), 5, asks)
		if err != nil {
			t.Fatal(err)
		}
		for i, d := range out {
			if d.Name != draws[i].Name || d.Granted != min(int64(i), 100) || d.Usage != usages[i] {
				t.Fatalf("%d: got %+v and %+v", i, d, usages[i])
			}
		}

		twice, err := l.Draw(t.Context(), keyspace.Group("b"), []Draw{
			{Name: "b", Want: 2, Budget: budget(0, 3)}, {Name: "b", Want: 2, Budget: budget(0, 3)},
		})
		if err != nil || twice[0].Granted != 2 || twice[1].Granted != 1 {
			t.Errorf("the same one twice: %+v, %v", twice, err)
		}
		if _, err := l.Draw(t.Context(), (keyspace.Group("b")+1)%keyspace.Groups, []Draw{{Name: "b"}}); err == nil {
			t.Error("a dependency of another group was drawn from")
		}
		if out, err := l.Draw(t.Context(), 5, nil); err != nil || len(out) != 0 {
			t.Errorf("no draws: %v, %v", out, err)
		}
	})
}

// TestFlushed: scripts that are gone are loaded again unnoticed; a memory that is gone costs one more budget, in which
// the requests are missing too.
func TestFlushed(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, srv *redistest.Server) {
		c := srv.Client(t)
		l := New(c)
		d := Draw{Name: "a", Deposits: 1000, Want: 2, Budget: budget(100_000, 3)}
		one(t, l, d)
		if err := c.ScriptFlush(t.Context()).Err(); err != nil {
			t.Fatal(err)
		}
		if got := one(t, l, d).Usage; got.Requests != 2000 || got.Granted != 4 {
			t.Errorf("after SCRIPT FLUSH: %+v, want 2000 requests and 4 granted", got)
		}
		if err := c.ScriptFlush(t.Context()).Err(); err != nil {
			t.Fatal(err)
		}
		if got := read(t, l, "a", d.Budget); got.Requests != 2000 {
			t.Errorf("read after SCRIPT FLUSH: %+v", got)
		}
		if err := c.FlushAll(t.Context()).Err(); err != nil {
			t.Fatal(err)
		}
		d.Deposits, d.Want = 0, 9
		if got := one(t, l, d).Granted; got != 3 {
			t.Errorf("after FLUSHALL: granted %d, want the floor of 3", got)
		}
	})
}

// TestNothingStays: a budget keeps no more buckets than it looks at, and is gone soon after the last draw.
func TestNothingStays(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, srv *redistest.Server) {
		c := srv.Client(t)
		l := New(c)
		d := Draw{Name: "a", Deposits: 1, Want: 1, Budget: brief(0, 1)}
		rounds := 4
		if srv.Embedded != nil {
			rounds = 1000
		}
		for range rounds {
			one(t, l, d)
			srv.Elapse(900 * time.Millisecond)
		}
		most := int64((d.Budget.Window+d.Budget.GrantTTL)/policy.BucketWidth) + 2
		if n, err := c.HLen(t.Context(), key("a")).Result(); err != nil || n > most {
			t.Errorf("%d fields, want at most %d: %v", n, most, err)
		}
		ttl, err := c.PTTL(t.Context(), key("a")).Result()
		if err != nil || ttl < d.Budget.Window+d.Budget.GrantTTL || ttl > 10*time.Second {
			t.Errorf("lives for %v: %v", ttl, err)
		}
		if srv.Embedded != nil {
			srv.Elapse(ttl)
			if keys := srv.Embedded.Keys(); len(keys) != 0 {
				t.Errorf("left behind: %v", keys)
			}
		}
	})
}

// TestClockBackward: a small step back does not give the window again; after a large one the budget does not wait for
// the clock to catch up, and starts over.
func TestClockBackward(t *testing.T) {
	t.Parallel()
	srv := redistest.Embedded(t)
	l := New(srv.Client(t))
	d := Draw{Name: "a", Deposits: 1000, Want: 105, Budget: budget(100_000, 5)}
	one(t, l, d)
	d.Deposits = 0
	srv.Elapse(-time.Second)
	if got := one(t, l, d).Granted; got != 0 {
		t.Errorf("a second back: granted %d, want 0", got)
	}
	if got := read(t, l, "a", d.Budget); got.Requests != 1000 || got.Granted != 105 {
		t.Errorf("a second back: read %+v", got)
	}
	srv.Elapse(-time.Millisecond)
	if got := read(t, l, "a", d.Budget); got.Requests != 0 || got.Remaining != 5 {
		t.Errorf("more than a second back: read %+v", got)
	}
	if got := one(t, l, d).Granted; got != 5 {
		t.Errorf("more than a second back: granted %d, want the floor of 5", got)
	}
}
