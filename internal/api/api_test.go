package api_test

import (
	"bytes"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/retryplane/retryplane/internal/api"
	"github.com/retryplane/retryplane/pkg/wire"
)

// TestNamesWithSlashes: names hold '/', percent-encoded in paths, through a real socket and every call on them.
func TestNamesWithSlashes(t *testing.T) {
	t.Parallel()
	r := setup(t)
	const name = "billing/invoices@eu-1.v2"
	r.report(name)
	path := wire.PathDependencies + "/" + url.PathEscape(name)
	if got := want[wire.Dependency](r, 200, "GET", path, nil); got.Name != name {
		t.Errorf("got %q", got.Name)
	}
	if got := want[wire.Dependency](r, 200, "PUT", path+"/override", order); got.Name != name || got.Breaker.Effective != wire.Open {
		t.Errorf("got %+v", got.Breaker)
	}
	if got := want[wire.Dependency](r, 200, "DELETE", path+"/override", nil); got.Breaker.Override != nil {
		t.Errorf("got %+v", got.Breaker.Override)
	}
	want[wire.Dependency](r, 200, "POST", path+"/reset", nil)
	r.refused(404, wire.CodeNotFound, "GET", wire.PathDependencies+"/"+name, nil) // not encoded: another path
	if got := r.do("DELETE", path, nil); got.status != 204 {
		t.Errorf("forget: %d %s", got.status, got.body)
	}
	r.refused(404, wire.CodeNotFound, "GET", path, nil)
}

func TestOverrideLife(t *testing.T) {
	t.Parallel()
	r := setup(t)
	const path = wire.PathDependencies + "/payments"
	d := want[wire.Dependency](r, 200, "PUT", path+"/override", order, "If-Match", "0")
	o := d.Breaker.Override
	if o == nil || o.Actor != api.Anonymous || o.Reason != order.Reason || d.Breaker.Automatic.State != wire.Closed {
		t.Fatalf("got %+v %+v", d.Breaker, o)
	}
	r.refused(412, wire.CodePrecondition, "PUT", path+"/override", order, "If-Match", "0")
	r.refused(412, wire.CodePrecondition, "DELETE", path+"/override", nil, "If-Match", `"17"`)
	r.refused(400, wire.CodeMalformed, "PUT", path+"/override", order, "If-Match", "new")
	r.refused(409, wire.CodeConflict, "DELETE", path, nil)
	again := want[wire.Dependency](r, 200, "PUT", path+"/override", order, "If-Match", fmt.Sprintf(`"%d"`, o.Revision))
	if again.Breaker.Override.Revision <= o.Revision {
		t.Errorf("revision went from %d to %d", o.Revision, again.Breaker.Override.Revision)
	}
	want[wire.Dependency](r, 200, "DELETE", path+"/override", nil)
	r.refused(404, wire.CodeNotFound, "DELETE", path+"/override", nil)

	list := want[wire.TransitionList](r, 200, "GET", wire.PathTransitions+"?dependency=payments", nil)
	if len(list.Transitions) == 0 || list.Transitions[0].Cause != "operator" || list.Transitions[0].Actor != api.Anonymous {
		t.Errorf("got %+v", list.Transitions)
	}
}

func TestPolicyLife(t *testing.T) {
	t.Parallel()
	r := setup(t)
	r.report("crm")
	const path = wire.PathDependencies + "/crm/policy"
	p := wire.Policy{Breaker: &wire.BreakerPolicy{MinAttempts: new(int64(7))}}
	d := want[wire.Dependency](r, 200, "PUT", path, p, "If-Match", "0")
	if d.Policy.Source != "api" || *d.Policy.Breaker.MinAttempts != 7 || d.Policy.Version == 0 {
		t.Errorf("got %+v", d.Policy)
	}
	r.refused(412, wire.CodePrecondition, "PUT", path, p, "If-Match", "0")
	wrong := r.refused(422, wire.CodeInvalid, "PUT", path, wire.Policy{
		Breaker: &wire.BreakerPolicy{MinAttempts: new(int64(0))}, Budget: &wire.BudgetPolicy{Floor: new(int64(-1))},
	})
	if !hasFields(wrong, "breaker.min_attempts", "budget.floor") {
		t.Errorf("got %+v", wrong)
	}
	d = want[wire.Dependency](r, 200, "DELETE", path, nil)
	if d.Policy.Source != "default" {
		t.Errorf("got %+v", d.Policy)
	}
	r.refused(404, wire.CodeNotFound, "DELETE", path, nil)
}

func hasFields(p wire.Problem, fields ...string) bool {
	for _, f := range fields {
		if !slices.ContainsFunc(p.Errors, func(e wire.ProblemField) bool { return e.Field == f && e.Limit != "" }) {
			return false
		}
	}
	return true
}

