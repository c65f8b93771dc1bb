// Package prometheus shows a client's counters to Prometheus. It is a package of its own, so that only programs that
// want it import Prometheus' library.
//
//	prometheus.MustRegister(clientmetrics.NewCollector(c))
//
// All names begin with retryplane_client_. They are this instance's part of what the control plane shows for the whole
// fleet, and tell what it cannot know: how an instance fares while the control plane is away.
package prometheus

import (
	"sync"

	prom "github.com/prometheus/client_golang/prometheus"

	"github.com/retryplane/retryplane/pkg/client"
	"github.com/retryplane/retryplane/pkg/policy"
)

// MaxDependencies is how many dependencies have series of their own. The counters of all others are summed up under the
// name [Other], so that a program that makes names out of its input cannot flood a Prometheus.
const MaxDependencies = 200

// Other is the name for dependencies beyond [MaxDependencies]. It cannot be the name of a dependency. It has counters
// only: many breakers have no state in common.
const Other = "__other__"

// Collector collects the counters of one client whenever it is scraped; between scrapes it does nothing. It is safe for
// concurrent use. To show several clients in one registry, register each with labels of its own
// (prometheus.WrapRegistererWith).
type Collector struct {
	stats func() client.Stats

	mu    sync.Mutex
	names names
}

// NewCollector returns a Collector of c, which must not be nil.
func NewCollector(c *client.Client) *Collector {
	return &Collector{stats: c.Stats, names: newNames(MaxDependencies)}
}

func desc(name, help string, labels ...string) *prom.Desc {
	return prom.NewDesc("retryplane_client_"+name, help, labels, nil)
}

var (
	requests = desc("requests_total", "Calls of the application, by dependency.", "dependency")
	attempts = desc("attempts_total", "Attempts sent, retries and net/http's own resends among them, by dependency.", "dependency")
	outcomes = desc("outcomes_total", "Attempts that ended, by outcome.", "dependency", "outcome")
	slow     = desc("slow_attempts_total", "Attempts slower than the policy's slow_call.", "dependency")
	rejected = desc("rejected_total", "Calls that the breaker rejected, and retries that the budget refused.", "dependency", "by")
	perCall  = desc("request_attempts_total", "Calls that are over, by the attempts they took; the last value stands for more, too.", "dependency", "attempts")
	duration = desc("attempt_duration_seconds", "Duration of a sample of the attempts.", "dependency")

	state    = desc("breaker_state", "1 for the state that calls meet here, 0 for the others.", "dependency", "state")
	override = desc("breaker_override", "1 for the operator's override in force, 0 for the others.", "dependency", "mode")
	age      = desc("view_age_seconds", "Age of what the control plane told last; absent until it did.", "dependency")
	stale    = desc("view_stale", "1 while that is too old to be acted on: local breaker and budget apply.", "dependency")

	degraded   = desc("degraded", "1 while the client is cut off from its control plane, or refused by it.")
	syncs      = desc("syncs_total", "Exchanges with the control plane, by result.", "result")
	dropped    = desc("events_dropped_total", "Events that a slow handler missed.")
	known      = desc("dependencies", "Dependencies in the client's memory.")
	overflowed = desc("dependencies_overflowed", "Of these, those without series of their own.")
)

// Describe implements prometheus.Collector.
func (c *Collector) Describe(to chan<- *prom.Desc) {
	for _, d := range [...]*prom.Desc{
		requests, attempts, outcomes, slow, rejected, perCall, duration, state, override, age, stale,
		degraded, syncs, dropped, known, overflowed,
	} {
		to <- d
	}
}

// Collect implements prometheus.Collector.
func (c *Collector) Collect(to chan<- prom.Metric) {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.stats()
	c.names.update(s.Dependencies)
	for name, d := range c.names.own {
		counters(to, name, d)
		gauges(to, name, d.View)
	}
	if c.names.overflowed {
		counters(to, Other, c.names.other)
	}

	send(to, degraded, prom.GaugeValue, bit(s.Degraded))
	send(to, syncs, prom.CounterValue, float64(s.Syncs), "answered")
	send(to, syncs, prom.CounterValue, float64(s.SyncErrors), "error")
	send(to, dropped, prom.CounterValue, float64(s.EventsDropped))
	send(to, known, prom.GaugeValue, float64(len(s.Dependencies)))
	send(to, overflowed, prom.GaugeValue, float64(len(s.Dependencies)-len(c.names.own)))
}

func counters(to chan<- prom.Metric, name string, d client.DependencyStats) {
	count := func(of *prom.Desc, n int64, label ...string) {
		send(to, of, prom.CounterValue, float64(n), append([]string{name}, label...)...)
	}
	count(requests, d.Requests)
	count(attempts, d.Attempts)
	count(outcomes, d.Success, client.Success.String())
	count(outcomes, d.Failure, client.Failure.String())
	count(outcomes, d.Throttled, client.Throttled.String())
	count(outcomes, d.Ignored, client.Ignored.String())
	count(slow, d.Slow)
	count(rejected, d.RejectedBreaker, "breaker")
	count(rejected, d.RejectedBudget, "budget")
	for i, n := range d.RequestAttempts {
		count(perCall, n, [...]string{"1", "2", "3", "4", "5"}[i])
	}
	to <- prom.MustNewConstSummary(duration, uint64(max(d.LatencyCount, 0)), d.LatencySum.Seconds(), nil, name)
}

func gauges(to chan<- prom.Metric, name string, v client.View) {
	for _, s := range [...]policy.State{policy.Closed, policy.Open, policy.HalfOpen} {
		send(to, state, prom.GaugeValue, bit(v.State == s), name, s.String())
	}
	for _, m := range [...]policy.Mode{policy.ModeForceOpen, policy.ModeForceClosed, policy.ModeNoRetries} {
		send(to, override, prom.GaugeValue, bit(v.Override == m), name, string(m))
	}
	if v.Known {
		send(to, age, prom.GaugeValue, v.Age.Seconds(), name)
	}
	send(to, stale, prom.GaugeValue, bit(v.Stale), name)
}

func send(to chan<- prom.Metric, d *prom.Desc, kind prom.ValueType, value float64, labels ...string) {
	to <- prom.MustNewConstMetric(d, kind, value, labels...)
}

func bit(yes bool) float64 {
	if yes {
		return 1
	}
	return 0
}
