package sharedbreaker

import (
	"encoding/json"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/retryplane/retryplane/pkg/policy"
)

// phases are the letters of the states in the stored form of a breaker; board.lua describes the whole of it.
const (
	phaseClosed  = "c"
	phaseOpen    = "o"
	phaseProbing = "h"
	phaseRamping = "r"
)

func phase(b policy.Breaker) string {
	switch {
	case b.State == policy.Open:
		return phaseOpen
	case b.State == policy.HalfOpen && b.Ramping:
		return phaseRamping
	case b.State == policy.HalfOpen:
		return phaseProbing
	}
	return phaseClosed
}

// head is what a commit compares: "epoch,generation,phase".
func head(epoch string, b policy.Breaker) string {
	return epoch + "," + text(b.Generation) + "," + phase(b)
}

// tag is the mark of the counters that count: "generation" "phase".
func tag(b policy.Breaker) string {
	return text(b.Generation) + phase(b)
}

func encodeBreaker(epoch string, b policy.Breaker) string {
	return strings.Join([]string{
		head(epoch, b), millis(b.Since), millis(b.Episode), millis(b.Until),
		text(b.Openings), text(b.Reopenings), text(b.Rate), b.Reason,
	}, ",")
}

// decodeBreaker returns the zero breaker, closed in generation 0, for what is not of that epoch.
func decodeBreaker(epoch, s string) policy.Breaker {
	const fields = 10
	f := strings.SplitN(s, ",", fields)
	if len(f) < fields || f[0] != epoch {
		return policy.Breaker{}
	}
	b := policy.Breaker{
		Generation: integer(f[1]), Since: moment(f[3]), Episode: moment(f[4]), Until: moment(f[5]),
		Openings: integer(f[6]), Reopenings: integer(f[7]), Rate: integer(f[8]), Reason: f[9],
	}
	switch f[2] {
	case phaseOpen:
		b.State = policy.Open
	case phaseProbing:
		b.State = policy.HalfOpen
	case phaseRamping:
		b.State, b.Ramping = policy.HalfOpen, true
	}
	return b
}

// fleet is the form in which the counts of instances are kept.
type fleet struct {
	at                          time.Time
	tag                         string
	rate                        policy.PPM
	instances, failing, applied int64
	revision                    int64
	level, older                int64 // of the sample, and before it fell at since
	since                       time.Time
}

func decodeFleet(s string) fleet {
	const fields = 10
	f := strings.Split(s, ",")
	if len(f) < fields {
		return fleet{}
	}
	return fleet{
		at: moment(f[0]), tag: f[1], rate: integer(f[2]),
		instances: integer(f[3]), failing: integer(f[4]), applied: integer(f[5]), revision: integer(f[6]),
		level: integer(f[7]), older: integer(f[8]), since: moment(f[9]),
	}
}

// decodeBucket reads "tag,index,successes,failures,slow"; ok is false for another tag's.
func decodeBucket(tag, s string) (b policy.Bucket, ok bool) {
	rest, ok := strings.CutPrefix(s, tag+",")
	if !ok {
		return b, false
	}
	var n [4]int64
	if !integers(n[:], rest) {
		return b, false
	}
	return policy.Bucket{Index: n[0], Success: n[1], Failure: n[2], Slow: n[3]}, true
}

// decodeRun reads "tag,run,version"; both are 0 under another tag.
func decodeRun(tag, s string) (run, version int64) {
	rest, ok := strings.CutPrefix(s, tag+",")
	var n [2]int64
	if ok {
		integers(n[:], rest)
	}
	return n[0], n[1]
}

// The order of the display counters in Redis. New ones go to the end.
const displayCounters = 15

func (d *Display) counters() [displayCounters]*int64 {
	a := &d.AttemptsPerRequest
	return [displayCounters]*int64{
		&d.Requests, &d.Attempts, &d.Success, &d.Failure, &d.Throttled, &d.Ignored, &d.RejectedBreaker, &d.RejectedBudget,
		&a[0], &a[1], &a[2], &a[3], &a[4], &d.LatencySumMS, &d.LatencyCount,
	}
}

// decodeDisplay reads the counters of one second: "second,counter,...".
func decodeDisplay(s string) (second int64, d Display) {
	var n [1 + displayCounters]int64
	integers(n[:], s)
	for i, c := range d.counters() {
		*c = n[1+i]
	}
	return n[0], d
}

// stored is a record of an override or a policy, or the tombstone of one.
type stored struct {
	revision int64
	deleted  bool
	until    time.Time
	json     string
}

func decodeRecord(s string) (stored, bool) {
	f := strings.SplitN(s, ",", 4)
	if len(f) < 4 {
		return stored{}, false
	}
	return stored{integer(f[0]), f[1] == "1", moment(f[2]), f[3]}, true
}

// order is the document of an override.
type order struct {
	Mode      policy.Mode `json:"mode"`
	Reason    string      `json:"reason"`
	Actor     string      `json:"actor"`
	CreatedMS int64       `json:"created_ms,omitempty"`
}

// override is the override that was stored, in force or not; the zero value for a tombstone.
func (s stored) override() policy.Override {
	var o order
	if s.deleted || json.Unmarshal([]byte(s.json), &o) != nil {
		return policy.Override{}
	}
	return policy.Override{
		Mode: o.Mode, Revision: s.revision, Reason: o.Reason, Actor: o.Actor,
		Created: time.UnixMilli(o.CreatedMS), Expires: s.until,
	}
}

func (s stored) policy() Record {
	if s.deleted {
		return Record{}
	}
	return Record{Version: s.revision, JSON: s.json}
}

// integers reads numbers between commas into n, as many as there are, and reports whether all of them were there.
func integers(n []int64, s string) bool {
	for i := range n {
		field, rest, more := strings.Cut(s, ",")
		n[i], s = integer(field), rest
		if !more {
			return i == len(n)-1
		}
	}
	return true
}

// integer reads a number as Redis writes it, sums and scores that grew an exponent included; 0 for anything else.
func integer(s string) int64 {
	if n, err := strconv.ParseInt(s, 10, 64); err == nil {
		return n
	}
	f, err := strconv.ParseFloat(s, 64)
	if err != nil || math.IsNaN(f) {
		return 0
	}
	return int64(min(max(f, -1<<62), 1<<62))
}

// moment reads a time in ms, the zero time for 0.
func moment(s string) time.Time {
	ms := integer(s)
	if ms == 0 {
		return time.Time{}
	}
	return time.UnixMilli(ms)
}

func millis(t time.Time) string {
	if t.IsZero() {
		return "0"
	}
	return text(t.UnixMilli())
}

func text(n int64) string { return strconv.FormatInt(n, 10) }

func split(s string) []string {
	if s == "" {
		return nil
	}
	return strings.Split(s, ";")
}
