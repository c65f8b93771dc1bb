package sharedbreaker

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/retryplane/retryplane/internal/redistest"
)

// TestChains: requests add up over replicas, whoever notes them; the latest are kept.
func TestChains(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, srv *redistest.Server) {
		one, two := New(srv.Client(t)), New(srv.Client(t))
		layers := []ChainLayer{{Name: "shop", Most: 3}, {Name: "cart", Most: 2}}
		for i, b := range []*Board{one, two, one} {
			if err := b.NoteChains(t.Context(), []Chain{{Dependency: "stock", Layers: layers, Requests: int64(i + 1)}}); err != nil {
				t.Fatal(err)
			}
		}
		var many []Chain
		for i := range MaxChains - 1 {
			many = append(many, Chain{Dependency: fmt.Sprintf("d%d", i), Layers: layers, Requests: 1})
		}
		if err := two.NoteChains(t.Context(), many); err != nil {
			t.Fatal(err)
		}
		list, err := two.Chains(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		at := slices.IndexFunc(list, func(c Chain) bool { return c.Dependency == "stock" })
		if len(list) != MaxChains || at < 0 || list[at].Requests != 6 || !slices.Equal(list[at].Layers, layers) {
			t.Fatalf("%d chains, stock at %d", len(list), at)
		}
		if list[at].Seen.IsZero() {
			t.Error("never seen")
		}
		if err := two.NoteChains(t.Context(), []Chain{{Dependency: "one-more", Layers: layers, Requests: 1}}); err != nil {
			t.Fatal(err)
		}
		if list, err = one.Chains(t.Context()); err != nil || len(list) != MaxChains {
			t.Errorf("%d chains, %v: the bound does not hold", len(list), err)
		}
	})
}

// TestChainsAreForgotten a day after they were seen last.
func TestChainsAreForgotten(t *testing.T) {
	t.Parallel()
	srv := redistest.Embedded(t)
	b := New(srv.Client(t))
	note := func(dependency string) {
		t.Helper()
		if err := b.NoteChains(t.Context(), []Chain{{Dependency: dependency, Layers: []ChainLayer{{Name: "a", Most: 2}}, Requests: 1}}); err != nil {
			t.Fatal(err)
		}
	}
	note("old")
	srv.Elapse(ChainsKept - time.Minute)
	note("young")
	srv.Elapse(2 * time.Minute)
	list, err := b.Chains(t.Context())
	if err != nil || len(list) != 1 || list[0].Dependency != "young" {
		t.Errorf("got %+v, %v", list, err)
	}
}
