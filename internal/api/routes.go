package api

import (
	"errors"
	"fmt"
	"net/http"
	"runtime/debug"
	"strings"

	"github.com/gin-gonic/gin"

	"github.com/retryplane/retryplane/pkg/wire"
)

// route is one operation of the API. The routes and openapi.yaml say the same; a test compares them.
type route struct {
	method string
	path   string
	needs  roles // any of these; 0 = no token needed
	handle func(*gin.Context) error
}

const pathDependency = wire.PathDependencies + "/:name"

func (s *Server) routes() []route {
	const anyRole = roleReport | roleRead | roleOperate
	return []route{
		{http.MethodPost, wire.PathSync, roleReport, s.sync},
		{http.MethodGet, wire.PathStream, roleReport | roleRead, s.stream},

		{http.MethodGet, wire.PathDependencies, roleRead, s.listDependencies},
		{http.MethodGet, pathDependency, roleRead, s.getDependency},
		{http.MethodGet, pathDependency + "/series", roleRead, s.getSeries},
		{http.MethodGet, wire.PathTransitions, roleRead, s.listTransitions},
		{http.MethodGet, wire.PathChains, roleRead, s.listChains},
		{http.MethodGet, wire.PathStatus, roleRead, s.status},
		{http.MethodGet, wire.PathWhoami, anyRole, s.whoami},
		{http.MethodGet, pathOpenAPI, anyRole, s.openAPI},

		{http.MethodPut, pathDependency + "/override", roleOperate, s.putOverride},
		{http.MethodDelete, pathDependency + "/override", roleOperate, s.deleteOverride},
		{http.MethodPost, pathDependency + "/reset", roleOperate, s.reset},
		{http.MethodPut, pathDependency + "/policy", roleOperate, s.putPolicy},
		{http.MethodDelete, pathDependency + "/policy", roleOperate, s.deletePolicy},
		{http.MethodDelete, pathDependency, roleOperate, s.forget},

		{http.MethodGet, "/metrics", roleRead, s.metrics},
		{http.MethodGet, "/livez", 0, s.livez},
		{http.MethodGet, "/readyz", 0, s.readyz},
	}
}

// serve lets in who may call r and turns what its handler returns into a problem.
func (s *Server) serve(r route) gin.HandlerFunc {
	return func(c *gin.Context) {
		if r.needs != 0 {
			who, err := s.auth.identify(c.Request)
			if err == nil && who.roles&r.needs == 0 {
				err = problem(http.StatusForbidden, wire.CodeForbidden,
					fmt.Sprintf("this needs the role %s; the token %q has %s", r.needs, who.name, who.roles))
			}
			if err != nil {
				s.fail(c, err)
				return
			}
			c.Set(callerKey, who)
		}
		if err := r.handle(c); err != nil {
			s.fail(c, err)
		}
	}
}

// guard runs around every request: it sets the headers that all answers carry and catches panics.
func (s *Server) guard(c *gin.Context) {
	h := c.Writer.Header()
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("X-Frame-Options", "DENY")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'")
	h.Set("Cache-Control", "no-store")
	defer func() {
		reason := recover()
		if reason == nil {
			return
		}
		if err, ok := reason.(error); ok && errors.Is(err, http.ErrAbortHandler) {
			panic(reason) // the server's own way to end a connection
		}
		s.log.Error("panic in a handler", "panic", fmt.Sprint(reason), "method", c.Request.Method,
			"route", c.FullPath(), "stack", string(debug.Stack()))
		if c.Writer.Written() {
			panic(http.ErrAbortHandler) // half an answer must not look like a whole one
		}
		s.write(c, problem(http.StatusInternalServerError, wire.CodeInternal, "the control plane has a defect; its log says more"))
	}()
	c.Next()
}

// sameOrigin refuses what a browser sends for another site's page: with auth off nothing else would stop that page from
// resetting breakers on loopback, because a POST without a body needs nobody's leave.
func (s *Server) sameOrigin(c *gin.Context) {
	if err := s.origins.Check(c.Request); err != nil {
		s.fail(c, problem(http.StatusForbidden, wire.CodeForbidden, "the request comes from a page of another site"))
	}
}

// elsewhere serves the page, and a problem for what is neither a route nor a page. Under /v1 a token comes first, so
// that nobody without one learns which routes there are.
func (s *Server) elsewhere(c *gin.Context) {
	path := c.Request.URL.Path
	if underAPI(path) {
		if _, err := s.auth.identify(c.Request); err != nil {
			s.fail(c, err)
			return
		}
	} else if s.page != nil && c.Request.Method == http.MethodGet {
		s.servePage(c)
		return
	}
	s.fail(c, problem(http.StatusNotFound, wire.CodeNotFound, "there is nothing at this path"))
}

func (s *Server) wrongMethod(c *gin.Context) {
	if underAPI(c.Request.URL.Path) {
		if _, err := s.auth.identify(c.Request); err != nil {
			s.fail(c, err)
			return
		}
	}
	s.fail(c, problem(http.StatusMethodNotAllowed, wire.CodeMethod, "this path takes "+c.Writer.Header().Get("Allow")))
}

func underAPI(path string) bool { return path == "/v1" || strings.HasPrefix(path, "/v1/") }

// servePage hands over to the embedded page, which loads nothing from anywhere else.
func (s *Server) servePage(c *gin.Context) {
	h := c.Writer.Header()
	h.Set("Content-Security-Policy", "default-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'; object-src 'none'")
	h.Del("Cache-Control")  // the page knows how long its files last
	c.Status(http.StatusOK) // gin came here with 404
	w := &pageWriter{ResponseWriter: c.Writer}
	s.page.ServeHTTP(w, c.Request)
	if w.missing {
		s.fail(c, problem(http.StatusNotFound, wire.CodeNotFound, "there is nothing at this path"))
	}
}

// pageWriter holds back the page's own 404, which is no problem+json.
type pageWriter struct {
	http.ResponseWriter
	missing bool
}

func (w *pageWriter) WriteHeader(status int) {
	if w.missing = status == http.StatusNotFound; !w.missing {
		w.ResponseWriter.WriteHeader(status)
	}
}

func (w *pageWriter) Write(p []byte) (int, error) {
	if w.missing {
		return len(p), nil
	}
	return w.ResponseWriter.Write(p)
}
