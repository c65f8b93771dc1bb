package policy_test

import (
	"encoding/json"
	"errors"
	"math"
	"math/big"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/retryplane/retryplane/pkg/policy"
	"pgregory.net/rapid"
)

// readVectors reads a file of testdata/vectors into a slice of T.
func readVectors[T any](t *testing.T, name string) []T {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("testdata", "vectors", name))
	if err != nil {
		t.Fatal(err)
	}
	var cases []T
	if err := json.Unmarshal(data, &cases); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	if len(cases) == 0 {
		t.Fatalf("%s: no cases", name)
	}
	return cases
}

func ms(n int64) time.Duration { return time.Duration(n) * time.Millisecond }

func TestBackoffVectors(t *testing.T) {
	t.Parallel()
	type vector struct {
		Name     string
		Strategy string
		Base     int64 `json:"base_ms"`
		Cap      int64 `json:"cap_ms"`
		K        int
		U        float64
		Prev     int64 `json:"prev_ms"`
		Want     int64 `json:"want_ms"`
	}
	for _, v := range readVectors[vector](t, "backoff.json") {
		t.Run(v.Name, func(t *testing.T) {
			t.Parallel()
			jitter, err := policy.ParseJitter(v.Strategy)
			if err != nil {
				t.Fatal(err)
			}
			r := policy.RetryPolicy{Base: ms(v.Base), Cap: ms(v.Cap), Jitter: jitter}
			if got := r.Backoff(v.K, ms(v.Prev), v.U).Round(time.Millisecond); got != ms(v.Want) {
				t.Errorf("Backoff(%d, %v, %v) = %v, want %v", v.K, ms(v.Prev), v.U, got, ms(v.Want))
			}
		})
	}
}

func TestJitterWords(t *testing.T) {
	t.Parallel()
	for j := policy.JitterFull; j <= policy.JitterNone; j++ {
		if got, err := policy.ParseJitter(j.String()); got != j || err != nil {
			t.Errorf("ParseJitter(%q) = %v, %v", j, got, err)
		}
	}
	for _, s := range []string{"", "Full", " full", "random"} {
		var field *policy.FieldError
		if _, err := policy.ParseJitter(s); !errors.As(err, &field) || field.Field != "retry.jitter" {
			t.Errorf("ParseJitter(%q): error %v, want a FieldError of retry.jitter", s, err)
		}
	}
	if got := (policy.JitterNone + 1).String(); got != "full" {
		t.Errorf("unknown jitter reads as %q, want full", got)
	}
}

// anyDuration draws durations of every size and sign, the ends of the range included.
func anyDuration() *rapid.Generator[time.Duration] {
	return rapid.OneOf(
		rapid.Map(rapid.Int64(), func(n int64) time.Duration { return time.Duration(n) }),
		rapid.Map(rapid.Int64Range(0, 600_000), ms),
		rapid.SampledFrom([]time.Duration{0, 1, -1, math.MaxInt64, math.MinInt64, 1 << 53, 1<<53 + 1}),
	)
}

func anyDraw() *rapid.Generator[float64] {
	return rapid.OneOf(
		rapid.Float64(),
		rapid.Float64Range(0, 1),
		rapid.SampledFrom([]float64{0, 1, -1, 2, math.NaN(), math.Inf(1), math.Inf(-1), math.Nextafter(1, 0), math.SmallestNonzeroFloat64}),
	)
}

func anyRetry(t *rapid.T) policy.RetryPolicy {
	return policy.RetryPolicy{
		Attempts:               rapid.IntRange(0, 20).Draw(t, "attempts"),
		Base:                   anyDuration().Draw(t, "base"),
		Cap:                    anyDuration().Draw(t, "cap"),
		Jitter:                 policy.Jitter(rapid.Uint8Range(0, 6).Draw(t, "jitter")),
		RetryAfterCap:          anyDuration().Draw(t, "retry after cap"),
		Retry500:               rapid.Bool().Draw(t, "500"),
		RetryThrottledWrites:   rapid.Bool().Draw(t, "throttled"),
		RetryUnavailableWrites: rapid.Bool().Draw(t, "unavailable"),
	}
}

