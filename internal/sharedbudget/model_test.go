package sharedbudget

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/retryplane/retryplane/internal/keyspace"
	"github.com/retryplane/retryplane/internal/redistest"
	"github.com/retryplane/retryplane/pkg/policy"
)

// twin is a budget in Redis and the policy's model of it.
type twin struct {
	ledger *Ledger
	name   string
	set    policy.BudgetPolicy
	model  policy.Budget
}

// step draws from both and compares what they say, then what they say without a draw.
func (w *twin) step(ctx context.Context, d Draw) error {
	d.Name, d.Budget = w.name, w.set
	group := keyspace.Group(w.name)
	got, now, err := w.ledger.draw(ctx, group, []Draw{d})
	if err != nil {
		return err
	}
	w.model.Deposit(now, d.Deposits)
	w.model.Debit(now, d.Debits)
	granted, hold := w.model.Draw(now, w.set, d.Want)
	want := []Drawn{{Name: w.name, Granted: granted, Hold: hold, Usage: w.model.Usage(now, w.set)}}
	if diff := cmp.Diff(want, got); diff != "" {
		return fmt.Errorf("%+v (-model +script):\n%s", d, diff)
	}
	return nil
}

func (w *twin) read(ctx context.Context, now time.Time) error {
	got, err := w.ledger.Read(ctx, keyspace.Group(w.name), []Ask{{Name: w.name, Budget: w.set}})
	if err != nil {
		return err
	}
	if diff := cmp.Diff([]policy.Usage{w.model.Usage(now, w.set)}, got); diff != "" {
		return fmt.Errorf("read (-model +script):\n%s", diff)
	}
	return nil
}

// TestScriptIsPolicy runs random operations on the script and on policy.Budget, while time passes and runs backward
// and the operator changes the policy.
func TestScriptIsPolicy(t *testing.T) {
	t.Parallel()
	srv := redistest.Embedded(t)
	l := New(srv.Client(t))
	now := time.Now().Truncate(time.Millisecond)
	run := 0
	rapid.Check(t, func(rt *rapid.T) {
		run++
		w := twin{ledger: l, name: fmt.Sprintf("d%d", run), set: drawPolicy(rt)}
		for i := range rapid.IntRange(1, 40).Draw(rt, "steps") {
			// A gap is shorter than any key lives, or longer than anything counts.
			gap := rapid.OneOf(
				rapid.Int64Range(0, 600), rapid.Int64Range(0, 4_000), rapid.Int64Range(-1_300, 0),
				rapid.SampledFrom([]int64{500, 1_000, 2_000, 130_000, -200_000}),
			).Draw(rt, "ms")
			now = now.Add(time.Duration(gap) * time.Millisecond)
			srv.Embedded.SetTime(now)
			srv.Embedded.FastForward(max(time.Duration(gap)*time.Millisecond, 0))
			if rapid.IntRange(0, 9).Draw(rt, "change") == 0 {
				w.set = drawPolicy(rt)
			}
			d := Draw{
				Deposits: rapid.Int64Range(0, 50).Draw(rt, "deposits"), Debits: rapid.Int64Range(0, 3).Draw(rt, "debits"),
				Want: rapid.Int64Range(0, 20).Draw(rt, "want"),
			}
			if err := w.read(t.Context(), now); err != nil {
				rt.Fatalf("step %d: %v", i, err)
			}
			if err := w.step(t.Context(), d); err != nil {
				rt.Fatalf("step %d: %v", i, err)
			}
		}
	})
}

func drawPolicy(t *rapid.T) policy.BudgetPolicy {
	span := rapid.OneOf(rapid.Int64Range(1_000, 4_000), rapid.Int64Range(1_000, 60_000), rapid.Just[int64](60_000))
	return policy.BudgetPolicy{
		Ratio: rapid.Int64Range(0, policy.Whole).Draw(t, "ratio"), Floor: rapid.Int64Range(0, 20).Draw(t, "floor"),
		Window:   time.Duration(span.Draw(t, "window")) * time.Millisecond,
		GrantTTL: time.Duration(span.Draw(t, "ttl")) * time.Millisecond,
	}
}

