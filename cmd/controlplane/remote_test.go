package main

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/retryplane/retryplane/pkg/wire"
)

// orders runs one command against a server and returns its exit code and what it printed.
func orders(t *testing.T, url string, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, err bytes.Buffer
	env := map[string]string{"RETRYPLANE_SERVER": url, "RETRYPLANE_TOKEN": operatorToken}
	code = run(t.Context(), args, &out, &err, func(k string) string { return env[k] })
	return code, out.String(), err.String()
}

// answers is a server that gives one answer to everything.
func answers(t *testing.T, status int, kind, body string) string {
	t.Helper()
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", kind)
		w.WriteHeader(status)
		_, _ = w.Write([]byte(body))
	}))
	t.Cleanup(srv.Close)
	return srv.URL
}

// TestExitCodes of what a server may answer. The rest is in testdata.
func TestExitCodes(t *testing.T) {
	t.Parallel()
	problem := func(status int, code string) string {
		text, err := json.Marshal(wire.Problem{Status: status, Code: code, Detail: "so it is", Errors: []wire.ProblemField{{Field: "f", Limit: "l"}}})
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	order := []string{"open", "payments", "--reason", "provider maintenance", "--for", "1h"}
	for name, c := range map[string]struct {
		status int
		kind   string
		body   string
		args   []string
		want   int
		says   string
	}{
		"conflict":     {409, wire.ContentType, problem(409, wire.CodeConflict), order, exitConflict, "open payments: conflict (409): so it is"},
		"store away":   {503, wire.ContentType, problem(503, wire.CodeStoreUnavailable), order, exitError, "store_unavailable (503)"},
		"rate limited": {429, wire.ContentType, problem(429, wire.CodeRateLimited), []string{"list"}, exitError, "  f: l"},
		"forgotten":    {404, wire.ContentType + "; charset=utf-8", problem(404, wire.CodeNotFound), []string{"policy", "delete", "x"}, exitNotFound, "not_found"},
		// A 404 of something else must not read as "there is no such dependency".
		"other server": {404, "text/html", "<h1>Not Found</h1>", []string{"get", "x"}, exitError, "is --server right?"},
		"other answer": {200, "text/html", "<h1>Welcome</h1>", []string{"get", "x"}, exitError, "is --server right?"},
		"not allowed":  {403, "text/plain; charset=utf-8", "localhost only\n", []string{"get", "x"}, exitError, `It says: "localhost only"`},
		"no stream":    {404, "text/html", "", []string{"watch"}, exitError, "is --server right?"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			code, stdout, stderr := orders(t, answers(t, c.status, c.kind, c.body), c.args...)
			if code != c.want || stdout != "" || strings.Contains(stderr, operatorToken) {
				t.Errorf("got the code %d, want %d, and\n%s%s", code, c.want, stdout, stderr)
			}
			wants(t, stderr, c.says)
		})
	}
}

// TestSilentServer: the timeout bounds a call, and an order that was sent is not known to have failed.
func TestSilentServer(t *testing.T) {
	t.Parallel()
	srv := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }))
	t.Cleanup(srv.Close)
	code, _, stderr := orders(t, srv.URL, "reset", "payments", "--timeout", "50ms")
	if code != exitUnreachable {
		t.Errorf("got the code %d", code)
	}
	wants(t, stderr, "reach "+srv.URL+": no answer within 50ms", "may have been carried out")
	code, _, stderr = orders(t, srv.URL, "watch", "--timeout", "50ms")
	if code != exitUnreachable || strings.Contains(stderr, "carried out") {
		t.Errorf("got the code %d and %s", code, stderr)
	}
}

// TestInterrupted: ctrl-C in the middle of a call is no word about the server.
func TestInterrupted(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	srv := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { cancel(); <-r.Context().Done() }))
	t.Cleanup(srv.Close)
	var out bytes.Buffer
	if code := run(ctx, []string{"list", "--server", srv.URL}, &out, &out, func(string) string { return "" }); code != exitError {
		t.Errorf("got the code %d", code)
	}
	wants(t, out.String(), "controlplane: interrupted")
}