// TestProblems: everything that can be wrong with a request, with its status, code and fields.
func TestProblems(t *testing.T) {
	t.Parallel()
	r := setup(t)
	const override = wire.PathDependencies + "/a/override"
	huge := `{"instance":"` + strings.Repeat("x", wire.MaxBody) + `"}`
	reports := `{"name":"a"}` + strings.Repeat(`,{"name":"a"}`, wire.MaxReports)
	for _, tt := range []struct {
		name         string
		method, path string
		body         any
		headers      []string
		status       int
		code         string
		fields       []string
	}{
		{name: "unknown path", method: "GET", path: "/v1/nothing", status: 404, code: wire.CodeNotFound},
		{name: "no page", method: "GET", path: "/", status: 404, code: wire.CodeNotFound},
		{name: "post to the page", method: "POST", path: "/", status: 404, code: wire.CodeNotFound},
		{name: "wrong method", method: "GET", path: wire.PathSync, status: 405, code: wire.CodeMethod},
		{name: "wrong method on a name", method: "PATCH", path: wire.PathDependencies + "/a", status: 405, code: wire.CodeMethod},
		{name: "too large", method: "POST", path: wire.PathSync, body: huge, status: 413, code: wire.CodeTooLarge, fields: []string{"body"}},
		{name: "no media type", method: "POST", path: wire.PathSync, body: "{}", headers: []string{"Content-Type", ""}, status: 415, code: wire.CodeMediaType},
		{name: "a form", method: "POST", path: wire.PathSync, body: "a=b", headers: []string{"Content-Type", "application/x-www-form-urlencoded"}, status: 415, code: wire.CodeMediaType},
		{name: "compressed", method: "POST", path: wire.PathSync, body: "{}", headers: []string{"Content-Encoding", "gzip"}, status: 415, code: wire.CodeMediaType},
		{name: "not JSON", method: "POST", path: wire.PathSync, body: `{"instance":`, status: 400, code: wire.CodeMalformed},
		{name: "two values", method: "POST", path: wire.PathSync, body: `{"instance":"a","seq":1} {}`, status: 400, code: wire.CodeMalformed},
		{name: "wrong type", method: "POST", path: wire.PathSync, body: `{"instance":"a","seq":"one"}`, status: 400, code: wire.CodeMalformed, fields: []string{"seq"}},
		{name: "sync fields", method: "POST", path: wire.PathSync,
			body:   `{"seq":-1,"service":"a\nb","dependencies":[{"name":"A","requests":-1,"want":10000001,"attempts_per_request":[1,2,3,4,5,6],"probes":[{"token":"t","outcome":"maybe"}]}]}`,
			status: 422, code: wire.CodeInvalid, fields: []string{"instance", "service", "seq", "dependencies[0].name", "dependencies[0].requests",
				"dependencies[0].want", "dependencies[0].attempts_per_request", "dependencies[0].probes.outcome"}},
		{name: "no number", method: "POST", path: wire.PathSync, body: `{"instance":"i","dependencies":[]}`,
			status: 422, code: wire.CodeInvalid, fields: []string{"seq"}},
		{name: "policy null", method: "PUT", path: wire.PathDependencies + "/a/policy", body: "null",
			status: 400, code: wire.CodeMalformed, fields: []string{"body"}},
		{name: "another site's page", method: "POST", path: wire.PathDependencies + "/a/reset", headers: []string{"Origin", "https://evil.example"},
			status: 403, code: wire.CodeForbidden},
		{name: "too many reports", method: "POST", path: wire.PathSync, body: `{"instance":"i","seq":1,"dependencies":[` + reports + `]}`,
			status: 422, code: wire.CodeInvalid, fields: []string{"dependencies"}},
		{name: "override fields", method: "PUT", path: override, body: `{"mode":"off","reason":"short","expires_in_ms":0}`,
			status: 422, code: wire.CodeInvalid, fields: []string{"mode", "reason", "expires_in_ms"}},
		{name: "override unknown fields", method: "PUT", path: override, body: `{"mode":"force_open","reason":"long enough","ttl":1,"expires":2}`,
			status: 400, code: wire.CodeMalformed, fields: []string{"ttl", "expires"}},
		{name: "policy unknown fields", method: "PUT", path: wire.PathDependencies + "/a/policy", body: `{"breaker":{"min_atempts":1}}`,
			status: 400, code: wire.CodeMalformed, fields: []string{"breaker.min_atempts"}},
		{name: "bad name", method: "PUT", path: wire.PathDependencies + "/Payments/override", body: order, status: 422, code: wire.CodeInvalid, fields: []string{"name"}},
		{name: "unknown dependency", method: "GET", path: wire.PathDependencies + "/nobody", status: 404, code: wire.CodeNotFound},
		{name: "reset of nothing", method: "POST", path: wire.PathDependencies + "/nobody/reset", status: 404, code: wire.CodeNotFound},
		{name: "list parameters", method: "GET", path: wire.PathDependencies + "?state=ajar&sort=size&limit=0&cursor=x", status: 422, code: wire.CodeInvalid,
			fields: []string{"state", "sort", "limit", "cursor"}},
		{name: "transition parameters", method: "GET", path: wire.PathTransitions + "?limit=1001&reopenings=perhaps&dependency=A", status: 422, code: wire.CodeInvalid,
			fields: []string{"limit", "reopenings", "dependency"}},
		{name: "transition cursor", method: "GET", path: wire.PathTransitions + "?cursor=x", status: 422, code: wire.CodeInvalid, fields: []string{"cursor"}},
		{name: "stream of no name", method: "GET", path: wire.PathStream + "?dependency=A", status: 422, code: wire.CodeInvalid, fields: []string{"dependency"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p := r.refused(tt.status, tt.code, tt.method, tt.path, tt.body, tt.headers...)
			if !hasFields(p, tt.fields...) {
				t.Errorf("got %+v, want the fields %v", p.Errors, tt.fields)
			}
			if p.Title != http.StatusText(tt.status) || p.Type != "about:blank" {
				t.Errorf("got %+v", p)
			}
		})
	}
}

