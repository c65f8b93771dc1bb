package policy

import (
	"bufio"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

// TestBreakerScripts replays the scripts in testdata/breaker. A line is one step: at 1.5s, then the input, then
// what the breaker looks like afterwards:
//
//	<seconds> [ok=N] [fail=N] [slow=N] [run=N] [failing=N/R/L] [good=N] [bad=N] [rate=N] [asked] -> <state> g<generation> [cause] [until=S] [admit=P]
//
// ok, fail and slow go into the bucket of that moment; the window empties when the generation or the phase changes,
// as the store does it.
func TestBreakerScripts(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("testdata/breaker/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no scripts: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			t.Parallel()
			f, err := os.Open(file)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = f.Close() }()
			s := script{t: t, set: Default().Breaker, breaker: Breaker{Generation: 1}}
			s.set.OpenJitter = 0
			lines := bufio.NewScanner(f)
			for n := 1; lines.Scan(); n++ {
				line, _, _ := strings.Cut(lines.Text(), "#")
				if line = strings.TrimSpace(line); line != "" {
					s.step(n, line)
				}
			}
		})
	}
}

// epoch is when the scripts' clock says 0.
var epoch = time.UnixMilli(1_800_000_000_000)

type script struct {
	t       *testing.T
	set     BreakerPolicy
	breaker Breaker
	window  Window
	run     int64
}

func (s *script) step(n int, line string) {
	s.t.Helper()
	left, want, found := strings.Cut(line, "->")
	if !found {
		s.configure(n, strings.Fields(line))
		return
	}
	words := strings.Fields(left)
	seconds, err := strconv.ParseFloat(words[0], 64)
	if err != nil {
		s.t.Fatalf("line %d: %v", n, err)
	}
	now := epoch.Add(time.Duration(seconds * float64(time.Second)))
	in := Input{Draw: 0.5, Quorum: Quorum{Live: 10, Reported: 10, Failing: 10}}
	b := Bucket{Index: BucketIndex(now)}
	for _, w := range words[1:] {
		key, value, _ := strings.Cut(w, "=")
		switch num, _ := strconv.ParseInt(value, 10, 64); key {
		case "ok":
			b.Success = num
		case "fail":
			b.Failure = num
		case "slow":
			b.Slow = num
		case "good":
			in.Round.Good = num
		case "bad":
			in.Round.Bad = num
		case "rate":
			in.Rate = num * 1000
		case "asked":
			in.Asked = true
		case "failing":
			if _, err := fmt.Sscanf(value, "%d/%d/%d", &in.Quorum.Failing, &in.Quorum.Reported, &in.Quorum.Live); err != nil {
				s.t.Fatalf("line %d: %v", n, err)
			}
		default:
			s.t.Fatalf("line %d: unknown word %q", n, w)
		}
	}
	s.count(b)
	in.Window, in.Run = s.window, s.run
	before := s.breaker
	next, cause := before.Step(now, s.set, in)
	if next.Generation != before.Generation || next.Ramping != before.Ramping {
		s.window, s.run = nil, 0
	}
	s.breaker = next
	if got := s.describe(now, cause, want); got != strings.TrimSpace(want) {
		s.t.Fatalf("line %d: %s\n got %s\nwant %s", n, line, got, strings.TrimSpace(want))
	}
	if cause == CauseNone && next.State != before.State {
		s.t.Fatalf("line %d: the state changed without a cause", n)
	}
	if cause != CauseNone && next.Generation != before.Generation+1 {
		s.t.Fatalf("line %d: generation %d -> %d with cause %s", n, before.Generation, next.Generation, cause)
	}
}

func (s *script) configure(n int, words []string) {
	for _, w := range words {
		key, value, _ := strings.Cut(w, "=")
		num, err := strconv.ParseInt(value, 10, 64)
		if err != nil && value != "" {
			s.t.Fatalf("line %d: %v", n, err)
		}
		switch key {
		case "set":
		case "min_attempts":
			s.set.MinAttempts = num
		case "consecutive_failures":
			s.set.ConsecutiveFailures = num
		case "slow_call_ms":
			s.set.SlowCall = time.Duration(num) * time.Millisecond
		case "slow_rate_ppm":
			s.set.SlowRate = num
		case "failure_rate_ppm":
			s.set.FailureRate = num
		case "ramp_after_ms":
			s.set.RampAfter = time.Duration(num) * time.Millisecond
		default:
			s.t.Fatalf("line %d: unknown setting %q", n, w)
		}
	}
}

func (s *script) count(b Bucket) {
	if b.Success+b.Failure == 0 {
		return
	}
	if len(s.window) > 0 && s.window[0].Index == b.Index {
		s.window[0].Success += b.Success
		s.window[0].Failure += b.Failure
		s.window[0].Slow += b.Slow
	} else {
		s.window = append(Window{b}, s.window...)
	}
	if b.Success > 0 {
		s.run = 0
	} else {
		s.run += b.Failure
	}
}

// describe renders the breaker with the words that want has, so that a script says only what it is about.
func (s *script) describe(now time.Time, cause Cause, want string) string {
	b := s.breaker
	out := []string{b.State.String(), fmt.Sprintf("g%d", b.Generation)}
	if cause != CauseNone {
		out = append(out, string(cause))
	}
	if strings.Contains(want, "reason=") {
		out = append(out, "reason="+b.Reason)
	}
	if strings.Contains(want, "until=") {
		out = append(out, "until="+strconv.FormatFloat(b.Until.Sub(epoch).Seconds(), 'f', -1, 64))
	}
	if strings.Contains(want, "admit=") {
		out = append(out, fmt.Sprintf("admit=%d", b.Admit(now, s.set)))
	}
	return strings.Join(out, " ")
}
