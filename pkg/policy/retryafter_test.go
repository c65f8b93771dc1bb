package policy_test

import (
	"math"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/retryplane/retryplane/pkg/policy"
	"pgregory.net/rapid"
)

// headerOf builds a header from name, value, name, value...
func headerOf(pairs ...string) http.Header {
	h := http.Header{}
	for i := 0; i+1 < len(pairs); i += 2 {
		h.Add(pairs[i], pairs[i+1])
	}
	return h
}

func TestRetryAfterVectors(t *testing.T) {
	t.Parallel()
	type vector struct {
		Name    string
		Now     time.Time
		Headers [][2]string
		Want    struct {
			Wait    *int64 `json:"wait_ms"`
			Invalid bool
			Absent  bool
		}
	}
	for _, v := range readVectors[vector](t, "retry_after.json") {
		t.Run(v.Name, func(t *testing.T) {
			t.Parallel()
			h := http.Header{}
			for _, line := range v.Headers {
				h.Add(line[0], line[1])
			}
			var want time.Duration
			wantHint := policy.HintValid
			switch {
			case v.Want.Wait != nil:
				want = ms(*v.Want.Wait)
			case v.Want.Invalid:
				wantHint = policy.HintInvalid
			case v.Want.Absent:
				wantHint = policy.HintAbsent
			default:
				t.Fatal("vector wants nothing")
			}
			if got, hint := policy.RetryAfter(h, v.Now); got != want || hint != wantHint {
				t.Errorf("RetryAfter(%v) = %v, %v, want %v, %v", h, got, hint, want, wantHint)
			}
		})
	}
}

