package client

import (
	"context"
	"crypto/rand"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/retryplane/retryplane/pkg/policy"
	"github.com/retryplane/retryplane/pkg/wire"
)

// served is the request that a server is about to answer by the guarded calls under one context: what the layers above
// said of it, and what there is to tell them.
type served struct {
	layers    policy.RetryContext
	retrying  bool        // one of them is retrying
	malformed atomic.Bool // what they said was ignored; false once counted

	gaveUp atomic.Pointer[policy.RetryStatus] // the last call that was given up for good; nil = none was
}

type servedKey struct{}

// servedBy returns nil where no [Middleware] is above.
func servedBy(ctx context.Context) *served {
	s, _ := ctx.Value(servedKey{}).(*served)
	return s
}

// tellAbove notes that the call is over. A call that was retried in vain, or whose retry the fleet does not want, is not
// one for the layers above to try again.
func (c *request) tellAbove(reason policy.StopReason) {
	s := c.served
	if s == nil {
		return
	}
	if s.malformed.Swap(false) {
		c.dep.client.malformed.Add(1)
	}
	if c.attempts > 0 {
		c.dep.chains.saw(s.layers, c.layer(0))
	}
	switch reason {
	case policy.StopBreaker, policy.StopBudget, policy.StopVeto, policy.StopRetryAfter:
	case policy.StopAttempts, policy.StopDeadline:
		if c.attempts < 2 {
			return // that is no retry layer
		}
	default:
		return
	}
	s.gaveUp.Store(&policy.RetryStatus{Dependency: c.dep.name, Attempts: c.attempts, Reason: reason})
}

// layer is this one, as the layers below see it.
func (c *request) layer(attempt int) policy.RetryLayer {
	name := c.dep.client.config.service
	if name == "" {
		name = "retryplane"
	}
	return policy.RetryLayer{
		Name: name, ID: c.id, Attempt: attempt, Most: c.policy.Retry.Attempts, Remaining: max(time.Until(c.deadline), 0),
	}
}

// announce puts Retry-Context into the headers of an attempt, if the dependency is to know.
func (c *request) announce(h http.Header, attempt int) http.Header {
	if !c.policy.Retry.Context {
		return h
	}
	if c.id == "" {
		c.id = rand.Text()[:12]
	}
	var above policy.RetryContext
	if c.served != nil {
		above = c.served.layers
	}
	if h = h.Clone(); h == nil {
		h = make(http.Header, 1)
	}
	h.Set(policy.RetryContextHeader, above.With(c.layer(attempt)).String())
	return h
}

// maxChains bounds what one instance remembers of a dependency's chains between two syncs; what is beyond is forgotten.
const maxChains = 16

// chains are the chains of layers that end at a dependency, with the requests that came through them. Only chains of more
// than one layer that retries are of interest. It is safe for concurrent use.
type chains struct {
	mu    sync.Mutex
	known map[string]*wire.Chain
}

func (s *chains) saw(above policy.RetryContext, own policy.RetryLayer) {
	retrying := 0
	key := make([]byte, 0, 64)
	for _, l := range above {
		if l.Most > 1 {
			retrying++
		}
		key = append(append(key, l.Name...), 0, byte(min(l.Most, 255)))
	}
	if retrying == 0 || own.Most < 2 {
		return
	}
	key = append(key, byte(own.Most))
	s.mu.Lock()
	defer s.mu.Unlock()
	chain := s.known[string(key)]
	if chain == nil {
		if len(s.known) >= maxChains {
			return
		}
		if s.known == nil {
			s.known = map[string]*wire.Chain{}
		}
		chain = &wire.Chain{}
		for _, l := range append(above[:len(above):len(above)], own) {
			chain.Layers = append(chain.Layers, wire.ChainLayer{Name: l.Name, Most: int64(l.Most)})
		}
		s.known[string(key)] = chain
	}
	chain.Requests++
}

// take empties s.
func (s *chains) take() []wire.Chain {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.known) == 0 {
		return nil
	}
	all := make([]wire.Chain, 0, len(s.known))
	for _, chain := range s.known {
		all = append(all, *chain)
	}
	s.known = nil
	return all
}
