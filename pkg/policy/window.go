package policy

import "time"

// The rule counters lie in buckets of BucketWidth; the trip rules look back at least MinSpan and at most MaxSpan.
const (
	BucketWidth = 500 * time.Millisecond
	MinSpan     = time.Second
	MaxSpan     = 30 * time.Second
)

// Bucket holds the outcomes of one bucket. Index is the bucket's number on the clock: time since 1970 / BucketWidth.
type Bucket struct {
	Index                  int64
	Success, Failure, Slow int64
}

// Window is the rule counters of one generation, newest bucket first, without duplicates.
type Window []Bucket

// BucketIndex is the bucket that now falls into.
func BucketIndex(now time.Time) int64 {
	return now.UnixMilli() / BucketWidth.Milliseconds()
}

// Span adds up the shortest span of at least MinSpan, at most MaxSpan, that holds minAttempts outcomes. If even
// MaxSpan does not hold them, it adds up MaxSpan.
//
// The bucket that now falls into counts as begun, so MinSpan is that one and the two before it.
func (w Window) Span(now time.Time, minAttempts int64) Tally {
	const least, most = int64(MinSpan/BucketWidth) + 1, int64(MaxSpan / BucketWidth)
	current := BucketIndex(now)
	var t Tally
	for _, b := range w {
		back := current - b.Index
		if back >= most {
			break
		}
		if back >= least && t.Success+t.Failure >= minAttempts {
			break
		}
		t.Success += b.Success
		t.Failure += b.Failure
		t.Slow += b.Slow
		t.Buckets = max(t.Buckets, back+1)
	}
	if t.Success+t.Failure < minAttempts {
		t.Buckets = most
	}
	t.Buckets = max(t.Buckets, least)
	return t
}

// Tally is the outcomes of a span.
type Tally struct {
	Success, Failure, Slow int64
	Buckets                int64 // length of the span in buckets, the current one included
}

// FailureRate is the share of failures among the outcomes, 0 without any.
func (t Tally) FailureRate() PPM { return share(t.Failure, t.Success+t.Failure) }

// Since is the start of the span.
func (t Tally) Since(now time.Time) time.Time {
	return time.UnixMilli((BucketIndex(now) - t.Buckets + 1) * BucketWidth.Milliseconds())
}

// Quorum says how many instances stand behind the counters. The numbers are exact for small fleets and estimates
// from a sample for large ones.
type Quorum struct {
	Live     int64 // instances that reported this dependency within MaxSpan
	Reported int64 // of these, with an attempt's outcome in the span
	Failing  int64 // of these, with at least half of their latest report's attempts failed
}

// Met reports whether enough instances are failing for the breaker of the whole fleet: at least MinFailingInstances
// and at least MinFailingShare of those that reported. With fewer live instances than that, all of them must be
// failing.
func (q Quorum) Met(set BreakerPolicy) bool {
	if q.Failing < 1 {
		return false
	}
	if q.Live < set.MinFailingInstances {
		return q.Failing >= q.Live
	}
	return q.Failing >= set.MinFailingInstances && share(q.Failing, q.Reported) >= set.MinFailingShare
}
