package exchange

import (
	"time"

	"github.com/retryplane/retryplane/internal/sharedbreaker"
	"github.com/retryplane/retryplane/pkg/policy"
	"github.com/retryplane/retryplane/pkg/wire"
)

// batch is what instances reported about one group's dependencies since the last flush. Syncs that arrive while
// a flush is under way gather in the next batch and get their answer from it. A batch belongs to its group's lock
// until it is flushed; after done it is immutable.
type batch struct {
	deps   map[string]*merged
	order  []*merged
	urgent bool
	done   chan struct{}

	err error // why the store did not take it
}

// merged is one dependency in a batch.
type merged struct {
	name      string
	counts    map[generation]*sharedbreaker.Counts
	display   sharedbreaker.Display
	instances map[string]sharedbreaker.Instance
	probes    []sharedbreaker.Probe
	asks      []syncKey
	deposits  int64
	debits    int64
	wants     []want
	notBefore time.Duration

	// results of the flush
	standing sharedbreaker.Standing
	policy   policy.Policy
	permits  map[syncKey]sharedbreaker.Permit
	grants   map[syncKey]int64
	hold     time.Duration
	degraded bool
}

type generation struct {
	epoch  string
	number int64
}

type want struct {
	by     syncKey
	count  int64
	waited time.Duration
}

func newBatch() *batch {
	return &batch{deps: make(map[string]*merged), done: make(chan struct{})}
}

// add merges one report. Deposits older than oldest are dropped: they would fund retries with requests that the
// window has long forgotten.
func (b *batch) add(by syncKey, r *wire.Report, oldest time.Duration) *merged {
	m := b.deps[r.Name]
	if m == nil {
		m = &merged{name: r.Name}
		b.deps[r.Name] = m
		b.order = append(b.order, m)
	}
	m.display.Add(display(r))
	if r.Success+r.Failure > 0 {
		if m.counts == nil {
			m.counts = make(map[generation]*sharedbreaker.Counts)
		}
		g := generation{r.Epoch, r.Generation}
		c := m.counts[g]
		if c == nil {
			c = &sharedbreaker.Counts{Epoch: r.Epoch, Generation: r.Generation}
			m.counts[g] = c
		}
		c.Success += r.Success
		c.Failure += r.Failure
		c.Slow += r.Slow
	}
	m.instance(by.instance, r)
	for _, p := range r.Probes {
		m.probes = append(m.probes, sharedbreaker.Probe{
			Token: p.Token, Instance: by.instance, Epoch: r.Epoch, Generation: r.Generation, Outcome: outcome(p.Outcome),
		})
	}
	if r.WantProbe {
		m.asks = append(m.asks, by)
	}
	if time.Duration(r.AgeMS)*time.Millisecond <= oldest {
		m.deposits += r.Requests
	}
	m.debits += r.Ungranted
	m.notBefore = max(m.notBefore, time.Duration(r.NotBeforeMS)*time.Millisecond)
	if r.Want > 0 {
		m.wants = append(m.wants, want{by, r.Want, time.Duration(r.WaitedMS) * time.Millisecond})
	}
	if r.Want > 0 || r.Failure > 0 || r.NotBeforeMS > 0 || r.WantProbe || len(r.Probes) > 0 {
		b.urgent = true
	}
	return m
}

// instance notes who reported. Of several reports of one instance the latest that has outcomes gives the verdict.
func (m *merged) instance(id string, r *wire.Report) {
	if m.instances == nil {
		m.instances = make(map[string]sharedbreaker.Instance)
	}
	in := sharedbreaker.Instance{
		ID: id, Epoch: r.Epoch, Generation: r.Generation, OverrideRevision: r.Applied.OverrideRevision,
	}
	switch total := r.Success + r.Failure; {
	case total > 0 && 2*r.Failure >= total:
		in.Verdict = sharedbreaker.VerdictFailing
	case total > 0:
		in.Verdict = sharedbreaker.VerdictHealthy
	}
	if old, ok := m.instances[id]; ok {
		older := in.Epoch == old.Epoch && in.Generation < old.Generation
		if in.Verdict == sharedbreaker.VerdictNone || older && old.Verdict != sharedbreaker.VerdictNone {
			in.Verdict, in.Epoch, in.Generation = old.Verdict, old.Epoch, old.Generation
		}
		in.OverrideRevision = max(in.OverrideRevision, old.OverrideRevision)
	}
	m.instances[id] = in
}

func (m *merged) wanted() int64 {
	var n int64
	for _, w := range m.wants {
		n += w.count
	}
	return n
}

// report is what the board gets to see of m.
func (m *merged) report() sharedbreaker.Report {
	const leaseSlack = 500 * time.Millisecond
	r := sharedbreaker.Report{
		Name: m.name, Policy: m.policy.Breaker, ProbeLease: m.policy.Retry.AttemptTimeout + leaseSlack,
		Display: m.display, Probes: m.probes, NotBefore: m.notBefore,
	}
	for _, by := range m.asks {
		r.Asks = append(r.Asks, by.instance)
	}
	for _, c := range m.counts {
		r.Counts = append(r.Counts, *c)
	}
	for _, in := range m.instances {
		r.Instances = append(r.Instances, in)
	}
	return r
}

func display(r *wire.Report) sharedbreaker.Display {
	d := sharedbreaker.Display{
		Requests: r.Requests, Attempts: r.Attempts,
		Success: r.Success, Failure: r.Failure, Throttled: r.Throttled, Ignored: r.Ignored,
		RejectedBreaker: r.RejectedBreaker, RejectedBudget: r.RejectedBudget,
		LatencySumMS: r.LatencySumMS, LatencyCount: r.LatencyCount,
	}
	copy(d.AttemptsPerRequest[:], r.AttemptsPerRequest)
	return d
}

func outcome(word string) policy.Outcome {
	for _, o := range []policy.Outcome{policy.Success, policy.Failure, policy.Throttled} {
		if o.String() == word {
			return o
		}
	}
	return policy.Ignored
}
