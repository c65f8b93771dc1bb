package policy

import (
	"encoding/json"
	"fmt"
	"math"
	"math/big"
	"os"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestBudgetVectors(t *testing.T) {
	t.Parallel()
	raw, err := os.ReadFile("testdata/vectors/budget.json")
	if err != nil {
		t.Fatal(err)
	}
	var vectors []struct {
		Requests int64 `json:"requests"`
		Ratio    int64 `json:"ratio_ppm"`
		Floor    int64 `json:"floor"`
		Want     int64 `json:"want_allowed"`
	}
	if err := json.Unmarshal(raw, &vectors); err != nil || len(vectors) == 0 {
		t.Fatalf("%d vectors: %v", len(vectors), err)
	}
	for _, v := range vectors {
		set := Default().Budget
		set.Ratio, set.Floor = v.Ratio, v.Floor
		if got := Allowed(set, v.Requests); got != v.Want {
			t.Errorf("%+v: got %d", v, got)
		}
		var b Budget
		b.Deposit(epoch, v.Requests)
		if got, _ := b.Draw(epoch, set, math.MaxInt32); got != v.Want {
			t.Errorf("%+v: drew %d", v, got)
		}
	}
}

func TestAllowedIsExact(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		set := BudgetPolicy{Ratio: rapid.Int64Range(0, Whole).Draw(t, "ratio"), Floor: rapid.Int64Range(0, 10_000).Draw(t, "floor")}
		requests := rapid.OneOf(rapid.Int64(), rapid.Just[int64](math.MaxInt64)).Draw(t, "requests")
		want := new(big.Int).Mul(big.NewInt(max(requests, 0)), big.NewInt(set.Ratio))
		want.Add(want.Div(want, big.NewInt(Whole)), big.NewInt(set.Floor))
		if most := big.NewInt(math.MaxInt64); want.Cmp(most) > 0 {
			want = most
		}
		if got := Allowed(set, requests); want.Cmp(big.NewInt(got)) != 0 {
			t.Fatalf("got %d, want %s", got, want)
		}
	})
}

// event is what happened to a budget at one time.
type event struct {
	at                       time.Time
	deposits, grants, debits int64
}

func charges(e event) int64  { return e.grants + e.debits }
func deposits(e event) int64 { return e.deposits }

// sum adds up over (until - back, until].
func sum(events []event, until time.Time, back time.Duration, of func(event) int64) (n int64) {
	for _, e := range events {
		if e.at.After(until.Add(-back)) && !e.at.After(until) {
			n += of(e)
		}
	}
	return n
}

func drawBudgetPolicy(t *rapid.T) BudgetPolicy {
	return BudgetPolicy{
		Ratio: rapid.Int64Range(0, Whole).Draw(t, "ratio"), Floor: rapid.Int64Range(0, 20).Draw(t, "floor"),
		Window:   time.Duration(rapid.IntRange(1_000, 60_000).Draw(t, "window")) * time.Millisecond,
		GrantTTL: time.Duration(rapid.IntRange(1_000, 60_000).Draw(t, "ttl")) * time.Millisecond,
	}
}

// TestBudgetAgainstHistory holds the buckets against the exact history: no grant breaks the bound over the exact
// spans, and nothing is refused that the rounding to whole buckets does not explain.
func TestBudgetAgainstHistory(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		set := drawBudgetPolicy(t)
		long := set.Window + set.GrantTTL
		var b Budget
		var history []event
		now := epoch
		for range rapid.IntRange(1, 80).Draw(t, "steps") {
			now = now.Add(time.Duration(rapid.IntRange(0, 5_000_000).Draw(t, "us")) * time.Microsecond)
			e := event{at: now, deposits: rapid.Int64Range(0, 50).Draw(t, "deposits"), debits: rapid.Int64Range(0, 3).Draw(t, "debits")}
			b.Deposit(now, e.deposits)
			b.Debit(now, e.debits)
			want := rapid.Int64Range(0, 20).Draw(t, "want")
			granted, hold := b.Draw(now, set, want)
			e.grants = granted
			history = append(history, e)
			allowed := Allowed(set, sum(history, now, set.Window, deposits))
			if charged := sum(history, now, long, charges); granted > 0 && charged > allowed {
				t.Fatalf("granted %d: %d charged, %d allowed", granted, charged, allowed)
			}
			if granted == want {
				if hold != 0 {
					t.Fatalf("hold %v with everything granted", hold)
				}
				continue
			}
			const rounding = BucketWidth + time.Millisecond
			charged, allowed := sum(history, now, long+rounding, charges), Allowed(set, sum(history, now, set.Window-rounding, deposits))
			if charged < allowed {
				t.Fatalf("refused %d although at most %d of at least %d were charged", want-granted, charged, allowed)
			}
			if hold < HoldMin || hold > HoldMax {
				t.Fatalf("hold %v", hold)
			}
		}
	})
}

