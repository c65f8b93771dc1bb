package api

import (
	"errors"
	"slices"

	"github.com/gin-gonic/gin"

	"github.com/retryplane/retryplane/internal/exchange"
	"github.com/retryplane/retryplane/pkg/policy"
	"github.com/retryplane/retryplane/pkg/wire"
)

// listTransitions reads the log. A page for a token with globs may hold fewer entries than its limit and still have a
// next one, because what the token may not see is taken out of it.
func (s *Server) listTransitions(c *gin.Context) error {
	q := &query{c: c}
	who := callerOf(c)
	ask := exchange.TransitionQuery{
		Dependency: c.Query("dependency"), Cursor: c.Query("cursor"), Limit: q.limit(), Reopenings: q.truth("reopenings"),
	}
	if ask.Dependency != "" {
		if !policy.ValidName(ask.Dependency) {
			q.wrong("dependency", policy.NameLimit)
		} else if !who.sees(ask.Dependency) {
			return who.forbidden(wire.ProblemField{Field: "dependency", Limit: who.limit() + ", not " + ask.Dependency})
		}
	}
	if len(q.fields) > 0 {
		return invalid(q.fields...)
	}
	// A token that sees little must not have to turn many empty pages, nor make us read the whole log for one answer.
	const mostPages = 5
	var list wire.TransitionList
	for range mostPages {
		var err error
		list, err = s.exchange.Transitions(c.Request.Context(), ask)
		if errors.Is(err, exchange.ErrNotFound) {
			return invalid(wire.ProblemField{Field: "cursor", Limit: "what the page before gave as next"})
		}
		if err != nil {
			return err
		}
		list.Transitions = slices.DeleteFunc(list.Transitions, func(t wire.Transition) bool { return !who.sees(t.Dependency) })
		if len(list.Transitions) > 0 || list.Next == "" {
			break
		}
		ask.Cursor = list.Next
	}
	return answer(c, list)
}
