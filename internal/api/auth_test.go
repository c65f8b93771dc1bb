package api_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/retryplane/retryplane/internal/api"
	"github.com/retryplane/retryplane/pkg/wire"
)

// guarded starts a replica with a token for each need.
func guarded(t *testing.T, start func(*testing.T, ...func(*api.Deps, *http.Server)) *rig) *rig {
	t.Helper()
	auth, err := api.NewAuth([]api.Token{
		{Name: "checkout", SHA256: hash("report"), Roles: []string{"report"}, Dependencies: []string{"billing*", "crm"}},
		{Name: "dashboard", SHA256: hash("read"), Roles: []string{"read"}},
		{Name: "auditor", SHA256: hash("some"), Roles: []string{"read"}, Dependencies: []string{"billing/*"}},
		{Name: "alice", SHA256: strings.ToUpper(hash("operate")), Roles: []string{"operate", "report"}},
		{Name: "bob", SHA256: hash("expired"), Roles: []string{"operate"}, ExpiresAt: time.Unix(1_700_000_000, 0)},
	})
	if err != nil {
		t.Fatal(err)
	}
	return start(t, func(d *api.Deps, _ *http.Server) { d.Auth = auth })
}

func TestNewAuthNamesEveryField(t *testing.T) {
	t.Parallel()
	_, err := api.NewAuth([]api.Token{
		{Name: "a", SHA256: hash("a"), Roles: []string{"read"}},
		{Name: "a", SHA256: hash("a"), Roles: []string{"admin"}, Dependencies: []string{"x", "[", ""}},
		{SHA256: "abc"},
	})
	if err == nil {
		t.Fatal("accepted")
	}
	for _, field := range []string{
		"tokens[1].name", "tokens[1].sha256", "tokens[1].roles[0]", "tokens[1].dependencies[1]", "tokens[1].dependencies[2]",
		"tokens[2].name", "tokens[2].sha256", "tokens[2].roles:",
	} {
		if !strings.Contains(err.Error(), field) {
			t.Errorf("no error names %s:\n%v", field, err)
		}
	}
}

// TestNoToken: without a token everything but the health checks is 401, and the problem says why.
func TestNoToken(t *testing.T) {
	t.Parallel()
	r := guarded(t, start)
	for _, route := range r.server.Routes() {
		method, path, _ := strings.Cut(route, " ")
		if path == "/livez" || path == "/readyz" {
			continue
		}
		p := r.refused(401, wire.CodeUnauthorized, method, strings.ReplaceAll(path, ":name", "a"), nil)
		if !strings.Contains(p.Detail, "no bearer token") {
			t.Errorf("%s: got %q", route, p.Detail)
		}
	}
	r.refused(401, wire.CodeUnauthorized, "GET", "/v1/nothing", nil)
	r.refused(401, wire.CodeUnauthorized, "PATCH", wire.PathSync, nil)
	if got := r.do("GET", wire.PathStatus, nil).header.Get("WWW-Authenticate"); !strings.HasPrefix(got, "Bearer") {
		t.Errorf("WWW-Authenticate: %q", got)
	}
	for token, detail := range map[string]string{"guess": "unknown", "expired": "expired at 2023-11-14T22:13:20Z"} {
		if p := r.with(token).refused(401, wire.CodeUnauthorized, "GET", wire.PathStatus, nil); !strings.Contains(p.Detail, detail) {
			t.Errorf("%s: got %q", token, p.Detail)
		}
	}
}

// TestNoTokensNobody: an Auth without tokens is on; only a nil one is off.
func TestNoTokensNobody(t *testing.T) {
	t.Parallel()
	auth, err := api.NewAuth(nil)
	if err != nil {
		t.Fatal(err)
	}
	r := start(t, func(d *api.Deps, _ *http.Server) { d.Auth = auth })
	r.with("any").refused(401, wire.CodeUnauthorized, "GET", wire.PathStatus, nil)
}

func TestRoles(t *testing.T) {
	t.Parallel()
	r := guarded(t, start)
	for _, tt := range []struct{ token, method, path string }{
		{"report", "GET", wire.PathDependencies},
		{"report", "GET", "/metrics"},
		{"report", "PUT", wire.PathDependencies + "/crm/override"},
		{"read", "POST", wire.PathSync},
		{"read", "POST", wire.PathDependencies + "/crm/reset"},
		{"some", "GET", wire.PathDependencies + "/crm"},
		{"some", "GET", wire.PathTransitions + "?dependency=crm"},
		{"some", "GET", wire.PathStream + "?dependency=billing/x&dependency=crm"},
		{"some", "GET", "/metrics"},
	} {
		r.with(tt.token).refused(403, wire.CodeForbidden, tt.method, tt.path, nil)
	}
	for token, name := range map[string]string{"report": "checkout", "some": "auditor", "operate": "alice"} {
		if me := want[wire.Whoami](r.with(token), 200, "GET", wire.PathWhoami, nil); me.Name != name {
			t.Errorf("%s: got %+v", token, me)
		}
	}
}

// TestGlobs: a token sees and reports only what its globs match; '*' goes over '/'.
func TestGlobs(t *testing.T) {
	t.Parallel()
	r := guarded(t, setup)
	req := wire.SyncRequest{Instance: "i", Seq: 1, Dependencies: []wire.Report{{Name: "billing/eu/x"}, {Name: "crm"}, {Name: "payments"}}}
	p := r.with("report").refused(403, wire.CodeForbidden, "POST", wire.PathSync, req)
	if !hasFields(p, "dependencies[2].name") || len(p.Errors) != 1 || !strings.Contains(p.Errors[0].Limit, "payments") {
		t.Errorf("got %+v", p)
	}
	req.Dependencies = req.Dependencies[:2]
	want[wire.SyncResponse](r.with("report"), 200, "POST", wire.PathSync, req)
	r.with("operate").report("payments")

	got := want[wire.DependencyList](r.with("some"), 200, "GET", wire.PathDependencies, nil)
	if len(got.Dependencies) != 1 || got.Dependencies[0].Name != "billing/eu/x" {
		t.Errorf("got %+v", got.Dependencies)
	}
	if st := want[wire.Status](r.with("some"), 200, "GET", wire.PathStatus, nil); st.Dependencies != 1 {
		t.Errorf("got %+v", st)
	}
	_, events := r.with("some").events("")
	state := decode[wire.StreamState](t, r.next(events, wire.EventState).data)
	if len(state.Dependencies) != 1 || state.Dependencies[0].Name != "billing/eu/x" {
		t.Errorf("got %+v", state.Dependencies)
	}
	for _, name := range []string{"payments", "billing%2Feu%2Fx"} {
		want[wire.Dependency](r.with("operate"), 200, "PUT", wire.PathDependencies+"/"+name+"/override", order)
	}
	d := decode[wire.Dependency](t, r.next(events, wire.EventChange).data)
	if d.Name != "billing/eu/x" || d.Breaker.Override.Actor != "alice" {
		t.Errorf("got %+v", d)
	}
	list := want[wire.TransitionList](r.with("some"), 200, "GET", wire.PathTransitions, nil)
	for _, tr := range list.Transitions {
		if tr.Dependency != "billing/eu/x" {
			t.Errorf("sees %+v", tr)
		}
	}
}