// TestBudgetBoundsWhatIsSent lets instances do with their grants what they like: spend them at any time while they
// live, or die with them. Whatever they do, for every t
//
//	retries(t - W, t] - ungranted(t - W, t] <= ratio * max over u in (t - W - L, t] of requests(u - W - d, u] + floor
//
// where d is how late a request is reported at most.
func TestBudgetBoundsWhatIsSent(t *testing.T) {
	t.Parallel()
	const late = 3 * time.Second
	rapid.Check(t, func(t *rapid.T) {
		set := BudgetPolicy{
			Ratio: rapid.Int64Range(0, Whole).Draw(t, "ratio"), Floor: rapid.Int64Range(0, 5).Draw(t, "floor"),
			Window:   time.Duration(rapid.IntRange(1_000, 6_000).Draw(t, "window")) * time.Millisecond,
			GrantTTL: time.Duration(rapid.IntRange(1_000, 4_000).Draw(t, "ttl")) * time.Millisecond,
		}
		millis := func(most time.Duration, label string) time.Duration {
			return time.Duration(rapid.Int64Range(0, most.Milliseconds()).Draw(t, label)) * time.Millisecond
		}
		var b Budget
		var requests, retries []event
		now := epoch
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			now = now.Add(millis(1_500*time.Millisecond, "pause"))
			n := rapid.Int64Range(0, 20).Draw(t, "requests")
			requests = append(requests, event{at: now.Add(-millis(late-time.Millisecond, "late")), deposits: n})
			b.Deposit(now, n)
			ungranted := rapid.Int64Range(0, 2).Draw(t, "ungranted") // these are not in the bound, and charged on top
			b.Debit(now, ungranted)
			granted, _ := b.Draw(now, set, rapid.Int64Range(0, 20).Draw(t, "want"))
			for range granted {
				if rapid.IntRange(0, 9).Draw(t, "lost") > 0 {
					retries = append(retries, event{at: now.Add(millis(set.GrantTTL-time.Millisecond, "wait")), grants: 1})
				}
			}
		}
		for _, r := range retries { // the left side is largest where a retry was sent
			sent := sum(retries, r.at, set.Window, charges)
			best := int64(0)
			for _, q := range requests {
				// requests(u - W - d, u] is largest where a request is the last in it, or the span is.
				for _, u := range []time.Time{q.at, r.at, r.at.Add(time.Millisecond - set.Window - set.GrantTTL)} {
					if u.After(r.at.Add(-set.Window-set.GrantTTL)) && !u.After(r.at) {
						best = max(best, sum(requests, u, set.Window+late, deposits))
					}
				}
			}
			if most := Allowed(set, best); sent > most {
				t.Fatalf("%d retries in a window, at most %d may be", sent, most)
			}
		}
	})
}

// TestBudgetThroughAnOutage: a good day earns no credit for the outage, and after it retries are back at once.
func TestBudgetThroughAnOutage(t *testing.T) {
	t.Parallel()
	set := Default().Budget
	var b Budget
	b.Deposit(epoch, 1_000_000)
	now := epoch.Add(set.Window + BucketWidth)
	if got, _ := b.Draw(now, set, 1_000); got != set.Floor {
		t.Errorf("granted %d of yesterday's credit, want the floor of %d", got, set.Floor)
	}
	now = now.Add(set.Window + set.GrantTTL + BucketWidth)
	b.Deposit(now, 100)
	if got, _ := b.Draw(now, set, 1_000); got != 10+set.Floor {
		t.Errorf("granted %d after the outage, want %d", got, 10+set.Floor)
	}
}

