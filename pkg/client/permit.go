package client

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/retryplane/retryplane/pkg/policy"
)

// Permit allows one attempt. Its zero value allows nothing and its Done does nothing. It is a value for one goroutine
// at a time; Done belongs on exactly one copy of it.
type Permit struct {
	counters *counters
	stripe   *stripe
	probe    *probe // the attempt is a trial request
	started  int64  // on the client's clock, plus 1; 0 = latency not sampled
}

// probe is a trial request. It is the fleet's if it has a token, otherwise the local breaker's.
type probe struct {
	token string
	local int64 // generation of the local breaker that waits for the result; 0 = none does
}

// Acquire asks whether an attempt may be sent now. It guards by the breaker only: it neither waits nor retries, and it
// allocates nothing. The caller ends the attempt by Done on the Permit, whatever became of it.
//
// The error is a [*OpenError] if a breaker or an operator rejects the call, and an [*InvalidNameError] if the
// dependency's name is none. Only while the fleet's breaker lets probes through, one call per instance waits for up to
// 50 ms to be allowed as one; if ctx ends meanwhile, the error is ctx's.
func (d *Dependency) Acquire(ctx context.Context) (Permit, error) {
	v := d.view.Load()
	s := v.counters.stripe()
	switch v.gate {
	case gatePass:
		n := s.requests.Add(1)
		if (n-1)&v.sample == 0 {
			return Permit{counters: v.counters, stripe: s, started: v.counters.mark(s, n)}, nil
		}
		return Permit{counters: v.counters, stripe: s}, nil
	case gateReject:
		s.rejected.Add(1)
		return Permit{}, v.reject
	}
	return d.decide(ctx)
}

// mark reads the clock for the n-th request that a stripe counts: the first one dates the deposits, and those that are
// sampled have their latency measured.
func (c *counters) mark(s *stripe, n int64) int64 {
	offset := int64(time.Since(c.dep.client.start))
	if n == 1 {
		s.first.Store(max(offset, 1))
	}
	return offset + 1
}

// admit lets a first attempt through.
func (c *counters) admit(s *stripe, p *probe, sample int64) Permit {
	n := s.requests.Add(1)
	permit := Permit{counters: c, stripe: s, probe: p}
	if (n-1)&sample == 0 {
		permit.started = c.mark(s, n)
	}
	return permit
}

// Done ends the attempt. A second call through the same variable is a no-op, as is a call on a Permit that came with
// an error. An attempt that is never Done stays in flight for the counters, and a probe's lease ends it.
func (p *Permit) Done(o Outcome) {
	s := p.stripe
	if s == nil {
		return
	}
	p.stripe = nil
	if o == Success && p.started == 0 && p.probe == nil && p.counters.run.Load() == 0 {
		s.success.Add(1)
		return
	}
	p.counters.done(s, p.probe, p.started, o)
}

func (c *counters) done(s *stripe, p *probe, started int64, o Outcome) {
	d := c.dep
	if started != 0 {
		took := time.Since(d.client.start) - time.Duration(started-1)
		s.latency.Add(took.Microseconds())
		s.sampled.Add(1)
		if slow := d.policy().Breaker.SlowCall; slow > 0 && took > slow {
			s.slow.Add(1)
		}
	}
	switch {
	case p != nil:
		d.probed(c, s, p, o)
	case o == Failure:
		d.failed(c, s)
	default:
		s.count(o)
		if o == Success && c.run.Load() != 0 {
			d.succeeded(c)
		}
	}
}

// decide is Acquire where a look at the view is not enough.
func (d *Dependency) decide(ctx context.Context) (Permit, error) {
	for {
		v := d.view.Load()
		switch {
		case v.gate == gateIdle:
			d.activate()
			continue
		case v.gate == gateClock && passed(d.client.now(), v.until):
			d.refresh()
			continue
		}
		s := v.counters.stripe()
		switch v.rule() {
		case gatePass:
			return v.counters.admit(s, nil, v.sample), nil
		case gateAdmit:
			if rand.Int64N(policy.Whole) < v.admit {
				return v.counters.admit(s, nil, v.sample), nil
			}
		case gateProbe:
			if p, decided, err := d.acquireProbe(ctx); decided {
				return p, err
			}
			continue
		case gateTrial:
			if p, decided, err := d.acquireTrial(); decided {
				return p, err
			}
			continue
		}
		s.rejected.Add(1)
		return Permit{}, v.reject
	}
}
