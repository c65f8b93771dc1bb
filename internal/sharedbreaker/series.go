package sharedbreaker

import (
	"context"
	"fmt"
	"time"

	"github.com/retryplane/retryplane/internal/keyspace"
)

// History is kept in steps of SeriesStep for SeriesMost. The seconds of the current step are in the display ring; they
// are folded into the history when the next one begins, so a step costs Redis little more than nothing while it lasts.
const (
	SeriesStep = 15 * time.Second
	SeriesMost = time.Hour
)

// Series is the display counters of a dependency over a time, in steps of SeriesStep, oldest first. The last step is
// the current one.
type Series struct {
	Start time.Time // of the first step
	Steps []Display
}

// Series returns the history of a dependency over the last window, rounded up to whole steps; at least one step, at
// most SeriesMost. It changes nothing. ErrNotFound for an unknown dependency.
func (b *Board) Series(ctx context.Context, name string, window time.Duration) (Series, error) {
	n := int(min(max((window+SeriesStep-1)/SeriesStep, 1), SeriesMost/SeriesStep))
	k := groupKeys[keyspace.Group(name)]
	r := newReply(seriesScript.Run(ctx, b.rdb, []string{displayKey(name), historyKey(name), k.deps}, name, n))
	if found := r.int(); r.err == nil && found == 0 {
		return Series{}, fmt.Errorf("series of %q: %w", name, ErrNotFound)
	}
	now, underWay := moment(r.text()), r.int()
	steps, seconds := r.texts(), r.texts()
	if r.err != nil {
		return Series{}, fmt.Errorf("series of %q: %w", name, r.err)
	}
	width := int64(SeriesStep / time.Second)
	first := now.Unix()/width - int64(n) + 1
	s := Series{Start: time.Unix(first*width, 0), Steps: make([]Display, n)}
	add := func(step int64, d Display) {
		if i := step - first; i >= 0 && i < int64(n) {
			s.Steps[i].Add(d)
		}
	}
	for _, text := range steps {
		step, d := decodeDisplay(text)
		add(step, d)
	}
	for _, text := range seconds {
		if second, d := decodeDisplay(text); second/width == underWay {
			add(underWay, d)
		}
	}
	return s, nil
}
