package policy

import (
	"math"
	"slices"
	"time"
)

// Allowed is how many retries the budget allows for a number of requests: floor(requests * Ratio / 1,000,000) + Floor.
// The result is exact, or math.MaxInt64 where that would not hold it. Negative requests count as none.
func Allowed(set BudgetPolicy, requests int64) int64 {
	requests = max(requests, 0)
	// The whole millions apart from the rest: neither product exceeds requests or Whole squared.
	allowed := requests/Whole*set.Ratio + requests%Whole*set.Ratio/Whole
	if allowed > math.MaxInt64-set.Floor {
		return math.MaxInt64
	}
	return allowed + set.Floor
}

// Usage is what a budget has seen and what it has left.
type Usage struct {
	Requests  int64 // first attempts over (now - Window, now]
	Granted   int64 // retries granted over (now - Window - GrantTTL, now]
	Debits    int64 // retries sent without a grant, over the same span
	Denied    int64 // retries asked for and not granted, over the same span
	Allowed   int64 // see [Allowed]
	Remaining int64 // Allowed - Granted - Debits; below zero when the debits overdrew
}

// Bounds of the time a draw is told not to ask again. New requests refill the budget too, so it is never long.
const (
	HoldMin = 100 * time.Millisecond
	HoldMax = time.Second
)

// ClockSlack is how far a clock may run backward without losing the budget: until it has caught up, the latest time
// seen counts. From further back it starts over, empty.
const ClockSlack = time.Second

// Budget is the retry budget of one dependency, kept by one party alone: the model of the budget that the fleet
// shares, and what an instance lives on while it is cut off. It grants so many retries that
//
//	granted(now - Window - GrantTTL, now] + debits <= Ratio * requests(now - Window, now] + Floor
//
// holds after each grant. Counts lie in buckets of [BucketWidth]; the span of the grants reaches outward to whole
// buckets and that of the requests inward, so the rounding never grants too much.
//
// The zero value is an empty budget. A Budget is not safe for concurrent use. Counts below zero count as none.
type Budget struct {
	latest  int64          // latest time seen, ms since 1970
	buckets []budgetBucket // oldest first, only those in which something happened
}

// budgetBucket is what happened in one bucket.
type budgetBucket struct {
	index                             int64
	deposits, grants, debits, refused int64
}

// budgetMemory is how many buckets a Budget remembers at most: the longest Window and GrantTTL, rounded outward.
const budgetMemory = int64(2*time.Minute/BucketWidth) + 2

// Deposit counts n first attempts.
func (b *Budget) Deposit(now time.Time, n int64) { b.at(now).deposits += max(n, 0) }

// Debit charges n retries that were sent without a grant, below zero if need be.
func (b *Budget) Debit(now time.Time, n int64) { b.at(now).debits += max(n, 0) }

// Draw grants as many of want retries as remain. If that is not all, hold says how long asking again is pointless:
// until enough grants and debits have aged out for one more, within [HoldMin, HoldMax]; otherwise it is 0.
//
// What has aged out under set is forgotten: a span that the operator lengthens fills up from then on.
func (b *Budget) Draw(now time.Time, set BudgetPolicy, want int64) (granted int64, hold time.Duration) {
	current := b.at(now)
	s := spansOf(b.latest, set)
	left := b.usage(s, set).Remaining
	want = max(want, 0)
	granted = min(want, max(left, 0))
	current.grants += granted
	current.refused += want - granted
	if granted < want {
		hold = b.hold(s, 1+granted-left)
	}
	b.forget(s.grants)
	return granted, hold
}

// Usage tells how the budget stands. It changes nothing.
func (b *Budget) Usage(now time.Time, set BudgetPolicy) Usage {
	ms := now.UnixMilli()
	if b.latest-ms > ClockSlack.Milliseconds() {
		return (&Budget{}).usage(spans{}, set)
	}
	return b.usage(spansOf(max(ms, b.latest), set), set)
}

// spans are the first buckets that count.
type spans struct {
	requests, grants int64
	next             time.Duration // until the oldest bucket of the grants no longer counts; above 0
}

