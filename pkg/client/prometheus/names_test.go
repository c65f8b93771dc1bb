package prometheus

import (
	"testing"

	"github.com/retryplane/retryplane/pkg/client"
)

type stats = map[string]client.DependencyStats

func counted(n int64) client.DependencyStats {
	return client.DependencyStats{Requests: n, Attempts: n, RequestAttempts: [5]int64{n}}
}

// TestNames: places are kept, and the sum of the others never falls, whatever the client forgets.
func TestNames(t *testing.T) {
	t.Parallel()
	n := newNames(2)
	for i, step := range []struct {
		all   stats
		own   []string
		other int64
	}{
		{stats{"b": counted(1)}, []string{"b"}, 0},
		{stats{"b": counted(1), "c": counted(1), "a": counted(2)}, []string{"a", "b"}, 1}, // b came first, c is one too many
		{stats{"b": counted(2), "c": counted(5), "a": counted(2), "d": counted(3)}, []string{"a", "b"}, 8},
		{stats{"b": counted(2), "c": counted(5)}, []string{"b"}, 8},                                         // a and d are forgotten
		{stats{"b": counted(2), "c": counted(6), "d": counted(1)}, []string{"b", "d"}, 9},                   // a's place is free
		{stats{"b": counted(2), "c": counted(4), "d": counted(1)}, []string{"b", "d"}, 13},                  // c was forgotten and is back
		{stats{"a": counted(9), "b": counted(1), "c": counted(4), "d": counted(1)}, []string{"b", "d"}, 22}, // b too; its series says so itself
	} {
		n.update(step.all)
		if len(n.own) != len(step.own) || n.other.Requests != step.other || n.other.RequestAttempts[0] != step.other {
			t.Errorf("step %d: own %v, others %+v", i, n.own, n.other)
		}
		for _, name := range step.own {
			if got, ok := n.own[name]; !ok || got != step.all[name] {
				t.Errorf("step %d: %s: got %+v", i, name, got)
			}
		}
	}
}

// TestNamesGrow: a call that waits for its retry looks like one of a single attempt and then is none. A counter that falls
// would look like a restart, and the rate over it like a storm.
func TestNamesGrow(t *testing.T) {
	t.Parallel()
	n := newNames(1)
	steps := []client.DependencyStats{
		{Requests: 10, Attempts: 10, RequestAttempts: [5]int64{10}},
		{Requests: 10, Attempts: 11, RequestAttempts: [5]int64{9, 1}},
		{Requests: 11, Attempts: 12, RequestAttempts: [5]int64{10, 1}},
		{Requests: 12, Attempts: 13, RequestAttempts: [5]int64{11, 1}},
	}
	for i, want := range [][5]int64{{10}, {10, 1}, {10, 1}, {11, 1}} {
		n.update(stats{"a": steps[i], "b": steps[i]})
		if got := n.own["a"].RequestAttempts; got != want {
			t.Errorf("step %d: own %v, want %v", i, got, want)
		}
		if got := n.other.RequestAttempts; got != want {
			t.Errorf("step %d: others %v, want %v", i, got, want)
		}
	}
}
