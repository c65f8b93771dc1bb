package api

import (
	"maps"
	"slices"
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/retryplane/retryplane/internal/exchange"
	"github.com/retryplane/retryplane/pkg/policy"
	"github.com/retryplane/retryplane/pkg/wire"
)

const (
	mostLabels = 200         // dependencies with series of their own
	otherLabel = "__other__" // the rest, summed; no dependency's name begins with '_'
)

// The words of the labels, so that every series is there from a dependency's first scrape on.
var (
	stateLabels = []policy.State{policy.Closed, policy.Open, policy.HalfOpen}
	modeLabels  = []policy.Mode{policy.ModeForceOpen, policy.ModeForceClosed, policy.ModeNoRetries}
	causeLabels = []policy.Cause{
		policy.CauseTrip, policy.CauseReopen, policy.CauseProbe, policy.CauseRecovered,
		policy.CauseOperator, policy.CauseExpiry, policy.CauseReset,
	}
)

// collector reads the exchange's memory when Prometheus scrapes. Counters are this replica's own and are summed over
// the replicas; gauges come from Redis and are the same on all.
type collector struct {
	exchange *exchange.Exchange
	hub      *hub

	state, override, transitions, requests, attempts, outcomes, perRequest, rejected *prometheus.Desc
	remaining, syncs, instances, streams, storeUp, overflow                          *prometheus.Desc

	mu       sync.Mutex
	named    map[string]*row // have series of their own until they are forgotten
	others   map[string]*row // are summed until they are forgotten: moving one out would look like a counter reset
	lost     exchange.Totals // of others that were forgotten, so that the sum never falls
	lostMore int64           // their retries
	overflew int64
}

// row is what the last scrape saw of a dependency.
type row struct {
	totals  exchange.Totals
	retries int64 // attempts beyond the first; a request is reported before its attempt, so the difference may dip
}

func newCollector(x *exchange.Exchange, h *hub) *collector {
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc("retryplane_"+name, help, labels, nil)
	}
	return &collector{
		exchange: x, hub: h, named: make(map[string]*row), others: make(map[string]*row),
		state:       desc("breaker_state", "1 for the effective state of the breaker; under __other__ how many are in it.", "dependency", "state"),
		override:    desc("breaker_override", "1 while an operator's override of this mode is in force.", "dependency", "mode"),
		transitions: desc("breaker_transitions_total", "Changes of the breaker's state that this replica committed.", "dependency", "to", "cause"),
		requests:    desc("requests_total", "Requests whose first attempt was sent.", "dependency"),
		attempts:    desc("attempts_total", "Attempts sent, first ones and retries.", "dependency", "kind"),
		outcomes:    desc("outcomes_total", "Ended attempts by outcome.", "dependency", "outcome"),
		perRequest:  desc("request_attempts", "Attempts per finished request; five and more count as five.", "dependency"),
		rejected:    desc("rejected_total", "Calls rejected by the breaker and retries withheld by the budget.", "dependency", "by"),
		remaining:   desc("budget_remaining", "Retries the fleet may still send in the window; below zero after retries without a grant.", "dependency"),
		syncs:       desc("syncs_total", "Syncs by result.", "result"),
		instances:   desc("instances", "Instances in touch with this replica within 30 s."),
		streams:     desc("stream_clients", "Open event streams."),
		storeUp:     desc("store_up", "1 while the replica is in touch with its store."),
		overflow:    desc("label_overflow_total", "Dependencies that got no series of their own and count under __other__."),
	}
}

