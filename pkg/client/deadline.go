package client

import "time"

// A process can be frozen, and its machine with it: then the monotonic clock stands still while the world goes on. So
// what was promised until a time ends as soon as either of the two clocks has passed it.

// passed reports whether now is at or after t by the monotonic or by the wall clock.
func passed(now, t time.Time) bool {
	return !now.Before(t) || !now.Round(0).Before(t.Round(0))
}

// left is how much of the time until t remains at now, by the clock that has less; never negative.
func left(now, t time.Time) time.Duration {
	return max(min(t.Sub(now), t.Round(0).Sub(now.Round(0))), 0)
}

// since is how long ago t was, by the clock that says longer; never negative.
func since(now, t time.Time) time.Duration {
	return max(now.Sub(t), now.Round(0).Sub(t.Round(0)), 0)
}

// frozen reports whether the world went on without the monotonic clock since t.
func frozen(now, t time.Time) bool {
	const slack = time.Second // the clocks are set right in small steps all the time
	return now.Round(0).Sub(t.Round(0))-now.Sub(t) > slack
}
