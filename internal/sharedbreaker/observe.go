package sharedbreaker

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/retryplane/retryplane/pkg/policy"
)

// Observe brings reports to the store and returns where their dependencies stand after it, one standing per report in
// their order. Names must differ and belong to the group. It makes the transitions that the reports give cause for,
// answers asks for probe permits, and registers dependencies that are new.
//
// It costs one script call per 128 reports, and further ones only for a dependency that is about to open, is being
// probed, or changes its state.
func (b *Board) Observe(ctx context.Context, group int, reports []Report) ([]Standing, error) {
	const most = 128
	standings := make([]Standing, 0, len(reports))
	for lot := range slices.Chunk(reports, most) {
		dossiers, err := b.observe(ctx, group, lot, false)
		if err != nil {
			return nil, err
		}
		for i := range dossiers {
			d := &dossiers[i]
			if err := b.decide(ctx, d, lot[i].Probes, lot[i].Asks, len(lot[i].Asks) > 0); err != nil {
				return nil, fmt.Errorf("decide on %q: %w", d.standing.Name, err)
			}
			standings = append(standings, d.standing)
		}
	}
	return standings, nil
}

// dossier is what a decision on one dependency rests on.
type dossier struct {
	group    int
	set      policy.BreakerPolicy
	lease    time.Duration
	standing Standing
	window   policy.Window // as much of it as the trip rules look at
	run      int64
}

// observe runs the script. With look it counts nothing and registers nothing.
func (b *Board) observe(ctx context.Context, group int, reports []Report, look bool) ([]dossier, error) {
	k := groupKeys[group]
	keys := make([]string, 0, 4+5*len(reports))
	keys = append(keys, k.epoch, k.deps, k.overrides, k.policies)
	args := make([]any, 0, 1+len(reports))
	args = append(args, b.newEpoch())
	for i := range reports {
		r := &reports[i]
		keys = append(keys, stateKey(r.Name), permitsKey(r.Name), sampleKey(r.Name), displayKey(r.Name), historyKey(r.Name))
		args = append(args, b.encodeReport(r, look))
	}

	sent := b.now()
	in := newReply(observeScript.Run(ctx, b.rdb, keys, args...))
	now, epoch, rows := moment(in.text()), in.text(), in.list()
	dossiers := make([]dossier, len(reports))
	for i := range dossiers {
		r := &reports[i]
		dossiers[i] = dossier{group: group, set: r.Policy, lease: r.ProbeLease}
		level := dossiers[i].read(rows.list(), now, epoch, r.Name)
		if !look {
			b.levels.set(r.Name, level)
		}
	}
	if in.err == nil {
		in.err = rows.err
	}
	if in.err != nil {
		return nil, fmt.Errorf("observe %d dependencies of group %d: %w", len(reports), group, in.err)
	}
	if !look && b.clocks.jumped(group, epoch, now, sent, b.now()) {
		if _, err := b.NewEpoch(ctx, group); err != nil {
			return nil, err
		}
		return b.observe(ctx, group, reports, true)
	}
	return dossiers, nil
}

// read takes a row as observe.lua returns it, and returns the level of the dependency's sample.
func (d *dossier) read(row *reply, now time.Time, epoch, name string) int {
	breaker, run, counts, buckets := row.text(), row.text(), row.text(), row.text()
	override, pol, last, notBefore := row.text(), row.text(), row.text(), row.text()
	d.standing = Standing{Name: name, Now: now, Epoch: epoch, Breaker: decodeBreaker(epoch, breaker), LastReport: moment(last), NotBefore: moment(notBefore)}
	if o, ok := decodeRecord(override); ok {
		d.standing.Override = o.override()
	}
	if p, ok := decodeRecord(pol); ok {
		d.standing.Policy = p.policy()
	}
	f := decodeFleet(counts)
	d.standing.adopt(f)

	t := tag(d.standing.Breaker)
	d.run, _ = decodeRun(t, run)
	d.window = decodeWindow(t, split(buckets))
	d.standing.FailureRate = d.window.Span(now, d.set.MinAttempts).FailureRate()
	return int(f.level)
}

