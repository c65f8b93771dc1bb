package policy

import (
	"math"
	"time"
)

// Jitter says how a backoff is spread below its ceiling, so that clients that failed together do not come back
// together. The formulas are those of "Exponential Backoff And Jitter" (AWS Architecture Blog, 2015), except
// JitterProportional.
type Jitter uint8

// With c the ceiling of the wait, U(a, b) a uniform draw:
const (
	JitterFull         Jitter = iota // U(0, c); the default
	JitterEqual                      // c/2 + U(0, c/2)
	JitterDecorrelated               // min(cap, U(base, 3 * previous wait)); does not look at c
	JitterProportional               // U(0.6 c, c): +-25 % around 0.8 c, so that nothing piles up on the cap
	JitterNone                       // c
)

var jitterNames = [...]string{
	JitterFull:         "full",
	JitterEqual:        "equal",
	JitterDecorrelated: "decorrelated",
	JitterProportional: "proportional",
	JitterNone:         "none",
}

// String is the jitter's word in JSON and configuration. An unknown value reads as what it acts as, "full".
func (j Jitter) String() string {
	if int(j) < len(jitterNames) {
		return jitterNames[j]
	}
	return jitterNames[JitterFull]
}

// ParseJitter reads what String writes, and nothing else. The error is a [*FieldError].
func ParseJitter(s string) (Jitter, error) {
	for j, name := range jitterNames {
		if s == name {
			return Jitter(j), nil
		}
	}
	return JitterFull, &FieldError{Field: "retry.jitter", Limit: "one of full, equal, decorrelated, proportional, none"}
}

// Ceiling is the longest backoff before the k-th retry, counted from 0: min(Cap, Base * 2^k). It lies in [0, Cap] for
// every k and every policy; a negative k counts as 0, a negative Base or Cap as 0.
func (r RetryPolicy) Ceiling(k int) time.Duration {
	if r.Base <= 0 || r.Cap <= 0 {
		return 0
	}
	k = max(k, 0)
	// The cap is shifted down, not the base up: that cannot overflow, and a shift by 64 or more is 0 in Go.
	if r.Base > r.Cap>>k {
		return r.Cap
	}
	return r.Base << k
}

// Backoff is the wait before the k-th retry, counted from 0, when the server demanded none. prev is the wait before
// this one (0 = there was none); only JitterDecorrelated looks at it. u is a uniform draw from [0, 1); what lies
// outside is clamped, and NaN counts as 1, the longest wait.
//
// The result lies in [0, Cap] for every input.
func (r RetryPolicy) Backoff(k int, prev time.Duration, u float64) time.Duration {
	c := r.Ceiling(k)
	switch r.Jitter {
	case JitterEqual:
		half := c / 2
		return half + portion(c-half, u)
	case JitterDecorrelated:
		return r.decorrelated(prev, u)
	case JitterProportional:
		width := portion(c, 0.4)
		return c - width + portion(width, u)
	case JitterNone:
		return c
	}
	return portion(c, u)
}

func (r RetryPolicy) decorrelated(prev time.Duration, u float64) time.Duration {
	if r.Cap <= 0 {
		return 0
	}
	base := max(r.Base, 0)
	prev = max(prev, base)
	high := time.Duration(math.MaxInt64)
	if prev <= high/3 {
		high = 3 * prev
	}
	return min(r.Cap, base+portion(high-base, u))
}

// portion is the share u of d, in [0, d]; d is not negative.
func portion(d time.Duration, u float64) time.Duration {
	// Written so that NaN ends here too. The comparison is on the product, because float64(d) can round up
	// beyond what an int64 holds.
	p := float64(d) * u
	if !(p < float64(d)) {
		return d
	}
	return time.Duration(max(p, 0))
}

// saturatingSum is a+b, at most the longest Duration; neither is negative.
func saturatingSum(a, b time.Duration) time.Duration {
	if a > math.MaxInt64-b {
		return math.MaxInt64
	}
	return a + b
}
