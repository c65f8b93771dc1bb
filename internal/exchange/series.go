package exchange

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/retryplane/retryplane/internal/sharedbreaker"
	"github.com/retryplane/retryplane/pkg/wire"
)

// SeriesMost is the longest history that there is.
const SeriesMost = sharedbreaker.SeriesMost

// Series reads a dependency's history over the last window, at most SeriesMost, from the store. Errors: ErrStore,
// ErrNotFound.
func (x *Exchange) Series(ctx context.Context, name string, window time.Duration) (wire.Series, error) {
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	s, err := x.board.Series(ctx, name, window)
	switch {
	case errors.Is(err, sharedbreaker.ErrNotFound):
		return wire.Series{}, fmt.Errorf("%w: %w", ErrNotFound, err)
	case err != nil:
		return wire.Series{}, fmt.Errorf("%w: %w", ErrStore, err)
	}
	out := wire.Series{Name: name, Start: s.Start.UTC(), StepMS: sharedbreaker.SeriesStep.Milliseconds()}
	for _, d := range s.Steps {
		out.Requests = append(out.Requests, d.Requests)
		out.Attempts = append(out.Attempts, d.Attempts)
		out.Success = append(out.Success, d.Success)
		out.Failure = append(out.Failure, d.Failure)
		out.Throttled = append(out.Throttled, d.Throttled)
		out.Ignored = append(out.Ignored, d.Ignored)
		out.RejectedBreaker = append(out.RejectedBreaker, d.RejectedBreaker)
		out.RejectedBudget = append(out.RejectedBudget, d.RejectedBudget)
		for i, n := range d.AttemptsPerRequest {
			out.AttemptsPerRequest[i] += n
		}
	}
	return out, nil
}
