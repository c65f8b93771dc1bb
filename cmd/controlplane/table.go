package main

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/retryplane/retryplane/pkg/wire"
)

// none stands in a cell that has nothing to say.
const none = "-"

// writeTable prints rows with aligned columns.
func writeTable(w io.Writer, rows [][]string) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, row := range rows {
		if _, err := fmt.Fprintln(t, strings.Join(row, "\t")); err != nil {
			return err
		}
	}
	return t.Flush()
}

var listHeader = []string{"NAME", "STATE", "FOR", "REQ/S", "FAILED", "RETRIES", "INSTANCES", "OVERRIDE"}

func listRow(d *wire.Dependency) []string {
	return []string{d.Name, stateCell(d), forCell(d), rateCell(d), failedCell(d), retriesCell(d), instancesCell(d), overrideCell(d)}
}

var transitionHeader = []string{"AT", "DEPENDENCY", "FROM", "TO", "CAUSE", "REASON", "BY"}

func transitionRow(t *wire.Transition) []string {
	return []string{clock(t.At), t.Dependency, t.From, t.To, t.Cause, orNone(t.Reason), orNone(t.Actor)}
}

// details are all that people want to know of one dependency, a line for each.
func details(d *wire.Dependency) [][]string {
	a, w, g := &d.Breaker.Automatic, &d.Window, &d.Budget
	rows := [][]string{
		{"name", d.Name},
		{"state", stateCell(d)},
		{"for", forCell(d)},
	}
	if a.Reason != "" {
		rows = append(rows, []string{"why", a.Reason})
	}
	if a.State != wire.Closed {
		rows = append(rows, []string{"reopenings", strconv.FormatInt(a.Reopenings, 10)})
	}
	if a.RemainingMS > 0 {
		rows = append(rows, []string{"probing in", (time.Duration(a.RemainingMS) * time.Millisecond).String()})
	}
	if a.State == wire.HalfOpen && a.AdmitPPM > 0 {
		rows = append(rows, []string{"admits", percent(float64(a.AdmitPPM)/1e6) + " of the calls"})
	}
	rows = append(rows, [][]string{
		{"requests", fmt.Sprintf("%s/s (%d in %s)", rateCell(d), w.Requests, window(d))},
		{"failed", fmt.Sprintf("%s (%d of %d attempts)", failedCell(d), w.Failure, w.Success+w.Failure)},
		{"throttled", strconv.FormatInt(w.Throttled, 10)},
		{"retries", fmt.Sprintf("%s, %d left, %d denied", retriesCell(d), max(g.Remaining, 0), g.Denied)},
		{"rejected", fmt.Sprintf("%d by the breaker, %d by the budget", w.RejectedBreaker, w.RejectedBudget)},
		{"instances", instancesCell(d)},
		{"override", overrideCell(d)},
	}...)
	if o := d.Breaker.Override; o != nil {
		rows = append(rows, [][]string{
			{"  reason", o.Reason},
			{"  revision", strconv.FormatInt(o.Revision, 10)},
			{"  applied by", fmt.Sprintf("%d of %d instances", o.AppliedBy, o.Instances)},
		}...)
	}
	return append(rows, []string{"policy", policyCell(d)}, []string{"as of", clock(d.AsOf)})
}

// stateCell is what holds, and under an override also what would hold without it.
func stateCell(d *wire.Dependency) string {
	if d.Breaker.Override == nil {
		return d.Breaker.Effective
	}
	return fmt.Sprintf("%s (calculated: %s)", d.Breaker.Effective, d.Breaker.Automatic.State)
}

// forCell is how long the state has held. All times in an answer are the server's, so its clock need not agree with ours.
func forCell(d *wire.Dependency) string {
	o, since := d.Breaker.Override, d.Breaker.Automatic.Since
	switch {
	case o != nil && modeForces(o.Mode):
		return rough(d.AsOf.Sub(o.CreatedAt))
	case since == nil:
		return none
	}
	return rough(d.AsOf.Sub(*since))
}

// modeForces reports whether an override of this mode makes the state; no_retries leaves it as calculated.
func modeForces(mode string) bool {
	return mode == string(modes["open"]) || mode == string(modes["close"])
}

func window(d *wire.Dependency) time.Duration {
	return time.Duration(d.Budget.WindowMS) * time.Millisecond
}

func rateCell(d *wire.Dependency) string {
	if d.Budget.WindowMS <= 0 {
		return none
	}
	return strconv.FormatFloat(float64(d.Window.Requests)/window(d).Seconds(), 'f', 1, 64)
}

func failedCell(d *wire.Dependency) string {
	total := d.Window.Success + d.Window.Failure
	if total == 0 {
		return none
	}
	return percent(float64(d.Window.Failure) / float64(total))
}

// retriesCell is the retry ratio beside what the budget allows.
func retriesCell(d *wire.Dependency) string {
	ratio := none
	if d.Window.Requests > 0 {
		ratio = percent(d.Window.RetryRatio)
	}
	return ratio + " of " + strconv.FormatFloat(float64(d.Budget.RatioPPM)/1e4, 'f', -1, 64) + "%"
}

func instancesCell(d *wire.Dependency) string {
	n := strconv.FormatInt(d.Window.Instances, 10)
	if d.Window.FailingInstances > 0 {
		n += fmt.Sprintf(" (%d failing)", d.Window.FailingInstances)
	}
	return n
}

func overrideCell(d *wire.Dependency) string {
	o := d.Breaker.Override
	if o == nil {
		return none
	}
	return fmt.Sprintf("%s by %s until %s (%s left)", o.Mode, o.Actor, clock(o.ExpiresAt), rough(o.ExpiresAt.Sub(d.AsOf)))
}

func policyCell(d *wire.Dependency) string {
	if d.Policy.Version == 0 {
		return d.Policy.Source
	}
	return fmt.Sprintf("%s, version %d", d.Policy.Source, d.Policy.Version)
}

func percent(share float64) string { return strconv.FormatFloat(100*share, 'f', 1, 64) + "%" }

// clock is a time as the operator's own clock shows it.
func clock(t time.Time) string { return t.Local().Format("2006-01-02 15:04:05 MST") }

// rough is a duration with its two greatest units; seconds are the smallest.
func rough(d time.Duration) string {
	const day = 24 * time.Hour
	d = max(d, 0)
	switch {
	case d < time.Minute:
		return fmt.Sprintf("%ds", d/time.Second)
	case d < time.Hour:
		return fmt.Sprintf("%dm%ds", d/time.Minute, d%time.Minute/time.Second)
	case d < day:
		return fmt.Sprintf("%dh%dm", d/time.Hour, d%time.Hour/time.Minute)
	}
	return fmt.Sprintf("%dd%dh", d/day, d%day/time.Hour)
}

func orNone(s string) string {
	if s == "" {
		return none
	}
	return s
}