func spansOf(ms int64, set BudgetPolicy) spans {
	width, window := BucketWidth.Milliseconds(), set.Window.Milliseconds()
	start := ms - window - set.GrantTTL.Milliseconds()
	s := spans{requests: bucketOf(ms-window) + 1, grants: bucketOf(start)}
	s.next = time.Duration((s.grants+1)*width-start) * time.Millisecond
	return s
}

// bucketOf is BucketIndex for times before 1970 too, which spans of young clocks reach into.
func bucketOf(ms int64) int64 {
	width := BucketWidth.Milliseconds()
	if ms < 0 {
		return -((width - 1 - ms) / width)
	}
	return ms / width
}

// at returns the bucket that now falls into.
func (b *Budget) at(now time.Time) *budgetBucket {
	ms := now.UnixMilli()
	if b.latest-ms > ClockSlack.Milliseconds() {
		*b = Budget{latest: ms, buckets: b.buckets[:0]}
	}
	b.latest = max(b.latest, ms)
	index := bucketOf(b.latest)
	if n := len(b.buckets); n == 0 || b.buckets[n-1].index < index {
		b.forget(index - budgetMemory)
		b.buckets = append(b.buckets, budgetBucket{index: index})
	}
	return &b.buckets[len(b.buckets)-1]
}

// forget drops the buckets before first.
func (b *Budget) forget(first int64) {
	n := 0
	for n < len(b.buckets) && b.buckets[n].index < first {
		n++
	}
	b.buckets = slices.Delete(b.buckets, 0, n)
}

func (b *Budget) usage(s spans, set BudgetPolicy) Usage {
	var u Usage
	for _, bucket := range b.buckets {
		if bucket.index >= s.requests {
			u.Requests += bucket.deposits
		}
		if bucket.index >= s.grants {
			u.Granted += bucket.grants
			u.Debits += bucket.debits
			u.Denied += bucket.refused
		}
	}
	u.Allowed = Allowed(set, u.Requests)
	u.Remaining = u.Allowed - u.Granted - u.Debits
	return u
}

// hold is the time until need grants and debits have aged out. Requests that age out meanwhile are left aside: new
// ones take their place.
func (b *Budget) hold(s spans, need int64) time.Duration {
	var aged int64
	wait := s.next
	for first := s.grants; wait < HoldMax; first++ {
		for _, bucket := range b.buckets {
			if bucket.index == first {
				aged += bucket.grants + bucket.debits
			}
		}
		if aged >= need {
			return max(wait, HoldMin)
		}
		wait += BucketWidth
	}
	return HoldMax
}

// FloorWindow numbers the windows in which [FloorLottery] is held: time since 1970 / window, by the instance's own
// clock. It is 0 for a window of less than a millisecond.
func FloorWindow(now time.Time, window time.Duration) int64 {
	if window < time.Millisecond {
		return 0
	}
	return now.UnixMilli() / window.Milliseconds()
}

// FloorLottery reports whether a cut-off instance may make one retry out of the floor in the window of now:
// hash(instance, window) mod fleet < floor. Ratios add up over instances, floors do not; the lottery gives all
// instances together floor retries per window on average, without a word between them. fleet is the last number of
// instances that this one was told; 0, never told, wins nothing.
func FloorLottery(instance string, now time.Time, window time.Duration, fleet, floor int64) bool {
	if fleet <= 0 || floor <= 0 {
		return false
	}
	return scatter(instance, uint64(FloorWindow(now, window)))%uint64(fleet) < uint64(floor)
}

// scatter hashes s and n: FNV-1a, then the finaliser of MurmurHash3, because FNV alone leaves the low bits of similar
// inputs alike.
func scatter(s string, n uint64) uint64 {
	const offset, prime = 14695981039346656037, 1099511628211
	h := uint64(offset)
	for i := range len(s) {
		h = (h ^ uint64(s[i])) * prime
	}
	h = (h ^ n) * prime
	h = (h ^ h>>33) * 0xff51afd7ed558ccd
	h = (h ^ h>>33) * 0xc4ceb9fe1a85ec53
	return h ^ h>>33
}
