package api_test

import (
	"net/http"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/getkin/kin-openapi/openapi3filter"
	"github.com/getkin/kin-openapi/routers"

	"github.com/retryplane/retryplane/internal/api"
	"github.com/retryplane/retryplane/pkg/wire"
)

var spec = sync.OnceValues(func() (*openapi3.T, error) {
	return openapi3.NewLoader().LoadFromData(api.OpenAPI())
})

var pathVariable = regexp.MustCompile(`\{[a-z]+\}`)

// checkAnswer holds an answer against openapi.yaml, if its path is in it.
func checkAnswer(t *testing.T, req *http.Request, resp *http.Response, body []byte) {
	t.Helper()
	doc, err := spec()
	if err != nil {
		t.Fatal(err)
	}
	media := resp.Header.Get("Content-Type")
	if media != "application/json" && media != wire.ContentType {
		return // the filter decodes no others
	}
	for path, item := range doc.Paths.Map() {
		pattern := regexp.MustCompile("^" + pathVariable.ReplaceAllString(path, "[^/]+") + "$")
		op := item.GetOperation(req.Method)
		if op == nil || !pattern.MatchString(req.URL.EscapedPath()) {
			continue
		}
		in := &openapi3filter.ResponseValidationInput{
			RequestValidationInput: &openapi3filter.RequestValidationInput{
				Request: req, Route: &routers.Route{Spec: doc, Path: path, PathItem: item, Method: req.Method, Operation: op},
			},
			Status: resp.StatusCode, Header: resp.Header,
			Options: &openapi3filter.Options{IncludeResponseStatus: true, MultiError: true},
		}
		in.SetBodyBytes(body)
		if err := openapi3filter.ValidateResponse(t.Context(), in); err != nil {
			t.Errorf("%s %s does not answer as openapi.yaml says: %v\n%s", req.Method, path, err, body)
		}
	}
}

func TestOpenAPIIsValid(t *testing.T) {
	t.Parallel()
	doc, err := spec()
	if err != nil {
		t.Fatal(err)
	}
	if err := doc.Validate(t.Context()); err != nil {
		t.Error(err)
	}
}

// TestOpenAPIMatchesRoutes: every route is described, everything described is a route.
func TestOpenAPIMatchesRoutes(t *testing.T) {
	t.Parallel()
	doc, err := spec()
	if err != nil {
		t.Fatal(err)
	}
	var described []string
	for path, item := range doc.Paths.Map() {
		for method := range item.Operations() {
			described = append(described, method+" "+strings.ReplaceAll(path, "{name}", ":name"))
		}
	}
	served := start(t).server.Routes()
	for _, s := range served {
		if !slices.Contains(described, s) {
			t.Errorf("openapi.yaml does not describe %s", s)
		}
	}
	for _, d := range described {
		if !slices.Contains(served, d) {
			t.Errorf("openapi.yaml describes %s, which is not there", d)
		}
	}
}

// TestOpenAPIServed: the file itself can be read.
func TestOpenAPIServed(t *testing.T) {
	t.Parallel()
	got := start(t).do("GET", "/v1/openapi.yaml", nil)
	if got.status != 200 || string(got.body) != string(api.OpenAPI()) {
		t.Errorf("got %d and %d bytes", got.status, len(got.body))
	}
}
