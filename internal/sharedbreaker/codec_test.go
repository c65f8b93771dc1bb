package sharedbreaker

import (
	"math/rand/v2"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/retryplane/retryplane/pkg/policy"
)

func TestBreakerCodec(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		at := func(label string) time.Time {
			ms := rapid.Int64Range(0, 4_000_000_000_000).Draw(t, label)
			if ms == 0 {
				return time.Time{}
			}
			return time.UnixMilli(ms)
		}
		n := rapid.Int64Range(0, 1<<40)
		b := policy.Breaker{
			State: policy.State(rapid.IntRange(0, 2).Draw(t, "state")), Generation: n.Draw(t, "generation"),
			Reason: rapid.SampledFrom([]string{"", policy.ReasonSlow, policy.ReasonProbes}).Draw(t, "reason"),
			Since:  at("since"), Episode: at("episode"), Until: at("until"),
			Openings: n.Draw(t, "openings"), Reopenings: n.Draw(t, "reopenings"), Rate: n.Draw(t, "rate"),
		}
		b.Ramping = b.State == policy.HalfOpen && rapid.Bool().Draw(t, "ramping")
		if got := decodeBreaker("e1", encodeBreaker("e1", b)); got != b {
			t.Fatalf("%+v came back as %+v", b, got)
		}
		if got := decodeBreaker("e2", encodeBreaker("e1", b)); got != (policy.Breaker{}) {
			t.Fatalf("another epoch's breaker is %+v", got)
		}
	})
}

// What stands in Redis may come from a newer release, or from anybody.
func FuzzDecode(f *testing.F) {
	for _, s := range []string{
		"", ",", "e,1,c,1,0,0,0,0,0,", "e,7,o,1,2,3,4,5,6,slow_calls", "1c,9", "1c,3592166400,1,2,3", "1,0,5,{}", "1,1,9,",
		"1796105209691,1c,1,2,3,4,5,6,7,8", "0,1,1,1,e:1c,0", "99999999999999999999,1e400,-1",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		decodeBreaker("e", s)
		decodeBucket("1c", s)
		decodeRun("1c", s)
		decodeDisplay(s)
		if rec, ok := decodeRecord(s); ok {
			rec.override()
		}
		now := time.UnixMilli(1_796_105_209_691)
		quorum([]string{s}, decodeFleet(s), "e:1c", now, now)
		requestRate([]string{s}, time.Time{}, now)
	})
}

// What the script adds up, and how far back it reads for it, is what policy.Window.Span says.
func TestSpanAgainstModel(t *testing.T) {
	r := embedded(t)
	rnd := rand.New(rand.NewPCG(3, 4))
	s := r.started(t)
	buckets := make(map[int64]policy.Bucket)
	for i := range 700 {
		set := withoutRun()
		set.MinAttempts = []int64{1, 5, 20, 100, 10_000}[rnd.IntN(5)]
		success, failure := rnd.Int64N(8), rnd.Int64N(8)
		rep := report(s, success, failure, "a", "b", "c", "d").with(set)
		for j := range rep.Instances {
			rep.Instances[j].Verdict = VerdictHealthy // nobody trips
		}
		s = r.observe(t, rep)
		wantState(t, s, policy.Closed, 1)
		b := buckets[policy.BucketIndex(s.Now)]
		b.Index, b.Success, b.Failure = policy.BucketIndex(s.Now), b.Success+success, b.Failure+failure
		buckets[b.Index] = b
		var w policy.Window
		for at := b.Index; at > b.Index-100; at-- {
			if b, ok := buckets[at]; ok {
				w = append(w, b)
			}
		}
		if got, want := s.FailureRate, w.Span(s.Now, set.MinAttempts).FailureRate(); got != want {
			t.Fatalf("step %d: failure rate %d, want %d", i, got, want)
		}
		switch rnd.IntN(12) {
		case 0:
			r.elapse(time.Duration(rnd.IntN(40)) * time.Second)
		case 1, 2:
			r.elapse(time.Duration(rnd.IntN(3000)) * time.Millisecond)
		default:
			r.elapse(time.Duration(rnd.IntN(300)) * time.Millisecond)
		}
	}
}
