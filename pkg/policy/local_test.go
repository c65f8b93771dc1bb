package policy

import (
	"testing"
	"time"
)

func TestLocalThreshold(t *testing.T) {
	t.Parallel()
	set := Default().Breaker
	off := set
	off.LocalFailures = 0
	for _, c := range []struct {
		set   BreakerPolicy
		fleet PPM
		want  int64
	}{
		{set, 0, 5},          // unknown
		{set, 10_000, 5},     // 1 %: two in a row are chance enough, the policy says five
		{set, 500_000, 14},   // ln 1e-4 / ln 0.5 = 13.3
		{set, 800_000, 42},   // 41.3
		{set, 990_000, 50},   // 916, capped
		{set, 1_000_000, 50}, // everything fails
		{off, 500_000, 0},    // no local breaker
	} {
		if got := LocalThreshold(c.set, c.fleet); got != c.want {
			t.Errorf("fleet at %d ppm: got %d, want %d", c.fleet, got, c.want)
		}
	}
}

func TestLocalLifecycle(t *testing.T) {
	t.Parallel()
	set := Default().Breaker
	set.OpenJitter = 0
	now := epoch
	var l Local
	opened := false
	for range 20 { // twenty at the same moment are one event
		if l, opened = l.Fail(now, set, 5, false, 0); opened {
			t.Fatal("opened on failures of one moment")
		}
	}
	l = l.Succeed()
	for range 4 {
		l, _ = l.Fail(now, set, 5, false, 0)
	}
	now = now.Add(time.Second)
	if l, opened = l.Fail(now, set, 5, false, 0); !opened {
		t.Fatal("five in a row over a second did not open")
	}
	for i, want := range []time.Duration{time.Second, 2 * time.Second, 4 * time.Second, 5 * time.Second, 5 * time.Second} {
		if got := l.Wait(now); got != want {
			t.Fatalf("opening %d: waits %v, want %v", i, got, want)
		}
		if _, ok := l.Probe(now.Add(want-1), time.Second); ok {
			t.Fatalf("opening %d: a probe before its time", i)
		}
		now = now.Add(want)
		var ok bool
		if l, ok = l.Probe(now, time.Second); !ok {
			t.Fatalf("opening %d: no probe in time", i)
		}
		if _, again := l.Probe(now, time.Second); again {
			t.Fatalf("opening %d: a second probe", i)
		}
		if i == 2 { // cancelled: the next one may go at once
			l = l.Probed(now, set, Ignored, false, 0)
			if l, ok = l.Probe(now, time.Second); !ok {
				t.Fatal("the permit of an ignored probe did not come back")
			}
		}
		if i == 3 { // lost: the next one may go after the lease
			now = now.Add(time.Second)
			if l, ok = l.Probe(now, time.Second); !ok {
				t.Fatal("no probe after the lease of a lost one")
			}
		}
		l = l.Probed(now, set, Failure, false, 0)
	}
	now = now.Add(5 * time.Second)
	l, _ = l.Probe(now, time.Second)
	if l = l.Probed(now, set, Success, false, 0); l.Breaker.State != Closed || l.Run != 0 {
		t.Fatalf("after a good probe: %+v", l)
	}
}

func TestLocalCutOff(t *testing.T) {
	t.Parallel()
	set := Default().Breaker
	set.OpenJitter = 0
	l := Local{}.Suspend(epoch)
	l, ok := l.Probe(epoch, time.Second)
	if !ok || l.Breaker.State != HalfOpen {
		t.Fatalf("suspended: %+v", l)
	}
	for _, want := range []time.Duration{10 * time.Second, 15 * time.Second} {
		l = l.Probed(epoch, set, Failure, true, 0)
		if got := l.Wait(epoch); got != want {
			t.Fatalf("waits %v, want %v", got, want)
		}
		l, _ = l.Probe(epoch.Add(want), 0)
	}
}