func TestRetryAfter(t *testing.T) {
	t.Parallel()
	const forever = time.Duration(math.MaxInt64)
	now := time.Date(2026, 5, 4, 12, 0, 0, 0, time.UTC)
	for _, c := range []struct {
		name string
		h    http.Header
		want time.Duration
		hint policy.Hint
	}{
		{"nothing at all", nil, 0, policy.HintAbsent},
		{"more seconds than fit", headerOf("Retry-After", strings.Repeat("9", 400)), forever, policy.HintValid},
		{"seconds that fit an int64 but not a Duration", headerOf("Retry-After", "9223372037"), forever, policy.HintValid},
		{"the last second that fits, and a fraction", headerOf("Retry-After", "9223372036.9999"), forever, policy.HintValid},
		{"many zeros are one", headerOf("Retry-After", strings.Repeat("0", 400)+"3"), 3 * time.Second, policy.HintValid},
		{"tiny fraction", headerOf("Retry-After", "0.0000000000000001"), ms(1), policy.HintValid},
		{"fraction of zeros", headerOf("Retry-After", "2.000"), 2 * time.Second, policy.HintValid},
		{"fraction rounds up to the next second", headerOf("Retry-After", "1.9999"), 2 * time.Second, policy.HintValid},
		{"no digits after the point", headerOf("Retry-After", "5."), 0, policy.HintInvalid},
		{"no digits before the point", headerOf("Retry-After", ".5"), 0, policy.HintInvalid},
		{"two points", headerOf("Retry-After", "1.2.3"), 0, policy.HintInvalid},
		{"sign in the fraction", headerOf("Retry-After", "1.-5"), 0, policy.HintInvalid},
		{"underscore", headerOf("Retry-After", "1_000"), 0, policy.HintInvalid},
		{"line break is no blank", headerOf("Retry-After", "5\n"), 0, policy.HintInvalid},
		{"zero of two lines", headerOf("Retry-After", "0", "Retry-After", "x"), 0, policy.HintValid},

		{"date, server clock ahead by an hour",
			headerOf("Retry-After", "Mon, 04 May 2026 13:00:30 GMT", "Date", "Mon, 04 May 2026 13:00:00 GMT"), 30 * time.Second, policy.HintValid},
		{"date, server clock behind by an hour",
			headerOf("Retry-After", "Mon, 04 May 2026 11:00:30 GMT", "Date", "Mon, 04 May 2026 11:00:00 GMT"), 30 * time.Second, policy.HintValid},
		{"date, Age 0", headerOf("Retry-After", "Mon, 04 May 2026 13:00:30 GMT", "Date", "Mon, 04 May 2026 13:00:00 GMT", "Age", "0"),
			30 * time.Second, policy.HintValid},
		{"date from a cache: our clock", headerOf("Retry-After", "Mon, 04 May 2026 12:00:30 GMT", "Date", "Mon, 04 May 2026 11:00:00 GMT", "Age", "3600"),
			30 * time.Second, policy.HintValid},
		{"date, unreadable Age: our clock", headerOf("Retry-After", "Mon, 04 May 2026 12:00:30 GMT", "Date", "Mon, 04 May 2026 11:00:00 GMT", "Age", "old"),
			30 * time.Second, policy.HintValid},
		{"date, unreadable Date: our clock", headerOf("Retry-After", "Mon, 04 May 2026 12:00:30 GMT", "Date", "today"), 30 * time.Second, policy.HintValid},
		{"Date does not matter to seconds", headerOf("Retry-After", "30", "Date", "Mon, 04 May 2026 11:00:00 GMT"), 30 * time.Second, policy.HintValid},
		{"date in the far future saturates", headerOf("Retry-After", "Fri, 31 Dec 9999 23:59:59 GMT"), forever, policy.HintValid},
		{"date with the wrong day of the week", headerOf("Retry-After", "Tue, 04 May 2026 12:00:30 GMT"), 0, policy.HintInvalid},
		{"date with a one-digit hour", headerOf("Retry-After", "Mon, 04 May 2026 9:00:30 GMT"), 0, policy.HintInvalid},
		{"date with a fraction", headerOf("Retry-After", "Mon, 04 May 2026 12:00:30.5 GMT"), 0, policy.HintInvalid},
		{"date in lower case", headerOf("Retry-After", "mon, 04 may 2026 12:00:30 gmt"), 0, policy.HintInvalid},
		{"date of no calendar", headerOf("Retry-After", "Sun, 31 Feb 2026 12:00:30 GMT"), 0, policy.HintInvalid},
		{"RFC 850 date with another zone", headerOf("Retry-After", "Monday, 04-May-26 12:00:30 PST"), 0, policy.HintInvalid},
		{"RFC 850 year 49 years ahead", headerOf("Retry-After", "Saturday, 04-May-75 12:00:00 GMT"),
			time.Date(2075, 5, 4, 12, 0, 0, 0, time.UTC).Sub(now), policy.HintValid},
		{"RFC 850 year 51 years ahead is past", headerOf("Retry-After", "Wednesday, 04-May-77 12:00:00 GMT"), 0, policy.HintValid},
		{"RFC 850 leap day of no leap year", headerOf("Retry-After", "Sunday, 29-Feb-26 12:00:00 GMT"), 0, policy.HintInvalid},

		{"milliseconds round up", headerOf("Retry-After-Ms", "1500.2"), ms(1501), policy.HintValid},
		{"milliseconds are no date", headerOf("Retry-After-Ms", "Mon, 04 May 2026 12:00:30 GMT"), 0, policy.HintInvalid},
		{"milliseconds beat the Azure header", headerOf("x-ms-retry-after-ms", "9000", "retry-after-ms", "20"), ms(20), policy.HintValid},
		{"more milliseconds than fit", headerOf("Retry-After-Ms", "9223372036855"), forever, policy.HintValid},
		{"zero seconds beat milliseconds", headerOf("Retry-After", "0", "retry-after-ms", "20"), 0, policy.HintValid},

		{"quota that is left demands nothing", headerOf("RateLimit", `"default";r=50;t=30`), 0, policy.HintAbsent},
		{"quota without r", headerOf("RateLimit", `"default";t=30`), 30 * time.Second, policy.HintValid},
		{"longest of the quotas that are used up", headerOf("RateLimit", `"a";r=0;t=3, "b";r=0;t=9, "c";r=1;t=60`), 9 * time.Second, policy.HintValid},
		{"quota on two lines", headerOf("RateLimit", `"a";r=0;t=3`, "RateLimit", `"b";r=0;t=9`), 9 * time.Second, policy.HintValid},
		{"separators in a quoted name", headerOf("RateLimit", `"a;t=99,\";t=98";r=0; t=3`), 3 * time.Second, policy.HintValid},
		{"quota with an unreadable time", headerOf("RateLimit", `"a";r=0;t=-3`), 0, policy.HintInvalid},
		{"quota without a time", headerOf("RateLimit", `"a";r=0`), 0, policy.HintAbsent},
		{"older draft", headerOf("RateLimit", "limit=100, remaining=0, reset=5"), 0, policy.HintAbsent},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			if got, hint := policy.RetryAfter(c.h, now); got != c.want || hint != c.hint {
				t.Errorf("RetryAfter(%v) = %v, %v, want %v, %v", c.h, got, hint, c.want, c.hint)
			}
		})
	}
}

