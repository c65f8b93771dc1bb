package sharedbreaker

import (
	"context"
	"fmt"
	"time"

	"github.com/retryplane/retryplane/pkg/policy"
)

// Read returns a whole group. It changes nothing: an open breaker whose time is over is returned as such, see
// [policy.Breaker.At]. The epoch is "" for a group of which the store knows nothing, or lost everything. An override
// that has expired is returned until Advance has logged it.
func (b *Board) Read(ctx context.Context, group int) (Group, error) {
	k := groupKeys[group]
	r := newReply(readScript.Run(ctx, b.rdb, []string{k.epoch, k.deps, k.overrides, k.policies}))
	g := Group{Number: group, Now: moment(r.text()), Epoch: r.text()}
	overrides, policies, rows := records(r.list()), records(r.list()), r.list()
	if r.err != nil {
		return Group{}, fmt.Errorf("read group %d: %w", group, r.err)
	}
	for rows.more() {
		row := rows.list()
		s := Standing{Name: row.text(), Now: g.Now, Epoch: g.Epoch, LastReport: moment(row.text())}
		s.Breaker = decodeBreaker(g.Epoch, row.text())
		s.Override, s.Policy = overrides[s.Name].override(), policies[s.Name].policy()
		s.adopt(decodeFleet(row.text()))
		s.NotBefore = moment(row.text())
		for row.more() {
			s.Window.addRecent(row.text(), g.Now)
		}
		if row.err != nil {
			return Group{}, fmt.Errorf("read group %d: %w", group, row.err)
		}
		g.Standings = append(g.Standings, s)
	}
	listed := make(map[string]bool, len(g.Standings))
	for _, s := range g.Standings {
		listed[s.Name] = true
	}
	for name, s := range overrides {
		if o := s.override(); o.Mode != policy.ModeNone && !listed[name] {
			// The index may be lost after a day without replicas; what is forced stays visible.
			g.Standings = append(g.Standings, Standing{
				Name: name, Now: g.Now, Epoch: g.Epoch, Override: o, Policy: policies[name].policy(),
			})
		}
		g.Saved = append(g.Saved, Saved{KindOverride, name, s.revision, s.deleted, s.json, s.until})
	}
	for name, s := range policies {
		g.Saved = append(g.Saved, Saved{KindPolicy, name, s.revision, s.deleted, s.json, s.until})
	}
	return g, nil
}

// addRecent adds a slot of the display counters if it lies within the last 10 s.
func (d *Display) addRecent(slot string, now time.Time) {
	const window = 10
	second, counters := decodeDisplay(slot)
	if back := now.Unix() - second; back < 0 || back >= window {
		return
	}
	more := counters.counters()
	for i, c := range d.counters() {
		*c += *more[i]
	}
}

func records(r *reply) map[string]stored {
	all := make(map[string]stored, len(r.values)/2)
	for r.more() {
		name, value := r.text(), r.text()
		if s, ok := decodeRecord(value); ok {
			all[name] = s
		}
	}
	return all
}
