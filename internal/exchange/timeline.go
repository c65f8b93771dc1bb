package exchange

import (
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/retryplane/retryplane/internal/keyspace"
	"github.com/retryplane/retryplane/internal/sharedbreaker"
	"github.com/retryplane/retryplane/pkg/policy"
	"github.com/retryplane/retryplane/pkg/wire"
)

// timeline remembers which log entries this replica has told its watchers of.
type timeline struct {
	mu   sync.Mutex
	last [keyspace.Groups]string          // newest entry read; "" = none yet
	own  [keyspace.Groups]map[string]bool // entries after last that this replica wrote and told of at once
}

// beforeAll is below every id that Redis gives.
const beforeAll = "0-0"

// following reports whether the group's log was read before: only what comes after that is news.
func (tl *timeline) following(group int) bool {
	tl.mu.Lock()
	defer tl.mu.Unlock()
	return tl.last[group] != ""
}

// committed counts, logs and tells a transition that this replica committed.
func (x *Exchange) committed(t sharedbreaker.Transition) {
	x.timeline.mu.Lock()
	own := &x.timeline.own[keyspace.Group(t.Dependency)]
	if *own == nil {
		*own = make(map[string]bool)
	}
	(*own)[t.ID] = true
	x.timeline.mu.Unlock()

	x.tally.transition(t)
	x.log.Info("transition",
		slog.String("dependency", t.Dependency), slog.String("from", t.From.String()), slog.String("to", t.To.String()),
		slog.String("cause", string(t.Cause)), slog.String("reason", t.Reason), slog.String("actor", t.Actor),
		slog.Int64("generation", t.Generation))
	x.emit(Event{Transition: new(transition(t))})
}

// followLog tells the watchers of transitions that other replicas committed.
func (x *Exchange) followLog(ctx context.Context, group int) error {
	const most = 100
	entries, err := x.board.Transitions(ctx, group, "", most, "")
	if err != nil {
		return fmt.Errorf("read the log of group %d: %w", group, err)
	}
	tl := &x.timeline
	tl.mu.Lock()
	last, own := tl.last[group], tl.own[group]
	switch {
	case len(entries) > 0:
		tl.last[group], tl.own[group] = entries[0].ID, nil
	case last == "":
		tl.last[group] = beforeAll
	}
	var others []sharedbreaker.Transition
	for _, t := range slices.Backward(entries) {
		if last != "" && compareIDs(t.ID, last) > 0 && !own[t.ID] {
			others = append(others, t)
		}
	}
	tl.mu.Unlock()
	for _, t := range others {
		x.emit(Event{Transition: new(transition(t))})
	}
	return nil
}

// TransitionQuery selects from the transition log. The zero value is the newest 100 of everything.
type TransitionQuery struct {
	Dependency string // "" = all
	Cursor     string // what an earlier answer gave as Next
	Limit      int    // 1 to 1000, 0 = 100
	Reopenings bool   // also the reopenings and probings within an episode
}

// Transitions reads the log, newest first. Errors: ErrStore, and ErrNotFound for a cursor that never was.
func (x *Exchange) Transitions(ctx context.Context, q TransitionQuery) (wire.TransitionList, error) {
	limit := q.Limit
	if limit == 0 {
		limit = 100
	}
	list := wire.TransitionList{Transitions: []wire.Transition{}}
	before, err := parseCursor(q.Cursor)
	if err != nil {
		return list, err
	}
	groups := make([]int, 0, keyspace.Groups)
	if q.Dependency != "" {
		groups = append(groups, keyspace.Group(q.Dependency))
	} else {
		for g := range keyspace.Groups {
			groups = append(groups, g)
		}
	}
	ctx, cancel := context.WithTimeout(ctx, 3*storeTimeout)
	defer cancel()
	var all []sharedbreaker.Transition
	for _, g := range groups {
		entries, err := x.readLog(ctx, g, before, limit+1, q)
		if err != nil {
			return list, fmt.Errorf("%w: %w", ErrStore, err)
		}
		all = append(all, entries...)
	}
	slices.SortFunc(all, func(a, b sharedbreaker.Transition) int {
		if c := compareIDs(b.ID, a.ID); c != 0 {
			return c
		}
		return cmp.Compare(keyspace.Group(a.Dependency), keyspace.Group(b.Dependency))
	})
	if len(all) > limit {
		all = all[:limit]
		list.Next = formatCursor(all[limit-1])
	}
	for _, t := range all {
		list.Transitions = append(list.Transitions, transition(t))
	}
	return list, nil
}

// readLog reads up to limit entries of one group that q wants and that come after the cursor's entry.
func (x *Exchange) readLog(ctx context.Context, group int, c cursor, limit int, q TransitionQuery) ([]sharedbreaker.Transition, error) {
	const page = 500
	var out []sharedbreaker.Transition
	before := c.before(group)
	for {
		entries, err := x.board.Transitions(ctx, group, before, page, q.Dependency)
		if err != nil {
			return nil, fmt.Errorf("read the log of group %d: %w", group, err)
		}
		for _, t := range entries {
			within := t.Cause == policy.CauseReopen || t.Cause == policy.CauseProbe
			if within && !q.Reopenings || !c.after(t) {
				continue
			}
			if out = append(out, t); len(out) == limit {
				return out, nil
			}
		}
		if len(entries) < page {
			return out, nil
		}
		before = entries[len(entries)-1].ID
	}
}

// cursor is the last entry of a page. Entries of different groups may share an id; among them the group decides. It
// names no dependency: who holds it may not be allowed to know of that one.
type cursor struct {
	ID    string `json:"i"`
	Group int    `json:"g"`
}

func formatCursor(t sharedbreaker.Transition) string {
	b, _ := json.Marshal(cursor{t.ID, keyspace.Group(t.Dependency)}) // a string and a number always encode
	return base64.RawURLEncoding.EncodeToString(b)
}

func parseCursor(s string) (c cursor, err error) {
	if s == "" {
		return c, nil
	}
	b, err := base64.RawURLEncoding.DecodeString(s)
	if err != nil || json.Unmarshal(b, &c) != nil || !validID(c.ID) {
		return c, fmt.Errorf("cursor: %w", ErrNotFound)
	}
	return c, nil
}

// before is the id below which a group's entries may come after the cursor's.
func (c cursor) before(group int) string {
	if c.ID == "" || c.Group >= group {
		return c.ID
	}
	ms, n := splitID(c.ID)
	return fmt.Sprintf("%d-%d", ms, n+1) // another group may have an entry of the very id
}

func (c cursor) after(t sharedbreaker.Transition) bool {
	if c.ID == "" {
		return true
	}
	order := compareIDs(t.ID, c.ID)
	return order < 0 || order == 0 && keyspace.Group(t.Dependency) > c.Group
}

func validID(id string) bool {
	ms, n, ok := strings.Cut(id, "-")
	_, err1 := strconv.ParseUint(ms, 10, 62)
	_, err2 := strconv.ParseUint(n, 10, 62)
	return ok && err1 == nil && err2 == nil
}

// compareIDs orders the ids of log entries, "milliseconds-number".
func compareIDs(a, b string) int {
	am, an := splitID(a)
	bm, bn := splitID(b)
	if am != bm {
		return int(min(max(am-bm, -1), 1))
	}
	return int(min(max(an-bn, -1), 1))
}

func splitID(id string) (ms, n int64) {
	left, right, _ := strings.Cut(id, "-")
	ms, _ = strconv.ParseInt(left, 10, 64) // Redis wrote it; what is no number sorts first
	n, _ = strconv.ParseInt(right, 10, 64)
	return ms, n
}