// TestScriptIsPolicyOnRedis does the same on a real server, whose time is its own: several budgets in turn, for long
// enough that buckets age out.
func TestScriptIsPolicyOnRedis(t *testing.T) {
	t.Parallel()
	l := New(redistest.Real(t).Client(t))
	random := rand.New(rand.NewPCG(7, 7))
	var twins []*twin
	for i := range 8 {
		twins = append(twins, &twin{ledger: l, name: fmt.Sprintf("d%d", i), set: policy.BudgetPolicy{
			Ratio: random.Int64N(policy.Whole + 1), Floor: random.Int64N(50),
			Window: time.Duration(1_000+random.IntN(300)) * time.Millisecond, GrantTTL: time.Second,
		}})
	}
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(4 * time.Second); time.Now().Before(end); <-tick.C {
		for _, w := range twins {
			if random.IntN(20) == 0 {
				w.set.Window = time.Duration(1_000+random.IntN(3_000)) * time.Millisecond
			}
			d := Draw{Deposits: random.Int64N(50), Debits: random.Int64N(3), Want: random.Int64N(20)}
			if err := w.step(t.Context(), d); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// TestLargeSums: real Redis prints numbers of 15 digits and more with an exponent. Sums stay below that: beyond, the
// budget starts over.
func TestLargeSums(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, srv *redistest.Server) {
		c := srv.Client(t)
		l := New(c)
		d := Draw{Name: "a", Deposits: mostCount, Want: mostCount, Budget: budget(policy.Whole, 0)}
		one(t, l, d)
		now, err := c.Time(t.Context()).Result()
		if err != nil {
			t.Fatal(err)
		}
		const sum = 49_999_999_999_999
		head := fmt.Sprintf("%d,%d,%d,%d,0,0,0,0,0,0", now.UnixMilli(), policy.BucketIndex(now), int64(sum), int64(sum))
		if err := c.HSet(t.Context(), key("a"), "h", head).Err(); err != nil {
			t.Fatal(err)
		}
		if got := one(t, l, d).Usage; got.Requests != sum+mostCount || got.Granted != sum+mostCount {
			t.Errorf("got %+v, want sums of %d", got, int64(sum+mostCount))
		}
		if got := one(t, l, d).Usage; got.Requests != mostCount || got.Granted != mostCount {
			t.Errorf("got %+v, want a budget that started over", got)
		}
	})
}

// FuzzStored writes anything into a budget's fields. Whatever lies there, a draw answers, grants no more than was
// asked for, and leaves a budget that works.
func FuzzStored(f *testing.F) {
	srv := redistest.Embedded(f)
	c := srv.Client(f)
	l := New(c)
	now, err := c.Time(context.Background()).Result()
	if err != nil {
		f.Fatal(err)
	}
	index, ms := policy.BucketIndex(now), now.UnixMilli()
	f.Add(fmt.Sprintf("%d,%d,10,2,0,1,0,0,0,0", ms, index), "", int64(0))
	f.Add(fmt.Sprintf("%d,%d,10,2,0,1,0,0,0,0", ms-9_000, index-30), "5,1,0,0", int64(27))
	f.Add(fmt.Sprintf("%d,%d,10,2,0,1,0,0,0,0", ms-3_000, index-200), "5,1,0", int64(27))
	f.Add(fmt.Sprintf("%d,0,10,2,0,1,0,0,0,0", ms), "", int64(0))
	f.Add(fmt.Sprintf("%d,%d,10,2,0,1,0,0,0,0", ms+900, index), "", int64(0))
	f.Add("99999999999999999999999999,1,1,1,1,1,1,1,1,1", "nan,inf,-1,1e9", int64(1))
	f.Add("", "", int64(-1))
	f.Fuzz(func(t *testing.T, head, sums string, back int64) {
		rdb := c.TxPipeline()
		rdb.Del(t.Context(), key("a"))
		rdb.HSet(t.Context(), key("a"), "h", head, fmt.Sprint(index-back), sums)
		if _, err := rdb.Exec(t.Context()); err != nil {
			t.Fatal(err)
		}
		d := Draw{Name: "a", Deposits: 10, Want: 3, Budget: budget(100_000, 1)}
		for range 2 {
			read(t, l, "a", d.Budget)
			if got := one(t, l, d); got.Granted < 0 || got.Granted > d.Want {
				t.Errorf("granted %d of %d", got.Granted, d.Want)
			}
		}
	})
}
