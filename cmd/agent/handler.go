package main

import (
	"encoding/json"
	"errors"
	"io"
	"math"
	"net/http"
	"strconv"
	"time"

	"github.com/retryplane/retryplane/pkg/client"
	"github.com/retryplane/retryplane/pkg/policy"
	"github.com/retryplane/retryplane/pkg/wire"
)

// maxBody bounds a request; the longest useful one is far shorter.
const maxBody = 4 << 10

// codeBreakerOpen is the one error code that only the agent has: 503, the call must not be sent.
const codeBreakerOpen = "breaker_open"

// acquireRequest is the body of POST /v1/acquire.
type acquireRequest struct {
	Dependency string `json:"dependency"`
}

// acquireAnswer lets one attempt of a call be sent. Report its outcome within the time, or it counts as ignored.
type acquireAnswer struct {
	Permit      string `json:"permit"`
	ExpiresInMS int64  `json:"expires_in_ms"`
}

// reportRequest is the body of POST /v1/permits/{id}.
type reportRequest struct {
	Outcome string `json:"outcome"` // success, failure, throttled, ignored
}

// outcomes by their names.
var outcomes = map[string]client.Outcome{
	client.Success.String(): client.Success, client.Failure.String(): client.Failure,
	client.Throttled.String(): client.Throttled, client.Ignored.String(): client.Ignored,
}

// rejection is the problem of a call that must not be sent.
type rejection struct {
	wire.Problem
	Dependency   string        `json:"dependency"`
	Source       client.Source `json:"source"`         // fleet, local, override
	RetryAfterMS int64         `json:"retry_after_ms"` // 0 = unknown
}

// handler is the agent's API.
func handler(plane *client.Client, book *permits) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v1/acquire", func(w http.ResponseWriter, r *http.Request) { acquire(w, r, plane, book) })
	mux.HandleFunc("POST /v1/permits/{id}", func(w http.ResponseWriter, r *http.Request) { report(w, r, book) })
	mux.HandleFunc("GET /livez", func(w http.ResponseWriter, _ *http.Request) {
		answer(w, http.StatusOK, "application/json", map[string]string{"status": "ok"})
	})
	for path, method := range map[string]string{"/v1/acquire": http.MethodPost, "/v1/permits/{id}": http.MethodPost, "/livez": http.MethodGet} {
		mux.HandleFunc(path, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Allow", method)
			refuse(w, http.StatusMethodNotAllowed, wire.CodeMethod, "use "+method, nil)
		})
	}
	mux.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) {
		refuse(w, http.StatusNotFound, wire.CodeNotFound, "no such path", nil)
	})
	return onlyPrograms(mux)
}

// onlyPrograms keeps web pages out: a browser on this machine reaches loopback too, and says so with an Origin.
func onlyPrograms(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Origin") != "" {
			refuse(w, http.StatusForbidden, wire.CodeForbidden, "the agent does not answer web pages", nil)
			return
		}
		next.ServeHTTP(w, r)
	})
}

func acquire(w http.ResponseWriter, r *http.Request, plane *client.Client, book *permits) {
	var body acquireRequest
	if !decode(w, r, &body) {
		return
	}
	if !policy.ValidName(body.Dependency) {
		refuse(w, http.StatusUnprocessableEntity, wire.CodeInvalid, "", []wire.ProblemField{{Field: "dependency", Limit: policy.NameLimit}})
		return
	}
	p, err := plane.Dependency(body.Dependency).Acquire(r.Context())
	if open, ok := errors.AsType[*client.OpenError](err); ok {
		reject(w, open)
		return
	}
	if err != nil { // the caller went away
		refuse(w, http.StatusServiceUnavailable, wire.CodeBusy, "no decision in time", nil)
		return
	}
	answer(w, http.StatusOK, "application/json", acquireAnswer{Permit: book.add(p), ExpiresInMS: book.ttl.Milliseconds()})
}

func reject(w http.ResponseWriter, e *client.OpenError) {
	if e.RetryAfter > 0 {
		w.Header().Set("Retry-After", strconv.FormatInt(int64(math.Ceil(e.RetryAfter.Seconds())), 10))
	}
	answer(w, http.StatusServiceUnavailable, wire.ContentType, rejection{
		Problem:    problem(http.StatusServiceUnavailable, codeBreakerOpen, e.Error()),
		Dependency: e.Dependency, Source: e.Source, RetryAfterMS: int64(e.RetryAfter / time.Millisecond),
	})
}

func report(w http.ResponseWriter, r *http.Request, book *permits) {
	var body reportRequest
	if !decode(w, r, &body) {
		return
	}
	o, ok := outcomes[body.Outcome]
	if !ok {
		refuse(w, http.StatusUnprocessableEntity, wire.CodeInvalid, "", []wire.ProblemField{{Field: "outcome", Limit: "success, failure, throttled or ignored"}})
		return
	}
	if !book.end(r.PathValue("id"), o) {
		refuse(w, http.StatusNotFound, wire.CodeNotFound, "no such permit: unknown, reported already or expired", nil)
		return
	}
	w.WriteHeader(http.StatusNoContent)
}

// decode reads one JSON value without unknown fields, or answers with the problem and returns false.
func decode(w http.ResponseWriter, r *http.Request, into any) bool {
	d := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxBody))
	d.DisallowUnknownFields()
	err := d.Decode(into)
	if err == nil {
		if _, err = d.Token(); errors.Is(err, io.EOF) {
			return true
		}
		if err == nil {
			err = errors.New("must be one JSON object")
		}
	}
	if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
		refuse(w, http.StatusRequestEntityTooLarge, wire.CodeTooLarge, "", []wire.ProblemField{{Field: "body", Limit: strconv.Itoa(maxBody) + " bytes"}})
		return false
	}
	refuse(w, http.StatusBadRequest, wire.CodeMalformed, err.Error(), nil)
	return false
}

func refuse(w http.ResponseWriter, status int, code, detail string, fields []wire.ProblemField) {
	p := problem(status, code, detail)
	p.Errors = fields
	answer(w, status, wire.ContentType, p)
}

func problem(status int, code, detail string) wire.Problem {
	return wire.Problem{Type: "about:blank", Title: http.StatusText(status), Status: status, Code: code, Detail: detail}
}

func answer(w http.ResponseWriter, status int, kind string, body any) {
	w.Header().Set("Content-Type", kind)
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body) // fails only when the caller is gone
}
