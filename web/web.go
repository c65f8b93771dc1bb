// Package web is the dashboard: static files in the binary, which need nothing else from the network. They are built
// out of src by `make web` and committed, so that building the binary needs no npm.
package web

import (
	"bytes"
	"crypto/sha256"
	"embed"
	"encoding/base64"
	"io/fs"
	"mime"
	"net/http"
	"path"
	"time"
)

//go:embed dist
var dist embed.FS

// contentPolicy lets the page run its own script, use its own style and call its own server, and nothing else.
const contentPolicy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

// file is one file of the page as it is served.
type file struct {
	name, kind, tag string
	content         []byte
}

// Page serves the page at / and its files beside it, to everyone: they hold no data, the API that they call asks for
// the token. Everything else is 404. Its handler is safe for concurrent use.
func Page() http.Handler {
	files := load()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		f, ok := files[r.URL.Path]
		if !ok {
			http.NotFound(w, r)
			return
		}
		if r.Method != http.MethodGet && r.Method != http.MethodHead {
			w.Header().Set("Allow", "GET, HEAD")
			http.Error(w, "method not allowed", http.StatusMethodNotAllowed)
			return
		}
		h := w.Header()
		h.Set("Content-Type", f.kind)
		h.Set("Content-Security-Policy", contentPolicy)
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Referrer-Policy", "no-referrer")
		// Ask every time, so that a new release shows at once; the tag makes the answer empty.
		h.Set("Cache-Control", "no-cache")
		h.Set("ETag", f.tag)
		http.ServeContent(w, r, f.name, time.Time{}, bytes.NewReader(f.content))
	})
}

// load reads the embedded files by the path under which they are served.
func load() map[string]file {
	entries, err := fs.ReadDir(dist, "dist")
	if err != nil {
		panic(err) // they are in the binary
	}
	files := make(map[string]file, len(entries)+1)
	for _, e := range entries {
		content, err := fs.ReadFile(dist, path.Join("dist", e.Name()))
		if err != nil {
			panic(err)
		}
		sum := sha256.Sum256(content)
		f := file{
			name: e.Name(), kind: kind(e.Name()), content: content,
			tag: `"` + base64.RawURLEncoding.EncodeToString(sum[:12]) + `"`,
		}
		files["/"+e.Name()] = f
		if e.Name() == "index.html" {
			files["/"] = f
		}
	}
	return files
}

// kind is a file's media type. The machine's own table may lack or bend some, so the ones in use are spelled out.
func kind(name string) string {
	switch ext := path.Ext(name); ext {
	case ".html":
		return "text/html; charset=utf-8"
	case ".js":
		return "text/javascript; charset=utf-8"
	case ".css":
		return "text/css; charset=utf-8"
	case ".svg":
		return "image/svg+xml"
	case ".txt":
		return "text/plain; charset=utf-8"
	default:
		return mime.TypeByExtension(ext)
	}
}