// TestNoRedirect: an order, and the token with it, goes where the operator said and nowhere else.
func TestNoRedirect(t *testing.T) {
	t.Parallel()
	elsewhere := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("the order went elsewhere") }))
	t.Cleanup(elsewhere.Close)
	srv := httptest.NewServer(http.RedirectHandler(elsewhere.URL, http.StatusTemporaryRedirect))
	t.Cleanup(srv.Close)
	if code, _, stderr := orders(t, srv.URL, "reset", "payments"); code != exitError {
		t.Errorf("got the code %d and %s", code, stderr)
	}
}

// TestBasePath: the server may stand behind a prefix, and the slashes of a name do not divide the path.
func TestBasePath(t *testing.T) {
	t.Parallel()
	got := make(chan string, 1)
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		got <- r.Method + " " + r.URL.EscapedPath() + " " + r.Header.Get("If-Match") + " " + r.Header.Get("Authorization")
		w.WriteHeader(http.StatusTeapot)
	}))
	t.Cleanup(srv.Close)
	orders(t, srv.URL+"/plane/", "auto", "eu/pay@2", "--revision", "12")
	if g, want := <-got, `DELETE /plane/v1/dependencies/eu%2Fpay@2/override "12" Bearer `+operatorToken; g != want {
		t.Errorf("got %s, want %s", g, want)
	}
}

// TestListFollowsPages to the end, the most severe first. A proxy makes the pages small.
func TestListFollowsPages(t *testing.T) {
	t.Parallel()
	r := start(t)
	r.ready(t)
	target, err := url.Parse(r.url)
	if err != nil {
		t.Fatal(err)
	}
	var pages atomic.Int32
	proxy := httptest.NewServer(&httputil.ReverseProxy{Rewrite: func(p *httputil.ProxyRequest) {
		pages.Add(1)
		p.SetURL(target)
		q := p.In.URL.Query()
		q.Set("limit", "2")
		p.Out.URL.RawQuery = q.Encode()
	}})
	t.Cleanup(proxy.Close)
	var reports []wire.Report
	for _, name := range []string{"d/1", "d/2", "d/3", "d/4", "e/5"} {
		reports = append(reports, wire.Report{Name: name, Requests: 1, Attempts: 1, Success: 1})
	}
	if code, _ := (&instance{id: "i-1"}).sync(t, r, reports...); code != http.StatusOK {
		t.Fatalf("sync: got %d", code)
	}
	if code, _, stderr := orders(t, r.url, "open", "d/4", "--reason", "provider maintenance", "--for", "1h"); code != exitOK {
		t.Fatalf("got the code %d: %s", code, stderr)
	}
	listed := func(args ...string) (names []string) {
		t.Helper()
		code, stdout, stderr := orders(t, proxy.URL, append([]string{"list", "-o", "json"}, args...)...)
		var list wire.DependencyList
		if err := json.Unmarshal([]byte(stdout), &list); code != exitOK || err != nil {
			t.Fatalf("got the code %d, %v: %s", code, err, stderr)
		}
		for _, d := range list.Dependencies {
			names = append(names, d.Name)
		}
		return names
	}
	if diff := cmp.Diff([]string{"d/4", "d/1", "d/2", "d/3", "e/5"}, listed()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if n := pages.Load(); n != 3 {
		t.Errorf("got %d pages, want 3", n)
	}
	if diff := cmp.Diff([]string{"d/4"}, listed("--state", "open", "--state", "half_open")); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"d/1", "d/2", "d/3"}, listed("--query", "d/", "--state", "closed")); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}

	for _, args := range [][]string{{"reset", "d/1"}, {"reset", "d/2"}, {"auto", "d/4"}} {
		if code, _, stderr := orders(t, r.url, args...); code != exitOK {
			t.Fatalf("got the code %d: %s", code, stderr)
		}
	}
	_, stdout, _ := orders(t, proxy.URL, "transitions", "--limit", "3")
	if n := strings.Count(stdout, "\n"); n != 4 {
		t.Errorf("got %d lines of\n%s", n, stdout)
	}
}

// TestListEnds though the server's cursor does not move.
func TestListEnds(t *testing.T) {
	t.Parallel()
	code, _, stderr := orders(t, answers(t, 200, "application/json", `{"dependencies":[],"next":"x"}`), "list")
	if code != exitError {
		t.Errorf("got the code %d", code)
	}
	wants(t, stderr, "the same page again and again")
}
