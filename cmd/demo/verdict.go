package main

import (
	"fmt"
	"io"
	"time"

	"github.com/retryplane/retryplane/internal/simulation"
)

// figures are what a phase comes down to.
type figures struct {
	peak      float64 // most attempts that reached the dependency in a second after the fault, per request asked for
	recovered int     // seconds from the stall's end until everything is answered again; -1 = not within the phase
	lost      int     // requests that failed and began after the stall's end
}

const (
	stormAbove = 2.0  // a storm is more than twice the load that was asked for
	healthy    = 0.99 // answered, in every second from the recovery on
	settle     = 5    // seconds by the phase's end in which it must have recovered to count as such
)

// judge measures a phase.
func judge(m *simulation.Meter, f flags) figures {
	fault, end := int(stallAt/time.Second), int(f.Phase/time.Second)
	over := fault + int(stallFor/time.Second)
	g := figures{recovered: -1}
	for _, s := range m.Seconds()[:min(end, len(m.Seconds()))][min(fault, len(m.Seconds())):] {
		if s.Offered > 0 {
			g.peak = max(g.peak, float64(s.Arrived)/float64(s.Offered))
		}
	}
	if at := m.Recovered(over, end-1, healthy); at >= 0 && at <= end-settle {
		g.recovered = at - over
	}
	g.lost = m.Sum(over, end).Failed
	return g
}

func (g figures) String() string {
	recovery := "never"
	if g.recovered >= 0 {
		recovery = fmt.Sprintf("after %d s", g.recovered)
	}
	return fmt.Sprintf("%13.1fx %16s %16d", g.peak, recovery, g.lost)
}

// stormy reports whether a phase shows the storm: the load far above what was asked for, and no end of it.
func (g figures) stormy() bool { return g.peak > stormAbove && g.recovered < 0 }

// compare prints both phases and reports whether they differ as they should.
func compare(out io.Writer, without, with figures) bool {
	fmt.Fprintf(out, "\n%-20s %14s %16s %16s\n", "", "load at most", "recovered", "requests lost")
	fmt.Fprintf(out, "%-20s %s\n%-20s %s\n", "without Retryplane", without, "with Retryplane", with)
	switch {
	case !without.stormy():
		fmt.Fprintln(out, "\nThe first phase shows no storm: this machine is too slow or too busy for a fair comparison.")
	case with.stormy() || with.recovered < 0:
		fmt.Fprintln(out, "\nThe second phase did not recover. That should not be: please report it.")
	default:
		fmt.Fprintln(out, "\nTwo seconds of trouble: with retries alone it never ends, with one memory for the fleet it does.")
		return true
	}
	return false
}
