package api

import (
	"slices"

	"github.com/gin-gonic/gin"

	"github.com/retryplane/retryplane/pkg/policy"
	"github.com/retryplane/retryplane/pkg/wire"
)

// listChains lists the chains of retrying layers above the dependencies that the token may see.
func (s *Server) listChains(c *gin.Context) error {
	q := &query{c: c}
	who := callerOf(c)
	only := c.Query("dependency")
	if only != "" && !policy.ValidName(only) {
		q.wrong("dependency", policy.NameLimit)
	}
	least := int64(q.number("min_product", 1, 1_000_000_000))
	if len(q.fields) > 0 {
		return invalid(q.fields...)
	}
	if only != "" && !who.sees(only) {
		return who.forbidden(wire.ProblemField{Field: "dependency", Limit: who.limit() + ", not " + only})
	}
	list, err := s.exchange.Chains(c.Request.Context())
	if err != nil {
		return err
	}
	list.Chains = slices.DeleteFunc(list.Chains, func(n wire.SeenChain) bool {
		return !who.sees(n.Dependency) || only != "" && n.Dependency != only || n.Product < least
	})
	return answer(c, list)
}