func TestBackoffStaysBelowCap(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		r := anyRetry(t)
		k, prev, u := rapid.Int().Draw(t, "k"), anyDuration().Draw(t, "prev"), anyDraw().Draw(t, "u")
		limit := max(r.Cap, 0)
		c := r.Ceiling(k)
		if c < 0 || c > limit {
			t.Fatalf("Ceiling(%d) = %d, want within [0, %d]", k, c, limit)
		}
		got := r.Backoff(k, prev, u)
		if got < 0 || got > limit {
			t.Fatalf("Backoff(%d, %d, %v) = %d, want within [0, %d]", k, prev, u, got, limit)
		}
		if r.Jitter != policy.JitterDecorrelated && got > c {
			t.Fatalf("Backoff(%d, %d, %v) = %d, above its ceiling %d", k, prev, u, got, c)
		}
	})
}

// TestCeilingAgainstExactArithmetic holds the shift against numbers that cannot overflow.
func TestCeilingAgainstExactArithmetic(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		r := policy.RetryPolicy{
			Base: time.Duration(rapid.Int64Range(0, math.MaxInt64).Draw(t, "base")) >> rapid.IntRange(0, 63).Draw(t, "small"),
			Cap:  time.Duration(rapid.Int64Range(0, math.MaxInt64).Draw(t, "cap")),
		}
		k := rapid.IntRange(0, 200).Draw(t, "k")
		want := new(big.Int).Lsh(big.NewInt(int64(r.Base)), uint(k))
		if limit := big.NewInt(int64(r.Cap)); want.Cmp(limit) > 0 {
			want = limit
		}
		if got := r.Ceiling(k); want.Cmp(big.NewInt(int64(got))) != 0 {
			t.Fatalf("Ceiling(%d) of base %d, cap %d = %d, want %v", k, r.Base, r.Cap, got, want)
		}
	})
}

// TestBackoffRanges pins both ends of every strategy's range at a ceiling of 1 s.
func TestBackoffRanges(t *testing.T) {
	t.Parallel()
	top := math.Nextafter(1, 0)
	for _, c := range []struct {
		jitter    policy.Jitter
		low, high time.Duration
	}{
		{policy.JitterFull, 0, time.Second},
		{policy.JitterEqual, ms(500), time.Second},
		{policy.JitterDecorrelated, ms(250), ms(1500)}, // base 250 ms, previous wait 500 ms
		{policy.JitterProportional, ms(600), time.Second},
		{policy.JitterNone, time.Second, time.Second},
	} {
		r := policy.RetryPolicy{Base: ms(250), Cap: time.Minute, Jitter: c.jitter}
		if got := r.Backoff(2, ms(500), 0); got != c.low {
			t.Errorf("%v: lowest %v, want %v", c.jitter, got, c.low)
		}
		if got := r.Backoff(2, ms(500), top); got < c.high-time.Microsecond || got > c.high {
			t.Errorf("%v: highest %v, want %v", c.jitter, got, c.high)
		}
		if got, want := r.Backoff(2, ms(500), math.NaN()), c.high; got != want {
			t.Errorf("%v: no number drawn: %v, want the longest wait, %v", c.jitter, got, want)
		}
	}
}

// TestDecorrelatedStartsAtBase: the first wait has no previous one.
func TestDecorrelatedStartsAtBase(t *testing.T) {
	t.Parallel()
	r := policy.RetryPolicy{Base: ms(100), Cap: ms(3000), Jitter: policy.JitterDecorrelated}
	if got, want := r.Backoff(0, 0, 0.5), ms(200); got != want {
		t.Errorf("first wait %v, want %v", got, want)
	}
}