// TestBudgetHold: whoever waits for as long as told gets something, if what holds it back ages out within HoldMax.
func TestBudgetHold(t *testing.T) {
	t.Parallel()
	set := BudgetPolicy{Floor: 3, Window: time.Second, GrantTTL: time.Second}
	long := set.Window + set.GrantTTL
	for _, c := range []struct {
		debits int64
		after  time.Duration // since the floor was used up
		want   time.Duration
	}{
		{0, 0, HoldMax},
		{0, long - HoldMax - BucketWidth, HoldMax},
		{0, long - BucketWidth, BucketWidth + BucketWidth},
		{0, long, BucketWidth},
		{0, long + 300*time.Millisecond, 200 * time.Millisecond},
		{0, long + 450*time.Millisecond, HoldMin}, // 50 ms would do
		{1, long + 300*time.Millisecond, 200 * time.Millisecond},
		{4, long + 300*time.Millisecond, HoldMax}, // the debits at the second draw overdraw by themselves
	} {
		t.Run(fmt.Sprintf("%d debits, %v", c.debits, c.after), func(t *testing.T) {
			t.Parallel()
			var b Budget
			if got, hold := b.Draw(epoch, set, 3); got != 3 || hold != 0 {
				t.Fatalf("granted %d, hold %v", got, hold)
			}
			now := epoch.Add(c.after)
			b.Debit(now, c.debits)
			if got, hold := b.Draw(now, set, 1); got != 0 || hold != c.want {
				t.Fatalf("granted %d, hold %v, want 0, %v", got, hold, c.want)
			}
			if c.want < HoldMax {
				if got, _ := b.Draw(now.Add(c.want), set, 1); got != 1 {
					t.Error("granted nothing after the hold")
				}
			}
		})
	}
}

// TestBudgetClockBackward: small steps back stand still; larger ones start over, empty.
func TestBudgetClockBackward(t *testing.T) {
	t.Parallel()
	set := Default().Budget
	var b Budget
	b.Deposit(epoch, 1000)
	if got, _ := b.Draw(epoch, set, 50); got != 50 {
		t.Fatalf("granted %d", got)
	}
	if got := b.Usage(epoch.Add(-time.Second), set).Remaining; got != 60 {
		t.Errorf("a second back: %d remain, want 60", got)
	}
	if got := b.Usage(epoch.Add(-2*time.Second), set); got != (Usage{Allowed: set.Floor, Remaining: set.Floor}) {
		t.Errorf("two seconds back: %+v", got)
	}
	if got, _ := b.Draw(epoch.Add(-2*time.Second), set, 50); got != set.Floor {
		t.Errorf("two seconds back: granted %d, want the floor of %d", got, set.Floor)
	}
}

// TestBudgetMemory: a budget that is used for ever does not grow for ever, also when nobody draws from it.
func TestBudgetMemory(t *testing.T) {
	t.Parallel()
	var b Budget
	for i := range 10_000 {
		b.Deposit(epoch.Add(time.Duration(i)*BucketWidth), 1)
	}
	if got := int64(cap(b.buckets)); got > 2*budgetMemory {
		t.Errorf("room for %d buckets, want about %d", got, budgetMemory)
	}
	set := BudgetPolicy{Ratio: Whole, Window: time.Minute, GrantTTL: time.Minute}
	if got := b.Usage(epoch.Add(9_999*BucketWidth), set).Requests; got != 120 {
		t.Errorf("%d requests in a minute, want 120", got)
	}
}

// TestFloorLottery: in each window about floor of the fleet's instances win, and not always the same ones.
func TestFloorLottery(t *testing.T) {
	t.Parallel()
	const floor, windows, window = 10, 50, 10 * time.Second
	for _, fleet := range []int64{10, 100, 1_024, 5_000} {
		total, winners := 0, map[int64]bool{}
		for w := range windows {
			now := epoch.Add(time.Duration(w) * window)
			won := 0
			for i := range fleet {
				if FloorLottery(fmt.Sprintf("i-%d", i), now, window, fleet, floor) {
					won++
					winners[i] = true
				}
			}
			if most := floor + 4*math.Sqrt(floor); float64(won) > most {
				t.Errorf("fleet of %d: %d won in one window, more than %.0f", fleet, won, most)
			}
			total += won
		}
		if mean := float64(total) / windows; math.Abs(mean-floor) > 0.15*floor {
			t.Errorf("fleet of %d: %.1f won per window, want about %d", fleet, mean, floor)
		}
		if fleet > 100 && len(winners) < windows*floor/2 {
			t.Errorf("fleet of %d: only %d different winners", fleet, len(winners))
		}
	}
	for _, c := range []struct {
		fleet, floor int64
		want         bool
	}{{0, 10, false}, {-1, 10, false}, {10, 0, false}, {10, -1, false}, {1, 1, true}, {5, 10, true}} {
		if got := FloorLottery("i-1", epoch, window, c.fleet, c.floor); got != c.want {
			t.Errorf("fleet of %d, floor %d: got %v", c.fleet, c.floor, got)
		}
	}
	if FloorLottery("i-1", epoch, 0, 1, 1) != true { // no window, no panic
		t.Error("a fleet of one lost")
	}
}

func BenchmarkBudgetDraw(b *testing.B) {
	set := Default().Budget
	var budget Budget
	now := epoch
	b.ReportAllocs()
	for b.Loop() {
		now = now.Add(37 * time.Millisecond)
		budget.Deposit(now, 3)
		budget.Draw(now, set, 1)
	}
}
