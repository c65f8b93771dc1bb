package api

import (
	_ "embed"
	"net/http"
	"time"

	"github.com/gin-gonic/gin"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/retryplane/retryplane/pkg/wire"
)

//go:embed openapi.yaml
var openAPI []byte

// OpenAPI returns the description of the API, OpenAPI 3.1 in YAML.
func OpenAPI() []byte { return append([]byte(nil), openAPI...) }

const pathOpenAPI = "/v1/openapi.yaml"

// status says how this replica is. It counts only what the caller may see.
func (s *Server) status(c *gin.Context) error {
	h := s.exchange.Health()
	st := wire.Status{
		Version: s.version, Ready: h.Ready, Degraded: h.Degraded, Store: s.store, StoreUp: !h.Degraded,
		StreamClients: s.hub.count(), UptimeMS: time.Since(s.started).Milliseconds(),
	}
	if h.Err != nil {
		st.StoreError = h.Err.Error()
	}
	who := callerOf(c)
	for name := range s.exchange.Totals() {
		if who.sees(name) {
			st.Dependencies++
		}
	}
	return answer(c, st)
}

func (s *Server) whoami(c *gin.Context) error {
	who := callerOf(c)
	return answer(c, wire.Whoami{Name: who.name, Roles: who.roles.words(), Dependencies: who.globs})
}

func (s *Server) openAPI(c *gin.Context) error {
	c.Header("Content-Type", "application/yaml")
	c.Status(http.StatusOK)
	_, _ = c.Writer.Write(openAPI)
	return nil
}

// livez says that the process serves.
func (s *Server) livez(c *gin.Context) error { return ok(c) }

// readyz says that the replica has been in touch with its store once. It stays so when the store goes away: all
// replicas would go out of the load balancer at once, and with them the last known views.
func (s *Server) readyz(c *gin.Context) error {
	if !s.exchange.Health().Ready {
		return problem(http.StatusServiceUnavailable, wire.CodeStoreUnavailable, "the store has not answered yet")
	}
	return ok(c)
}

func ok(c *gin.Context) error {
	c.Header("Content-Type", "text/plain; charset=utf-8")
	c.Status(http.StatusOK)
	_, _ = c.Writer.WriteString("ok\n")
	return nil
}

// metrics shows all dependencies, so a token that may see only some of them gets none.
func (s *Server) metrics(c *gin.Context) error {
	if who := callerOf(c); !who.seesAll() {
		return problem(http.StatusForbidden, wire.CodeForbidden, "metrics are for tokens that see all dependencies")
	}
	promhttp.HandlerFor(s.registry, promhttp.HandlerOpts{}).ServeHTTP(c.Writer, c.Request)
	return nil
}
