package sharedbreaker

import (
	"context"
	"encoding/json"
	"slices"
	"time"

	"github.com/retryplane/retryplane/pkg/policy"
)

// mostAsks is how many asks one call looks at. A round has at most 100 permits, and at most as many instances per
// round are blocked, so that further ones find nothing left.
const mostAsks = 500

// probe brings results of trial requests to the store and asks for new permits. current is false if the dependency
// is not being probed in this generation any more; then nothing counted and nothing was handed out.
func (b *Board) probe(ctx context.Context, d *dossier, results []Probe, asks []string) (
	round policy.Round, permits []Permit, current bool, err error,
) {
	s := &d.standing
	n, need := s.Breaker.ProbeRound(d.set)
	args := struct {
		Results [][2]any `json:"results,omitempty"`
		Asks    []string `json:"asks,omitempty"`
		Tokens  []string `json:"tokens,omitempty"`
	}{Asks: asks[:min(len(asks), mostAsks)]}
	for _, p := range results {
		args.Results = append(args.Results, [2]any{p.Token, p.Outcome})
	}
	for range min(int(n), len(asks)) {
		args.Tokens = append(args.Tokens, b.newToken())
	}
	doc, err := json.Marshal(args)
	if err != nil {
		return round, nil, false, err
	}
	k := groupKeys[d.group]
	r := newReply(probeScript.Run(ctx, b.rdb, []string{k.epoch, stateKey(s.Name), permitsKey(s.Name), k.overrides},
		s.Name, head(s.Epoch, s.Breaker), n, need, d.lease.Milliseconds(), doc))
	if r.int() == 0 {
		return round, nil, false, r.wrap("probe")
	}
	s.Now = moment(r.text())
	round = policy.Round{Good: r.int(), Bad: r.int()}
	answers := r.list()
	permits = make([]Permit, len(asks))
	for i := range asks {
		permits[i] = Permit{Instance: asks[i]}
		if i >= mostAsks {
			permits[i].Hold = max(permits[mostAsks-1].Hold, 50*time.Millisecond)
			continue
		}
		permits[i].Token = answers.text()
		permits[i].Hold = time.Duration(answers.int()) * time.Millisecond
		if permits[i].Token != "" {
			permits[i].Lease = d.lease
		}
	}
	if r.err == nil {
		r.err = answers.err
	}
	return round, permits, r.err == nil, r.wrap("probe")
}

func ofGeneration(results []Probe, epoch string, generation int64) []Probe {
	return slices.DeleteFunc(slices.Clone(results), func(p Probe) bool {
		return p.Epoch != epoch || p.Generation != generation
	})
}
