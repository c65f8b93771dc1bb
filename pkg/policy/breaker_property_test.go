package policy

import (
	"testing"
	"time"

	"pgregory.net/rapid"
)

// TestBreakerProperties steps a breaker through random histories and holds what must be true of every one.
func TestBreakerProperties(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		set := Default().Breaker
		set.OpenFor = time.Duration(rapid.IntRange(100, 5_000).Draw(t, "open_for")) * time.Millisecond
		set.OpenMax = set.OpenFor + time.Duration(rapid.IntRange(0, 20_000).Draw(t, "more"))*time.Millisecond
		set.Probes = int64(rapid.IntRange(1, 8).Draw(t, "probes"))
		set.ProbeSuccesses = int64(rapid.IntRange(1, int(set.Probes)).Draw(t, "successes"))
		b := Breaker{Generation: 1}
		now := epoch
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			now = now.Add(time.Duration(rapid.IntRange(0, 3_000).Draw(t, "ms")) * time.Millisecond)
			in := Input{
				Window: Window{{Index: BucketIndex(now), Success: int64(rapid.IntRange(0, 50).Draw(t, "ok")), Failure: int64(rapid.IntRange(0, 500).Draw(t, "fail"))}},
				Run:    int64(rapid.IntRange(0, 20).Draw(t, "run")),
				Quorum: Quorum{Live: 5, Reported: 5, Failing: int64(rapid.IntRange(0, 5).Draw(t, "failing"))},
				Round:  Round{Good: int64(rapid.IntRange(0, 8).Draw(t, "good")), Bad: int64(rapid.IntRange(0, 8).Draw(t, "bad"))},
				Rate:   int64(rapid.IntRange(0, 2_000_000).Draw(t, "rate")),
				Asked:  rapid.Bool().Draw(t, "asked"),
				Draw:   rapid.Float64Range(0, 0.999).Draw(t, "draw"),
			}
			next, cause := b.Step(now, set, in)
			holds(t, b, next, cause, now, set, in)
			b = next
		}
	})
}

func holds(t *rapid.T, b, next Breaker, cause Cause, now time.Time, set BreakerPolicy, in Input) {
	changed := next.State != b.State
	if changed != (cause != CauseNone) {
		t.Fatalf("%v -> %v with cause %q", b.State, next.State, cause)
	}
	if want := b.Generation; changed && next.Generation != want+1 || !changed && next.Generation != want {
		t.Fatalf("generation %d -> %d, state %v -> %v", b.Generation, next.Generation, b.State, next.State)
	}
	if b.State == Open && next.State == Closed || b.State == Closed && next.State == HalfOpen {
		t.Fatalf("%v -> %v is no arrow of the machine", b.State, next.State)
	}
	if b.State == Open && next.State == Open && next.Until != b.Until {
		t.Fatalf("failures moved the recovery from %v to %v", b.Until, next.Until)
	}
	if b.State == Open && next.State == HalfOpen && now.Before(b.Until) {
		t.Fatal("half-open before its time")
	}
	if changed && next.State == Open {
		d := next.Until.Sub(now)
		if slack := set.OpenMax / 10; d <= 0 || d > set.OpenMax+slack {
			t.Fatalf("open for %v, open_max is %v", d, set.OpenMax)
		}
		if (b.State == Closed || b.Ramping) && !in.Quorum.Met(set) {
			t.Fatal("opened without a quorum")
		}
	}
	if next.State == Closed && (next.Reason != "" || !next.Episode.IsZero()) {
		t.Fatalf("closed with the leftovers of an episode: %+v", next)
	}
	if next.State != Closed && next.Episode.IsZero() {
		t.Fatalf("not closed and in no episode: %+v", next)
	}
	if n, need := next.ProbeRound(set); n < 1 || n > set.Probes || need < 1 || need > n {
		t.Fatalf("a round of %d with %d needed", n, need)
	}
	if a := next.Admit(now, set); a < 0 || a > Whole {
		t.Fatalf("admits %d ppm", a)
	}
}

