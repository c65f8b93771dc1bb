package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"
	"unicode"

	"github.com/retryplane/retryplane/pkg/wire"
)

// remoteFlags say which server the operator's commands call, as whom, and how they show what it answers.
type remoteFlags struct {
	Server    string        `env:"RETRYPLANE_SERVER" default:"http://127.0.0.1:8080" placeholder:"URL" help:"The control plane (${default})."`
	TokenFile string        `env:"RETRYPLANE_TOKEN_FILE" placeholder:"FILE" help:"File that holds the token. Without it the token is what RETRYPLANE_TOKEN holds."`
	Timeout   time.Duration `default:"10s" placeholder:"DURATION" help:"How long one call may take (${default})."`
	Output    string        `short:"o" enum:"table,json" default:"table" placeholder:"FORMAT" help:"table or json (${default})."`
}

// remote is a control plane as its public API shows it. Safe for concurrent use.
type remote struct {
	base    string // without a slash at its end
	token   string // "" = none; must never be printed
	timeout time.Duration
	http    *http.Client
}

// Bounds of what is read.
const (
	maxToken  = 4 << 10
	maxAnswer = 64 << 20 // an answer, or a line of a stream: far above what the API sends
)

// remote checks the flags. The error joins one usage error per mistake and repeats no secret.
func (f remoteFlags) remote(getenv func(string) string) (*remote, error) {
	var wrong []error
	u, err := url.Parse(f.Server)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		wrong = append(wrong, errors.New("--server: must be http://host:port or https://host, without a password")) // it may hold one
	}
	if f.Timeout <= 0 {
		wrong = append(wrong, fmt.Errorf("--timeout: %s must be more than nothing, such as 10s", f.Timeout))
	}
	token, err := f.token(getenv)
	if err != nil {
		wrong = append(wrong, err)
	}
	if len(wrong) > 0 {
		return nil, usageError{errors.Join(wrong...)}
	}
	return &remote{
		base: strings.TrimRight(f.Server, "/"), token: token, timeout: f.Timeout,
		http: &http.Client{
			Transport: http.DefaultTransport.(*http.Transport).Clone(),
			// Whoever answers with another address must not make us send an order, or a token, there.
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
	}, nil
}

// token never repeats what it read.
func (f remoteFlags) token(getenv func(string) string) (string, error) {
	from, text := "RETRYPLANE_TOKEN", getenv("RETRYPLANE_TOKEN")
	if f.TokenFile != "" {
		from = "--token-file"
		file, err := os.Open(f.TokenFile)
		if err != nil {
			return "", fmt.Errorf("%s: %w", from, err)
		}
		defer func() { _ = file.Close() }() // only read
		raw, err := io.ReadAll(io.LimitReader(file, maxToken+1))
		if err != nil {
			return "", fmt.Errorf("%s: %w", from, err)
		}
		if text = string(raw); strings.TrimSpace(text) == "" {
			return "", fmt.Errorf("%s: %s holds no token", from, f.TokenFile)
		}
	}
	token := strings.TrimSpace(text)
	odd := func(r rune) bool { return r > unicode.MaxASCII || !unicode.IsGraphic(r) || r == ' ' }
	if len(text) > maxToken || strings.ContainsFunc(token, odd) {
		return "", fmt.Errorf("%s: must hold one token and nothing else", from)
	}
	return token, nil
}

// close gives up idle connections.
func (r *remote) close() { r.http.CloseIdleConnections() }

// ask is one request to the API.
type ask struct {
	method  string // "" = GET
	path    string // percent-encoded, from /v1
	query   url.Values
	ifMatch *int64 // nil = whatever is there
	body    []byte // JSON; nil = none
}

// dependencyPath is where a dependency is found, or a part of it: its name's slashes do not divide the path.
func dependencyPath(name dependencyName, part string) string {
	return wire.PathDependencies + "/" + url.PathEscape(string(name)) + part
}