// Describe implements prometheus.Collector.
func (c *collector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{
		c.state, c.override, c.transitions, c.requests, c.attempts, c.outcomes, c.perRequest, c.rejected,
		c.remaining, c.syncs, c.instances, c.streams, c.storeUp, c.overflow,
	} {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (c *collector) Collect(ch chan<- prometheus.Metric) {
	c.mu.Lock()
	defer c.mu.Unlock()
	deps := c.exchange.Dependencies()
	c.update(c.exchange.Totals())
	m := emitter{c, ch}

	var other levels
	for i := range deps {
		var one levels
		one.add(&deps[i])
		if _, ok := c.named[deps[i].Name]; ok {
			m.levels(deps[i].Name, &one)
		} else if _, ok := c.others[deps[i].Name]; ok {
			other.add(&deps[i])
		}
	}
	for _, name := range slices.Sorted(maps.Keys(c.named)) {
		r := c.named[name]
		m.totals(name, r.totals, r.retries)
	}
	if c.overflew > 0 {
		sum, retries := c.lost, c.lostMore
		sum.Transitions = maps.Clone(sum.Transitions)
		for _, r := range c.others {
			addTotals(&sum, r.totals)
			retries += r.retries
		}
		m.levels(otherLabel, &other)
		m.totals(otherLabel, sum, retries)
	}
	m.counter(c.overflow, c.overflew)
	for result, n := range c.exchange.Syncs() {
		m.counter(c.syncs, n, result)
	}
	m.gauge(c.instances, int64(c.exchange.Instances()))
	m.gauge(c.streams, int64(c.hub.count()))
	m.gauge(c.storeUp, truth(!c.exchange.Health().Degraded))
}

// update takes the totals into the rows. A dependency that is gone loses its row, a new one gets a series of its own
// while there are fewer than mostLabels.
func (c *collector) update(totals map[string]exchange.Totals) {
	for name := range c.named {
		if _, ok := totals[name]; !ok {
			delete(c.named, name)
		}
	}
	for name, r := range c.others {
		if _, ok := totals[name]; !ok {
			addTotals(&c.lost, r.totals)
			c.lostMore += r.retries
			delete(c.others, name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(totals)) {
		r := c.named[name]
		if r == nil {
			r = c.others[name]
		}
		if r == nil {
			r = &row{}
			if len(c.named) < mostLabels {
				c.named[name] = r
			} else {
				c.others[name] = r
				c.overflew++
			}
		}
		if totals[name].Requests < r.totals.Requests {
			r.retries = 0 // forgotten and back since the last scrape
		}
		r.totals = totals[name]
		r.retries = max(r.retries, r.totals.Attempts-r.totals.Requests)
	}
}

func addTotals(sum *exchange.Totals, t exchange.Totals) {
	sum.Add(t.Display)
	if sum.Transitions == nil {
		sum.Transitions = make(map[exchange.TransitionKind]int64)
	}
	for kind, n := range t.Transitions {
		sum.Transitions[kind] += n
	}
}

// levels are the gauges of one dependency, or of several summed.
type levels struct {
	states    map[string]int64
	modes     map[string]int64
	remaining int64
}

func (l *levels) add(d *wire.Dependency) {
	if l.states == nil {
		l.states, l.modes = make(map[string]int64), make(map[string]int64)
	}
	l.states[d.Breaker.Effective]++
	if o := d.Breaker.Override; o != nil {
		l.modes[o.Mode]++
	}
	l.remaining += d.Budget.Remaining
}

// emitter turns numbers into metrics.
type emitter struct {
	*collector
	ch chan<- prometheus.Metric
}

func (m emitter) levels(name string, l *levels) {
	for _, state := range stateLabels {
		m.gauge(m.state, l.states[state.String()], name, state.String())
	}
	for _, mode := range modeLabels {
		m.gauge(m.override, l.modes[string(mode)], name, string(mode))
	}
	m.gauge(m.remaining, l.remaining, name)
}

func (m emitter) totals(name string, t exchange.Totals, retries int64) {
	for _, to := range stateLabels {
		for _, cause := range causeLabels {
			m.counter(m.transitions, t.Transitions[exchange.TransitionKind{To: to, Cause: cause}], name, to.String(), string(cause))
		}
	}
	m.counter(m.requests, t.Requests, name)
	m.counter(m.attempts, t.Requests, name, "first")
	m.counter(m.attempts, retries, name, "retry")
	m.counter(m.outcomes, t.Success, name, policy.Success.String())
	m.counter(m.outcomes, t.Failure, name, policy.Failure.String())
	m.counter(m.outcomes, t.Throttled, name, policy.Throttled.String())
	m.counter(m.outcomes, t.Ignored, name, policy.Ignored.String())
	m.counter(m.rejected, t.RejectedBreaker, name, "breaker")
	m.counter(m.rejected, t.RejectedBudget, name, "budget")

	buckets := make(map[float64]uint64, 6)
	var count, sum uint64
	for i, n := range t.AttemptsPerRequest {
		count += uint64(n)
		sum += uint64(n) * uint64(i+1)
		buckets[float64(i+1)] = count
	}
	buckets[8] = count
	m.ch <- prometheus.MustNewConstHistogram(m.perRequest, count, float64(sum), buckets, name)
}

func (m emitter) counter(d *prometheus.Desc, n int64, labels ...string) {
	m.ch <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(n), labels...)
}

func (m emitter) gauge(d *prometheus.Desc, n int64, labels ...string) {
	m.ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, float64(n), labels...)
}

func truth(b bool) int64 {
	if b {
		return 1
	}
	return 0
}