// TestDatesWithinFiftyYears: the century of a two-digit year follows from now, in every century and in both directions.
func TestDatesWithinFiftyYears(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		now := time.Unix(rapid.Int64Range(0, 8_000_000_000).Draw(t, "now"), 0).UTC()
		at := now.Add(time.Duration(rapid.Int64Range(0, 49*365*86_400).Draw(t, "ahead")) * time.Second)
		h := headerOf("Retry-After", at.Format("Monday, 02-Jan-06 15:04:05 GMT"))
		if got, hint := policy.RetryAfter(h, now); got != at.Sub(now) || hint != policy.HintValid {
			t.Fatalf("RetryAfter(%v) at %v = %v, %v, want %v", h, now, got, hint, at.Sub(now))
		}
	})
}

func TestWait(t *testing.T) {
	t.Parallel()
	r := policy.RetryPolicy{Base: ms(100), Cap: ms(3000), Jitter: policy.JitterNone}
	for _, c := range []struct {
		name  string
		k     int
		after time.Duration
		u     float64
		want  time.Duration
	}{
		{"no demand: backoff", 2, 0, 0.5, ms(400)},
		{"demand is the lower bound", 2, 30 * time.Second, 0, 30 * time.Second},
		{"demand is spread, even without jitter", 2, 30 * time.Second, 0.5, 30*time.Second + ms(200)},
		{"saturates", 20, math.MaxInt64 - 5, 0.9, math.MaxInt64},
		{"negative demand is none", 0, -1, 0, ms(100)},
	} {
		if got := r.Wait(c.k, 0, c.after, c.u); got != c.want {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		r := anyRetry(t)
		k, prev, after, u := rapid.Int().Draw(t, "k"), anyDuration().Draw(t, "prev"), anyDuration().Draw(t, "after"), anyDraw().Draw(t, "u")
		got := r.Wait(k, prev, after, u)
		if low := max(after, 0); got < low || got-low > max(r.Cap, 0) {
			t.Fatalf("Wait(%d, %d, %d, %v) = %d, want within [%d, %d + cap %d]", k, prev, after, u, got, low, low, r.Cap)
		}
	})
}

// FuzzRetryAfter feeds headers from the network. Whatever they hold, the wait is a length of time, unreadable headers
// demand nothing, and what we read as a date net/http reads as the same date.
func FuzzRetryAfter(f *testing.F) {
	f.Add("120", "", "", "", "", int64(1_777_896_000))
	f.Add("0.1291", "1500", "20", `"default";r=0;t=4`, "", int64(1_777_896_000))
	f.Add("Mon, 04 May 2026 12:00:30 GMT", "", "", "", "Mon, 04 May 2026 11:00:00 GMT", int64(1_777_896_000))
	f.Add("Monday, 04-May-26 12:00:30 GMT", "-5", "0x10", `"a\";t=1;r=;t=9.`, "0", int64(-1))
	f.Add("Mon May  4 12:00:30 2026", "5, 10", "1e3", `t=`, "x", int64(4_000_000_000))
	f.Add("99999999999999999999", "9223372036854775807", "9223372036854.9", `;;;,,,"`, "", int64(math.MaxInt64))
	f.Fuzz(func(t *testing.T, after, millis, azure, rateLimit, date string, unix int64) {
		now := time.Unix(unix%(1<<40), 0)
		h := headerOf("Retry-After", after, "Retry-After-Ms", millis, "X-Ms-Retry-After-Ms", azure, "RateLimit", rateLimit, "Date", date)
		wait, hint := policy.RetryAfter(h, now)
		if wait < 0 || hint != policy.HintValid && wait != 0 {
			t.Fatalf("RetryAfter(%v) = %v, %v", h, wait, hint)
		}
		r := policy.Interactive()
		if got := r.Wait(1, 0, wait, 0.5); got < wait || got-wait > r.Cap {
			t.Fatalf("Wait after %v = %v, want at most the cap of %v more", wait, got, r.Cap)
		}

		alone, hint := policy.RetryAfter(headerOf("Retry-After", after), now)
		line := strings.Trim(after, " \t")
		if hint != policy.HintValid || line == "" || line[0] >= '0' && line[0] <= '9' {
			return
		}
		at, err := http.ParseTime(line)
		if err != nil {
			t.Fatalf("%q read as %v, but it is no HTTP date: %v", line, alone, err)
		}
		if strings.Contains(line, "-") { // two-digit year: net/http has another window of years
			return
		}
		if want := max(at.Sub(now), 0); alone != want {
			t.Fatalf("RetryAfter(%q) at %v = %v, want %v", line, now, alone, want)
		}
	})
}
