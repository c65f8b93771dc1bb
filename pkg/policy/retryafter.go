package policy

import (
	"math"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// Hint says whether a server told us when to come back.
type Hint uint8

// The hints.
const (
	HintAbsent  Hint = iota // it said nothing
	HintInvalid             // it said something unreadable, which counts as nothing
	HintValid               // it demanded a wait, of 0 or more
)

// String is the hint's word in logs.
func (h Hint) String() string {
	switch h {
	case HintInvalid:
		return "invalid"
	case HintValid:
		return "valid"
	}
	return "absent"
}

// demandHeader is a header that may tell us when to come back. parse gets one line and the time that dates are
// measured against.
type demandHeader struct {
	name  string
	parse func(line string, clock time.Time) (time.Duration, Hint)
}

var demandHeaders = [...]demandHeader{
	{"Retry-After", secondsOrDate},
	{"Retry-After-Ms", milliseconds},
	{"X-Ms-Retry-After-Ms", milliseconds},
	{"RateLimit", rateLimitReset},
}

// RetryAfter is how long the server asks us to stay away, read from the response's headers at now. The wait is never
// negative, and 0 unless the hint is HintValid; a valid 0 demands nothing beyond the backoff.
//
// Read in this order, the first valid one wins: Retry-After (seconds with an optional fraction, or an HTTP date),
// retry-after-ms and x-ms-retry-after-ms (milliseconds), RateLimit (seconds, its parameter t). Of several lines of one
// header the largest valid one counts. Numbers saturate at the longest Duration; fractions round up to milliseconds.
func RetryAfter(h http.Header, now time.Time) (time.Duration, Hint) {
	if len(h) == 0 {
		return 0, HintAbsent
	}
	clock, seen := responseClock(h, now), HintAbsent
	for _, header := range demandHeaders {
		wait, hint := header.largest(h, clock)
		if hint == HintValid {
			return wait, HintValid
		}
		seen = max(seen, hint)
	}
	return 0, seen
}

// Wait is the wait before the k-th retry, counted from 0. With a demand of the server (after > 0) it is after +
// U(0, Ceiling(k)), whatever the policy's jitter: the demand is a lower bound, and everybody who was told "30" must
// not come back together. Without one it is [RetryPolicy.Backoff] of k, prev and u.
//
// The result is never negative, at least after, and at most after + Cap; it saturates at the longest Duration.
func (r RetryPolicy) Wait(k int, prev, after time.Duration, u float64) time.Duration {
	if after <= 0 {
		return r.Backoff(k, prev, u)
	}
	return saturatingSum(after, portion(r.Ceiling(k), u))
}

// largest reads every line of the header: the largest valid value counts, and one valid line is enough.
func (d demandHeader) largest(h http.Header, clock time.Time) (time.Duration, Hint) {
	var wait time.Duration
	seen := HintAbsent
	for _, line := range h.Values(d.name) {
		w, hint := d.parse(trimBlanks(line), clock)
		if hint == HintValid {
			wait = max(wait, w)
		}
		seen = max(seen, hint)
	}
	return wait, seen
}

func secondsOrDate(line string, clock time.Time) (time.Duration, Hint) {
	if wait, hint := decimal(line, time.Second); hint == HintValid {
		return wait, hint
	}
	at, ok := httpDate(line, clock)
	if !ok {
		return 0, HintInvalid
	}
	return max(at.Sub(clock), 0), HintValid
}

func milliseconds(line string, _ time.Time) (time.Duration, Hint) {
	return decimal(line, time.Millisecond)
}

// rateLimitReset reads a line such as `"default";r=0;t=4`: a list of quotas, each with what remains of it and the
// seconds until it is renewed. Servers send it with every answer, so a quota that is not used up demands nothing: a
// 503 with r=50;t=30 is no reason to wait half a minute.
func rateLimitReset(line string, _ time.Time) (time.Duration, Hint) {
	var wait time.Duration
	seen := HintAbsent
	for _, quota := range splitField(line, ',') {
		var reset time.Duration
		hint, exhausted := HintAbsent, true
		for _, param := range splitField(quota, ';') {
			key, value, _ := strings.Cut(trimBlanks(param), "=")
			switch key {
			case "r":
				left, h := decimal(value, time.Second)
				exhausted = h != HintValid || left == 0
			case "t":
				reset, hint = decimal(value, time.Second)
			}
		}
		if !exhausted {
			continue
		}
		wait = max(wait, reset)
		seen = max(seen, hint)
	}
	return wait, seen
}

// decimal reads digits, optionally followed by a point and more digits, as a number of units (a second or a
// millisecond). No sign, no exponent, no other base: "-5", "1e3" and "0x10" are not lengths of time.
func decimal(s string, unit time.Duration) (time.Duration, Hint) {
	whole, fraction, point := strings.Cut(s, ".")
	if !onlyDigits(whole) || point && !onlyDigits(fraction) {
		return 0, HintInvalid
	}
	n, err := strconv.ParseInt(whole, 10, 64)
	if err != nil || n > math.MaxInt64/int64(unit) { // digits alone fail only by being too many
		return math.MaxInt64, HintValid
	}
	var part, up time.Duration
	place := unit / 10
	for _, c := range fraction {
		digit := time.Duration(c - '0')
		switch {
		case place >= time.Millisecond:
			part += digit * place //nolint:durationcheck // a digit is a number
		case digit > 0:
			up = time.Millisecond
		}
		place /= 10
	}
	return saturatingSum(time.Duration(n)*unit, part+up), HintValid
}

func onlyDigits(s string) bool {
	for i := range len(s) {
		if s[i] < '0' || s[i] > '9' {
			return false
		}
	}
	return s != ""
}

// responseClock is the time that dates in h are measured against: the server's own Date, so that its clock may be
// wrong, unless the response lay in a cache meanwhile (Age) or has no Date; then ours.
func responseClock(h http.Header, now time.Time) time.Time {
	if age := trimBlanks(h.Get("Age")); age != "" {
		// An unreadable Age is no proof that the response is fresh.
		if d, hint := decimal(age, time.Second); hint != HintValid || d > 0 {
			return now
		}
	}
	if date, ok := httpDate(trimBlanks(h.Get("Date")), now); ok {
		return date
	}
	return now
}

const rfc850Date = "Monday, 02-Jan-06 15:04:05 GMT"

// httpDate reads the three date formats of RFC 9110, section 5.6.7, and nothing near them: time.Parse alone takes
// one-digit hours, fractions and any day of the week, so a date counts only if it reads the same when written again.
func httpDate(s string, now time.Time) (time.Time, bool) {
	for _, layout := range [...]string{"Mon, 02 Jan 2006 15:04:05 GMT", rfc850Date, time.ANSIC} {
		t, err := time.Parse(layout, s)
		if err != nil {
			continue
		}
		if layout == rfc850Date {
			t = nearestCentury(t, now)
		}
		return t, t.Format(layout) == s
	}
	return time.Time{}, false
}

// nearestCentury moves a date whose year had two digits to within 50 years of now (RFC 9110: more than 50 years ahead
// means the past).
func nearestCentury(t, now time.Time) time.Time {
	in := func(year int) time.Time {
		return time.Date(year, t.Month(), t.Day(), t.Hour(), t.Minute(), t.Second(), 0, time.UTC)
	}
	year := now.UTC().Year()
	year += t.Year()%100 - year%100
	switch {
	case in(year).After(now.AddDate(50, 0, 0)):
		year -= 100
	case !in(year).After(now.AddDate(-50, 0, 0)):
		year += 100
	}
	return in(year)
}

// splitField splits a structured field (RFC 8941) at sep, but not inside quoted strings.
func splitField(s string, sep byte) []string {
	var parts []string
	start, quoted := 0, false
	for i := 0; i < len(s); i++ {
		switch {
		case quoted && s[i] == '\\':
			i++
		case s[i] == '"':
			quoted = !quoted
		case !quoted && s[i] == sep:
			parts = append(parts, s[start:i])
			start = i + 1
		}
	}
	return append(parts, s[start:])
}

// trimBlanks removes what HTTP calls optional white space.
func trimBlanks(s string) string { return strings.Trim(s, " \t") }
