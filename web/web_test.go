package web_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"path"
	"regexp"
	"strings"
	"testing"

	"github.com/retryplane/retryplane/web"
)

func get(t *testing.T, name string, header http.Header) *http.Response {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, name, nil)
	for k, v := range header {
		r.Header[k] = v
	}
	w := httptest.NewRecorder()
	web.Page().ServeHTTP(w, r)
	return w.Result()
}

func TestPageServesItsFiles(t *testing.T) {
	t.Parallel()
	for name, kind := range map[string]string{
		"/":             "text/html; charset=utf-8",
		"/index.html":   "text/html; charset=utf-8",
		"/app.js":       "text/javascript; charset=utf-8",
		"/style.css":    "text/css; charset=utf-8",
		"/favicon.svg":  "image/svg+xml",
		"/licences.txt": "text/plain; charset=utf-8",
	} {
		r := get(t, name, nil)
		if r.StatusCode != http.StatusOK || r.Header.Get("Content-Type") != kind {
			t.Errorf("%s: got %d %q, want 200 %q", name, r.StatusCode, r.Header.Get("Content-Type"), kind)
		}
		if csp := r.Header.Get("Content-Security-Policy"); !strings.Contains(csp, "default-src 'none'") || strings.Contains(csp, "unsafe") {
			t.Errorf("%s: got the policy %q", name, csp)
		}
		again := get(t, name, http.Header{"If-None-Match": {r.Header.Get("ETag")}})
		if again.StatusCode != http.StatusNotModified {
			t.Errorf("%s: asked again with its tag, got %d, want 304", name, again.StatusCode)
		}
	}
	for _, name := range []string{"/missing", "/dist/app.js", "/../web.go", "/app.js/"} {
		if r := get(t, name, nil); r.StatusCode != http.StatusNotFound {
			t.Errorf("%s: got %d, want 404", name, r.StatusCode)
		}
	}
}

func TestPageAnswersOnlyReads(t *testing.T) {
	t.Parallel()
	w := httptest.NewRecorder()
	web.Page().ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/", nil))
	if w.Code != http.StatusMethodNotAllowed || w.Header().Get("Allow") != "GET, HEAD" {
		t.Errorf("got %d, Allow %q", w.Code, w.Header().Get("Allow"))
	}
}

// TestPageNeedsNobodyElse: the policy forbids inline code and other hosts, so the page must not want them, and every
// file that it names must be there.
func TestPageNeedsNobodyElse(t *testing.T) {
	t.Parallel()
	body, err := io.ReadAll(get(t, "/", nil).Body)
	if err != nil {
		t.Fatal(err)
	}
	html := string(body)
	for _, banned := range []string{"<style", " style=", " onclick=", "http://", "https://", "<script>"} {
		if strings.Contains(html, banned) {
			t.Errorf("index.html holds %q", banned)
		}
	}
	named := regexp.MustCompile(`(?:href|src)="([^"#]+)"`).FindAllStringSubmatch(html, -1)
	if len(named) < 3 {
		t.Fatalf("got %d names of files, want at least 3", len(named))
	}
	for _, m := range named {
		if r := get(t, path.Join("/", m[1]), nil); r.StatusCode != http.StatusOK {
			t.Errorf("%s: got %d, want 200", m[1], r.StatusCode)
		}
	}
}