// call sends a request, reads the answer into into and returns it as it came. It takes no longer than the timeout.
// Errors: *wire.Problem when the server refused, unreachableError when no whole answer came.
func (r *remote) call(ctx context.Context, a ask, into any) (json.RawMessage, error) {
	limited, cancel := context.WithTimeoutCause(ctx, r.timeout, fmt.Errorf("no answer within %s", r.timeout))
	defer cancel()
	resp, err := r.send(limited, a)
	if err != nil {
		return nil, err
	}
	defer func() { _ = resp.Body.Close() }() // only read
	text, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer+1))
	if err != nil {
		return nil, r.unreachable(limited, a, err)
	}
	if len(text) > maxAnswer {
		return nil, fmt.Errorf("%s answered with more than %d bytes", r.base, maxAnswer)
	}
	if err := json.Unmarshal(text, into); err != nil {
		return nil, fmt.Errorf("%s did not answer as a control plane does; is --server right? %w", r.base, err)
	}
	return text, nil
}

// send returns an answer with the status 200, whose body the caller closes.
func (r *remote) send(ctx context.Context, a ask) (*http.Response, error) {
	target := r.base + a.path
	if len(a.query) > 0 {
		target += "?" + a.query.Encode()
	}
	req, err := http.NewRequestWithContext(ctx, cmp.Or(a.method, http.MethodGet), target, bytes.NewReader(a.body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("User-Agent", "retryplane-controlplane/"+version)
	if a.body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	if a.ifMatch != nil {
		req.Header.Set("If-Match", fmt.Sprintf(`"%d"`, *a.ifMatch))
	}
	if r.token != "" {
		req.Header.Set("Authorization", "Bearer "+r.token)
	}
	resp, err := r.http.Do(req)
	if err != nil {
		return nil, r.unreachable(ctx, a, err)
	}
	if resp.StatusCode != http.StatusOK {
		defer func() { _ = resp.Body.Close() }() // only read
		return nil, r.refusal(resp)
	}
	return resp, nil
}

// refusal is the problem in an answer. What is no problem document does not come from a control plane, so its status
// means nothing to us: a 404 of some other server must not look like a dependency that is not there.
func (r *remote) refusal(resp *http.Response) error {
	const most = 64 << 10
	text, _ := io.ReadAll(io.LimitReader(resp.Body, most)) // what came of it has to do
	kind, _, _ := strings.Cut(resp.Header.Get("Content-Type"), ";")
	p := &wire.Problem{}
	if kind == wire.ContentType && json.Unmarshal(text, p) == nil {
		p.Status = resp.StatusCode
		if p.Status == http.StatusUnauthorized && r.token == "" {
			p.Detail += "; give one with RETRYPLANE_TOKEN or --token-file"
		}
		return p
	}
	err := fmt.Errorf("%s answered %s, but not as a control plane does; is --server right?", r.base, resp.Status)
	if line, _, _ := strings.Cut(strings.TrimSpace(string(text)), "\n"); kind == "text/plain" && line != "" {
		err = fmt.Errorf("%w It says: %.200q", err, line)
	}
	return err
}

// unreachableError says that no answer came, or only a part of one.
type unreachableError struct {
	server string
	cause  error
	unsure bool // it was an order that may have reached the server
}

func (e *unreachableError) Error() string { return fmt.Sprintf("reach %s: %v", e.server, e.cause) }

func (e *unreachableError) Unwrap() error { return e.cause }

func (r *remote) unreachable(ctx context.Context, a ask, err error) error {
	if wrapped, ok := errors.AsType[*url.Error](err); ok {
		err = wrapped.Err // it repeats the URL
	}
	dial, ok := errors.AsType[*net.OpError](err)
	unsure := a.method != "" && (!ok || dial.Op != "dial")
	if cause := context.Cause(ctx); cause != nil {
		err = cause
	}
	return &unreachableError{server: r.base, cause: err, unsure: unsure}
}
