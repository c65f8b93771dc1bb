// Package api is the control plane's HTTP surface: the routes of /v1, who may call them, the event stream, the metrics
// and the page. It decides nothing about breakers and budgets; it checks what comes in, asks the exchange and writes
// the answer. It is the only package that knows gin.
package api

import (
	"context"
	"log/slog"
	"net/http"
	"time"

	"github.com/gin-gonic/gin"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/retryplane/retryplane/internal/exchange"
	"github.com/retryplane/retryplane/pkg/wire"
)

// Deps is what a Server needs. Only Exchange is required.
type Deps struct {
	Exchange *exchange.Exchange
	Auth     *Auth                // nil = off: everybody is "anonymous" and may do everything
	Log      *slog.Logger         // nil = discard
	Version  string               // of this program, for status and metrics
	Store    string               // "embedded" or "redis", for status
	Registry *prometheus.Registry // what /metrics shows; nil = a new one
	// MaxStreams bounds the open event streams; one more is refused as busy. 0 = 10,000.
	MaxStreams int
	Page       http.Handler // serves every GET outside /v1; nil = 404
}

// Server answers the requests of one replica. It is an http.Handler, safe for concurrent use. Streams carry events only
// while Run runs.
type Server struct {
	exchange *exchange.Exchange
	auth     *Auth
	log      *slog.Logger
	version  string
	store    string
	registry *prometheus.Registry
	page     http.Handler
	hub      *hub
	origins  *http.CrossOriginProtection
	engine   *gin.Engine
	started  time.Time
}

func init() { gin.SetMode(gin.ReleaseMode) } // a process-wide setting, so not New's to change while another one serves

// New returns a Server and registers its metrics at d.Registry. It panics when a metric of the same name is there.
func New(d Deps) *Server {
	const defaultStreams = 10_000
	if d.Log == nil {
		d.Log = slog.New(slog.DiscardHandler)
	}
	if d.Registry == nil {
		d.Registry = prometheus.NewRegistry()
	}
	if d.MaxStreams <= 0 {
		d.MaxStreams = defaultStreams
	}
	s := &Server{
		exchange: d.Exchange, auth: d.Auth, log: d.Log, version: d.Version, store: d.Store, registry: d.Registry,
		page: d.Page, hub: newHub(d.Exchange, d.MaxStreams), origins: http.NewCrossOriginProtection(), engine: gin.New(), started: time.Now(),
	}
	registerMetrics(d.Registry, d.Exchange, s.hub, d.Version)

	e := s.engine
	e.UseRawPath, e.UnescapePathValues = true, true // names contain '/', which travels as %2F
	e.RedirectTrailingSlash = false                 // a redirect would lose the escapes
	e.HandleMethodNotAllowed = true
	e.ContextWithFallback = false
	if err := e.SetTrustedProxies(nil); err != nil {
		panic(err) // only for a list that does not parse
	}
	e.Use(s.guard, s.sameOrigin)
	for _, r := range s.routes() {
		e.Handle(r.method, r.path, s.serve(r))
	}
	e.NoRoute(s.elsewhere)
	e.NoMethod(s.wrongMethod)
	return s
}

// Run feeds the event streams until ctx ends.
func (s *Server) Run(ctx context.Context) { s.hub.run(ctx) }

// Drain tells every stream to go elsewhere, ends it, and refuses new ones. It returns when all have ended, which takes
// at most as long as one write may. Calling it again is harmless.
func (s *Server) Drain() { s.hub.drain() }

// ServeHTTP implements http.Handler. HEAD is answered as GET; net/http leaves the body out.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method == http.MethodHead && r.URL.Path != wire.PathStream {
		r = r.WithContext(r.Context()) // a copy: the server still has to see HEAD
		r.Method = http.MethodGet
	}
	s.engine.ServeHTTP(w, r)
}
