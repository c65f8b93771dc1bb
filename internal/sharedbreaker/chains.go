package sharedbreaker

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Chains are kept for ChainsKept after they were seen last, and at most MaxChains of them, the latest.
const (
	ChainsKept = 24 * time.Hour
	MaxChains  = 1000
)

// chainsKey is one key for all dependencies: chains are few, and noted once in a while.
const chainsKey = "rp:{chains}:seen"

// Chain is layers that retry one after the other above a dependency, the outermost first.
type Chain struct {
	Dependency string       `json:"dependency"`
	Layers     []ChainLayer `json:"layers"`

	Requests int64     `json:"-"` // that came through it while it was kept
	Seen     time.Time `json:"-"` // last; of the store's clock
}

// ChainLayer is one of them.
type ChainLayer struct {
	Name string `json:"name"`
	Most int64  `json:"most"` // attempts
}

// NoteChains adds to the chains that were seen. Requests is how many came through each since it was noted last.
func (b *Board) NoteChains(ctx context.Context, chains []Chain) error {
	args := []any{ChainsKept.Milliseconds(), MaxChains}
	for _, c := range chains {
		key, err := json.Marshal(c)
		if err != nil {
			return fmt.Errorf("note chains: %w", err)
		}
		args = append(args, key, c.Requests)
	}
	if err := chainsScript.Run(ctx, b.rdb, []string{chainsKey}, args...).Err(); err != nil {
		return fmt.Errorf("note chains: %w", err)
	}
	return nil
}

// Chains returns the chains that were seen lately, the latest first.
func (b *Board) Chains(ctx context.Context) ([]Chain, error) {
	now, err := clockScript.Run(ctx, b.rdb, []string{chainsKey}).Text()
	if err != nil {
		return nil, fmt.Errorf("chains: %w", err)
	}
	all, err := b.rdb.HGetAll(ctx, chainsKey).Result()
	if err != nil {
		return nil, fmt.Errorf("chains: %w", err)
	}
	oldest := moment(now).Add(-ChainsKept)
	list := make([]Chain, 0, len(all))
	for key, value := range all {
		var c Chain
		if err := json.Unmarshal([]byte(key), &c); err != nil {
			return nil, fmt.Errorf("chains: %q: %w", key, err)
		}
		seen, requests, _ := strings.Cut(value, ",")
		c.Seen, c.Requests = moment(seen), integer(requests)
		if c.Seen.After(oldest) {
			list = append(list, c)
		}
	}
	slices.SortFunc(list, func(a, b Chain) int {
		if d := b.Seen.Compare(a.Seen); d != 0 {
			return d
		}
		return strings.Compare(a.Dependency, b.Dependency)
	})
	return list, nil
}
