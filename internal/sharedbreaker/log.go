package sharedbreaker

import (
	"context"
	"fmt"
	"regexp"

	"github.com/redis/go-redis/v9"

	"github.com/retryplane/retryplane/pkg/policy"
)

var entryID = regexp.MustCompile(`^[0-9]{1,20}(-[0-9]{1,20})?$`)

// Transitions reads the transition log of a group, newest first: at most limit entries with ids below before, "" for
// the newest, of one dependency if name is not "". The store keeps about 10,000 entries per group, for 30 days after
// the latest. A before that cannot be an id is ErrNotFound.
func (b *Board) Transitions(ctx context.Context, group int, before string, limit int, name string) ([]Transition, error) {
	end := "+"
	if before != "" {
		if !entryID.MatchString(before) {
			return nil, fmt.Errorf("read the log before %q: %w", before, ErrNotFound)
		}
		end = "(" + before
	}
	page := limit
	if name != "" {
		const filtered = 1000
		page = filtered
	}
	var out []Transition
	for limit > 0 {
		entries, err := b.rdb.XRevRangeN(ctx, groupKeys[group].log, end, "-", int64(page)).Result()
		if err != nil {
			return nil, fmt.Errorf("read the log of group %d: %w", group, err)
		}
		for _, e := range entries {
			if t := transition(e); name == "" || t.Dependency == name {
				out = append(out, t)
			}
			if len(out) == limit {
				return out, nil
			}
		}
		if len(entries) < page {
			break
		}
		end = "(" + entries[len(entries)-1].ID
	}
	return out, nil
}

// transition reads an entry as board.lua's note writes it.
func transition(e redis.XMessage) Transition {
	field := func(name string) string {
		s, _ := e.Values[name].(string)
		return s
	}
	return Transition{
		ID: e.ID, Dependency: field("name"), From: state(field("from")), To: state(field("to")),
		Generation: integer(field("generation")), Reason: field("reason"), Cause: policy.Cause(field("cause")),
		Actor: field("actor"), At: moment(field("at")),
	}
}
