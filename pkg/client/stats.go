package client

import "time"

// Stats are the client's counters since it was made.
type Stats struct {
	Instance      string // the id under which the control plane knows this client
	Degraded      bool   // cut off from the control plane, or from its store: local breakers and budgets apply
	Syncs         int64  // answered
	SyncErrors    int64
	LastError     error // why the last sync was not answered in full, such as ErrTokenRefused; nil = it was, or there was none
	EventsDropped int64
	// MalformedContexts counts the requests below a [Middleware] whose Retry-Context was ignored.
	MalformedContexts int64
	Dependencies      map[string]DependencyStats // those in memory
}

// DependencyStats are one dependency's counters since its handle was made, and what is known about it.
type DependencyStats struct {
	Requests        int64 // first attempts
	Attempts        int64 // retries and net/http's own resends included
	Success         int64
	Failure         int64
	Throttled       int64
	Ignored         int64
	Slow            int64
	RejectedBreaker int64
	RejectedBudget  int64
	// RequestAttempts counts the requests that are over by their attempts: 1, 2, 3, 4, 5 and more.
	RequestAttempts [5]int64
	LatencySum      time.Duration // of the sampled attempts
	LatencyCount    int64
	View            View
}

// Stats returns the counters. It is meant for scrapes and debugging: it looks at every dependency.
func (c *Client) Stats() Stats {
	s := Stats{
		Instance: c.instance, Degraded: c.link.now().cutOff,
		Syncs: c.syncs.Load(), SyncErrors: c.syncErrors.Load(), LastError: c.link.why(),
		EventsDropped: c.events.lost(), MalformedContexts: c.malformed.Load(),
		Dependencies: map[string]DependencyStats{},
	}
	c.registry.each(func(d *Dependency) { s.Dependencies[d.name] = d.stats() })
	return s
}

func (d *Dependency) stats() DependencyStats {
	d.mu.Lock()
	d.take(d.client.now())
	t := d.totals
	d.mu.Unlock()
	resends := t.resends + d.resends.Load()
	s := DependencyStats{
		Requests: t.requests, Attempts: t.requests + t.retries + resends,
		Success: t.success, Failure: t.failure, Throttled: t.throttled, Ignored: t.ignored, Slow: t.slow,
		RejectedBreaker: t.rejected, RejectedBudget: t.unfunded + d.unfunded.Load(),
		LatencySum: time.Duration(t.micros) * time.Microsecond, LatencyCount: t.sampled,
		View: d.State(),
	}
	s.RequestAttempts[0] = max(t.outcomes()+resends-t.several, 0)
	copy(s.RequestAttempts[1:], t.ended[:])
	return s
}
