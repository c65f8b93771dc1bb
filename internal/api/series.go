package api

import (
	"fmt"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/retryplane/retryplane/internal/exchange"
	"github.com/retryplane/retryplane/pkg/wire"
)

// leastSeries is the shortest history that is worth asking for.
const leastSeries = time.Minute

// getSeries answers with a dependency's history over ?window=, an hour without it.
func (s *Server) getSeries(c *gin.Context) error {
	name, err := named(c)
	if err != nil {
		return err
	}
	window := exchange.SeriesMost
	if text := c.Query("window"); text != "" {
		window, err = time.ParseDuration(text)
		if err != nil || window < leastSeries || window > exchange.SeriesMost {
			return invalid(wire.ProblemField{Field: "window", Limit: fmt.Sprintf("a duration of %s to %s, such as 15m", short(leastSeries), short(exchange.SeriesMost))})
		}
	}
	series, err := s.exchange.Series(c.Request.Context(), name, window)
	if err != nil {
		return err
	}
	return answer(c, series)
}

// short writes a whole number of minutes or hours.
func short(d time.Duration) string {
	if d%time.Hour == 0 {
		return fmt.Sprintf("%dh", d/time.Hour)
	}
	return fmt.Sprintf("%dm", d/time.Minute)
}
