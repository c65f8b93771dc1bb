package exchange

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"time"

	"github.com/retryplane/retryplane/internal/sharedbreaker"
	"github.com/retryplane/retryplane/pkg/wire"
)

// chainsEvery is how often a replica tells the store which chains of retrying layers its instances saw. People look at
// them; nothing depends on them.
const chainsEvery = 2 * time.Second

// chains are those that were reported since the store was told last.
type chains struct {
	mu      sync.Mutex
	pending map[string]*sharedbreaker.Chain // at most MaxChains
}

func (s *chains) note(dependency string, seen []wire.Chain) {
	if len(seen) == 0 {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range seen {
		chain := &sharedbreaker.Chain{Dependency: dependency}
		for _, l := range c.Layers {
			chain.Layers = append(chain.Layers, sharedbreaker.ChainLayer(l))
		}
		key, err := json.Marshal(chain)
		if err != nil {
			continue // it was made of JSON
		}
		known := s.pending[string(key)]
		if known == nil {
			if len(s.pending) >= sharedbreaker.MaxChains {
				continue
			}
			if s.pending == nil {
				s.pending = make(map[string]*sharedbreaker.Chain)
			}
			s.pending[string(key)], known = chain, chain
		}
		known.Requests += c.Requests
	}
}

func (s *chains) take() []sharedbreaker.Chain {
	s.mu.Lock()
	defer s.mu.Unlock()
	list := make([]sharedbreaker.Chain, 0, len(s.pending))
	for _, c := range s.pending {
		list = append(list, *c)
	}
	s.pending = nil
	return list
}

// noteChains tells the store until ctx ends. What it does not take is lost.
func (x *Exchange) noteChains(ctx context.Context) {
	tick := time.NewTicker(chainsEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		list := x.chains.take()
		if len(list) == 0 {
			continue
		}
		bounded, cancel := context.WithTimeout(ctx, storeTimeout)
		if err := x.board.NoteChains(bounded, list); err != nil && ctx.Err() == nil {
			x.log.Debug("chains of retrying layers are lost", "chains", len(list), "error", err)
		}
		cancel()
	}
}

// Chains returns the chains of retrying layers that were seen within a day, the latest first. Error: ErrStore.
func (x *Exchange) Chains(ctx context.Context) (wire.ChainList, error) {
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	list, err := x.board.Chains(ctx)
	if err != nil {
		return wire.ChainList{}, fmt.Errorf("%w: %w", ErrStore, err)
	}
	out := wire.ChainList{Chains: make([]wire.SeenChain, len(list))}
	for i, c := range list {
		out.Chains[i] = wire.SeenChain{Dependency: c.Dependency, Product: 1, Requests: c.Requests, LastSeen: c.Seen.UTC()}
		for _, l := range c.Layers {
			out.Chains[i].Layers = append(out.Chains[i].Layers, wire.ChainLayer(l))
			const enough = 1_000_000_000 // more says nothing more
			out.Chains[i].Product = min(out.Chains[i].Product*l.Most, enough)
		}
	}
	return out, nil
}
