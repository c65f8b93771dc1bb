package api_test

import (
	"slices"
	"testing"
	"time"

	"github.com/retryplane/retryplane/pkg/wire"
)

// TestListChains: what instances report as a chain is listed with its product, to whom it concerns.
func TestListChains(t *testing.T) {
	t.Parallel()
	r := setup(t)
	layers := []wire.ChainLayer{{Name: "shop", Most: 3}, {Name: "cart", Most: 3}, {Name: "stock", Most: 3}}
	for seq, chain := range []wire.Chain{{Layers: layers, Requests: 2}, {Layers: layers[:1], Requests: 1}, {Layers: layers, Requests: 5}} {
		req := wire.SyncRequest{Instance: "i", Seq: int64(seq + 1), Dependencies: []wire.Report{{Name: "a/b", Requests: 1, Chains: []wire.Chain{chain}}}}
		want[wire.SyncResponse](r, 200, "POST", wire.PathSync, req)
	}
	var list wire.ChainList
	r.await("listed", func() bool { // the replica notes chains every 2 s
		list = want[wire.ChainList](r, 200, "GET", wire.PathChains+"?dependency=a/b&min_product=4", nil)
		return len(list.Chains) == 1 && list.Chains[0].Requests == 7
	})
	if got := list.Chains[0]; got.Dependency != "a/b" || got.Product != 27 || !slices.Equal(got.Layers, layers) || time.Since(got.LastSeen) > time.Minute {
		t.Errorf("got %+v", got)
	}
	if list = want[wire.ChainList](r, 200, "GET", wire.PathChains+"?dependency=other", nil); len(list.Chains) != 0 {
		t.Errorf("of another dependency: %+v", list)
	}
	for _, query := range []string{"?dependency=A", "?min_product=0", "?min_product=x"} {
		r.refused(422, wire.CodeInvalid, "GET", wire.PathChains+query, nil)
	}
	for _, chain := range []wire.Chain{{Requests: 1}, {Layers: []wire.ChainLayer{{Name: "", Most: 1}}}, {Layers: []wire.ChainLayer{{Name: "a"}}}} {
		req := wire.SyncRequest{Instance: "i", Seq: 9, Dependencies: []wire.Report{{Name: "a", Chains: []wire.Chain{chain}}}}
		r.refused(422, wire.CodeInvalid, "POST", wire.PathSync, req)
	}
}
