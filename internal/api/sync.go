package api

import (
	"fmt"

	"github.com/gin-gonic/gin"

	"github.com/retryplane/retryplane/pkg/wire"
)

// sync takes what an instance reports and answers with decisions.
func (s *Server) sync(c *gin.Context) error {
	var r wire.SyncRequest
	if err := read(c, &r, lenient); err != nil {
		return err
	}
	if wrong := checkSync(&r); len(wrong) > 0 {
		return invalid(wrong...)
	}
	who := callerOf(c)
	var out []wire.ProblemField
	for i := range r.Dependencies {
		if !who.sees(r.Dependencies[i].Name) && len(out) < mostFields {
			out = append(out, wire.ProblemField{
				Field: fmt.Sprintf("dependencies[%d].name", i), Limit: who.limit() + ", not " + r.Dependencies[i].Name,
			})
		}
	}
	if len(out) > 0 {
		return who.forbidden(out...)
	}
	resp, err := s.exchange.Sync(c.Request.Context(), callerOf(c).name, &r)
	if err != nil {
		return err
	}
	return answer(c, resp)
}