// TestSpanAgainstNaive holds Window.Span against the definition: the shortest span that holds enough.
func TestSpanAgainstNaive(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		current := BucketIndex(epoch)
		var w Window
		var back int64
		for range rapid.IntRange(0, 40).Draw(t, "buckets") {
			w = append(w, Bucket{Index: current - back, Success: int64(rapid.IntRange(0, 9).Draw(t, "ok")), Failure: int64(rapid.IntRange(0, 9).Draw(t, "fail"))})
			back += int64(rapid.IntRange(1, 4).Draw(t, "gap"))
		}
		need := int64(rapid.IntRange(1, 200).Draw(t, "need"))
		var want Tally
		for length := int64(3); length <= 60; length++ {
			want = Tally{Buckets: length}
			for _, b := range w {
				if b.Index > current-length {
					want.Success += b.Success
					want.Failure += b.Failure
				}
			}
			if want.Success+want.Failure >= need {
				break
			}
		}
		if got := w.Span(epoch, need); got != want {
			t.Fatalf("got %+v, want %+v of %+v", got, want, w)
		}
	})
}

func TestQuorum(t *testing.T) {
	t.Parallel()
	set := Default().Breaker
	for name, c := range map[string]struct {
		q    Quorum
		want bool
	}{
		"nobody":                          {Quorum{}, false},
		"one of ten":                      {Quorum{Live: 10, Reported: 10, Failing: 1}, false},
		"the only one that reported":      {Quorum{Live: 10, Reported: 1, Failing: 1}, false},
		"three of ten":                    {Quorum{Live: 10, Reported: 10, Failing: 3}, false},
		"five of ten":                     {Quorum{Live: 10, Reported: 10, Failing: 5}, true},
		"half less one of 10,000":         {Quorum{Live: 10_000, Reported: 10_000, Failing: 4_999}, false},
		"alone":                           {Quorum{Live: 1, Reported: 1, Failing: 1}, true},
		"one of two":                      {Quorum{Live: 2, Reported: 2, Failing: 1}, false},
		"one of two, the other is silent": {Quorum{Live: 2, Reported: 1, Failing: 1}, false},
		"both of two":                     {Quorum{Live: 2, Reported: 2, Failing: 2}, true},
	} {
		if got := c.q.Met(set); got != c.want {
			t.Errorf("%s: got %v, want %v", name, got, c.want)
		}
	}
}

func TestEffective(t *testing.T) {
	t.Parallel()
	open := Breaker{State: Open, Until: epoch.Add(time.Minute)}
	due := Breaker{State: Open, Until: epoch}
	for name, c := range map[string]struct {
		b      Breaker
		o      Override
		want   State
		grants bool
	}{
		"closed":                    {Breaker{}, Override{}, Closed, true},
		"open":                      {open, Override{}, Open, false},
		"open, its time is over":    {due, Override{}, HalfOpen, false},
		"ramping":                   {Breaker{State: HalfOpen, Ramping: true}, Override{}, HalfOpen, false},
		"forced open":               {Breaker{}, Override{Mode: ModeForceOpen, Expires: epoch.Add(1)}, Open, false},
		"forced closed":             {open, Override{Mode: ModeForceClosed, Expires: epoch.Add(1)}, Closed, true},
		"forced closed, expired":    {open, Override{Mode: ModeForceClosed, Expires: epoch}, Open, false},
		"no retries":                {Breaker{}, Override{Mode: ModeNoRetries, Expires: epoch.Add(1)}, Closed, false},
		"no retries, while it open": {open, Override{Mode: ModeNoRetries, Expires: epoch.Add(1)}, Open, false},
	} {
		if got := Effective(c.b, c.o, epoch); got != c.want {
			t.Errorf("%s: got %v, want %v", name, got, c.want)
		}
		if got := Grants(c.b, c.o, epoch); got != c.grants {
			t.Errorf("%s: grants %v, want %v", name, got, c.grants)
		}
	}
}