// adopt takes the counts of instances, which the store renews at most once per second and only while there are reports.
func (s *Standing) adopt(f fleet) {
	if s.Now.Sub(f.at) > policy.MaxSpan {
		return
	}
	s.Instances = f.instances
	if f.revision == s.Override.Revision {
		s.Applied = f.applied
	}
	if f.tag == tag(s.Breaker) {
		s.Failing, s.FailureRate = f.failing, f.rate
	}
}

func decodeWindow(tag string, buckets []string) policy.Window {
	w := make(policy.Window, 0, len(buckets))
	for _, s := range buckets {
		if bucket, ok := decodeBucket(tag, s); ok {
			w = append(w, bucket)
		}
	}
	slices.SortFunc(w, func(a, b policy.Bucket) int { return int(b.Index - a.Index) })
	return w
}

// encodeReport writes a report in the form that observe.lua describes.
func (b *Board) encodeReport(r *Report, look bool) []byte {
	j := append(make([]byte, 0, 256+64*len(r.Instances)), `{"name":`...)
	j = appendString(j, r.Name)
	j = append(j, `,"min":`...)
	j = strconv.AppendInt(j, max(r.Policy.MinAttempts, 1), 10)
	if look {
		return append(j, `,"look":true}`...)
	}
	if len(r.Counts) > 0 {
		j = append(j, `,"counts":[`...)
		for i, c := range r.Counts {
			j = appendComma(j, i)
			j = appendString(append(j, '['), c.Epoch)
			j = appendNumbers(j, c.Generation, count(c.Success), count(c.Failure), count(c.Slow))
			j = append(j, ']')
		}
		j = append(j, ']')
	}
	if r.NotBefore > 0 {
		j = strconv.AppendInt(append(j, `,"defer":`...), min(r.NotBefore, MaxNotBefore).Milliseconds(), 10)
	}
	if r.Display != (Display{}) {
		j = append(j, `,"display":[`...)
		for i, c := range r.Display.counters() {
			j = appendComma(j, i)
			j = strconv.AppendInt(j, count(*c), 10)
		}
		j = append(j, ']')
	}
	if instances, level := b.levels.sample(r.Name, r.Instances); len(instances) > 0 {
		j = append(j, `,"instances":[`...)
		for i, in := range instances {
			j = appendComma(j, i)
			j = appendString(append(j, '['), in.ID)
			j = appendNumbers(j, int64(rank(in.ID)), int64(in.Verdict))
			j = appendString(append(j, ','), in.Epoch)
			j = appendNumbers(j, in.Generation, in.OverrideRevision)
			j = append(j, ']')
		}
		j = append(j, `],"level":`...)
		j = strconv.AppendInt(j, int64(level), 10)
	}
	return append(j, '}')
}

// count keeps a counter in bounds in which Lua writes sums without an exponent, whatever an instance claims.
func count(n int64) int64 {
	const most = 1_000_000_000
	return min(max(n, 0), most)
}

func appendComma(j []byte, i int) []byte {
	if i > 0 {
		return append(j, ',')
	}
	return j
}

func appendNumbers(j []byte, numbers ...int64) []byte {
	for _, n := range numbers {
		j = strconv.AppendInt(append(j, ','), n, 10)
	}
	return j
}

// appendString appends s as a JSON string; names and ids hardly ever need the general way.
func appendString(j []byte, s string) []byte {
	for i := range len(s) {
		if c := s[i]; c < ' ' || c > '~' || c == '"' || c == '\\' {
			quoted, _ := json.Marshal(s) // a string always encodes
			return append(j, quoted...)
		}
	}
	j = append(j, '"')
	j = append(j, s...)
	return append(j, '"')
}