// TestSyncIgnoresUnknownFields: newer instances report to older servers. Ages over a day are cut, not refused: an
// instance that was frozen for a month must not be refused for ever.
func TestSyncIgnoresUnknownFields(t *testing.T) {
	t.Parallel()
	r := setup(t)
	got := want[wire.SyncResponse](r, 200, "POST", wire.PathSync,
		`{"instance":"i","seq":1,"news":1,"dependencies":[{"name":"a/b","requests":1,"attempts":1,"success":1,"age_ms":2600000000,"later":{}}]}`)
	if len(got.Dependencies) != 1 || got.Dependencies[0].Name != "a/b" || got.Seq != 1 || got.NextSyncMS < 1 {
		t.Errorf("got %+v", got)
	}
}

// TestListBySeverity: pages in the order of severity, filters, cursor.
func TestListBySeverity(t *testing.T) {
	t.Parallel()
	r := setup(t)
	r.report("a", "b", "c", "d", "e")
	forced := order
	want[wire.Dependency](r, 200, "PUT", wire.PathDependencies+"/d/override", forced)
	forced.Mode = "force_closed"
	want[wire.Dependency](r, 200, "PUT", wire.PathDependencies+"/c/override", forced)
	names := func(path string) string {
		var all []string
		for cursor := ""; ; {
			list := want[wire.DependencyList](r, 200, "GET", path+"&cursor="+cursor, nil)
			for _, d := range list.Dependencies {
				all = append(all, d.Name)
			}
			if cursor = list.Next; cursor == "" {
				return strings.Join(all, " ")
			}
		}
	}
	for path, want := range map[string]string{
		"?limit=2":                  "d c a b e",
		"?limit=1&sort=failure":     "d c a b e",
		"?state=open":               "d",
		"?state=forced&state=open":  "d c",
		"?state=closed&limit=2":     "c a b e",
		"?q=E":                      "e",
		"?q=nothing":                "",
		"?state=half_open&limit=10": "",
	} {
		if got := names(wire.PathDependencies + path); got != want {
			t.Errorf("%s: got %q, want %q", path, got, want)
		}
	}
}

func TestStatusAndHealth(t *testing.T) {
	t.Parallel()
	r := setup(t)
	r.report("a")
	st := want[wire.Status](r, 200, "GET", wire.PathStatus, nil)
	if !st.Ready || st.Degraded || !st.StoreUp || st.Version != "v-test" || st.Store != "embedded" || st.Dependencies != 1 {
		t.Errorf("got %+v", st)
	}
	if me := want[wire.Whoami](r, 200, "GET", wire.PathWhoami, nil); me.Name != api.Anonymous {
		t.Errorf("got %+v", me)
	}
	for _, path := range []string{"/livez", "/readyz"} {
		if got := r.do("HEAD", path, nil); got.status != 200 || len(got.body) != 0 {
			t.Errorf("HEAD %s: %d %q", path, got.status, got.body)
		}
	}
}

// TestPage: the page serves every other path, under a policy that lets it load from here only.
func TestPage(t *testing.T) {
	t.Parallel()
	r := start(t, func(d *api.Deps, _ *http.Server) {
		d.Page = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = w.Write([]byte("page " + r.URL.Path)) })
	})
	got := r.do("GET", "/dependencies/x", nil)
	if got.status != 200 || string(got.body) != "page /dependencies/x" {
		t.Errorf("got %d %q", got.status, got.body)
	}
	csp := got.header.Get("Content-Security-Policy")
	if !strings.HasPrefix(csp, "default-src 'self'") || strings.Contains(csp, "unsafe") || got.header.Get("X-Content-Type-Options") != "nosniff" {
		t.Errorf("got %q", csp)
	}
	r.refused(404, wire.CodeNotFound, "GET", "/v1/nothing", nil)
}

// TestPanic: a defect answers 500 and leaves one line in the log, with the stack.
func TestPanic(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	r := start(t, func(d *api.Deps, _ *http.Server) {
		d.Log = slog.New(slog.NewTextHandler(&log, nil))
		d.Page = http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic("oops") })
	})
	p := r.refused(500, wire.CodeInternal, "GET", "/", nil)
	if strings.Contains(p.Detail, "oops") || strings.Count(log.String(), "\n") != 1 || !strings.Contains(log.String(), "oops") {
		t.Errorf("got %+v and the log %q", p, log.String())
	}
}
