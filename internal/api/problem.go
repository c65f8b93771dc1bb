package api

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"

	"github.com/gin-gonic/gin"

	"github.com/retryplane/retryplane/internal/exchange"
	"github.com/retryplane/retryplane/pkg/policy"
	"github.com/retryplane/retryplane/pkg/wire"
)

// problems is the one table from the exchange's errors to what callers see. The first match counts. The errors' own
// texts name stores and keys and stay inside.
var problems = []struct {
	err    error
	status int
	code   string
	detail string
}{
	{exchange.ErrBusy, http.StatusServiceUnavailable, wire.CodeBusy, "too many syncs wait for the store; come again a little later"},
	{exchange.ErrClosed, http.StatusServiceUnavailable, wire.CodeShuttingDown, "this replica is shutting down; another one answers"},
	{exchange.ErrNotFound, http.StatusNotFound, wire.CodeNotFound, "there is no such dependency or record"},
	{exchange.ErrInForce, http.StatusConflict, wire.CodeConflict, "an override stands; remove it first"},
	{exchange.ErrConflict, http.StatusConflict, wire.CodeConflict, "somebody else was faster; read again and repeat"},
	{exchange.ErrStore, http.StatusServiceUnavailable, wire.CodeStoreUnavailable, "the store does not answer; nothing was changed as far as this replica knows"},
}

// problem makes an error answer.
func problem(status int, code, detail string, fields ...wire.ProblemField) *wire.Problem {
	return &wire.Problem{
		Type: "about:blank", Title: http.StatusText(status), Status: status, Code: code, Detail: detail, Errors: fields,
	}
}

// invalid names every field that is out of its bounds.
func invalid(fields ...wire.ProblemField) *wire.Problem {
	detail := "a field is out of its bounds"
	if len(fields) == 1 {
		detail = fields[0].Field + " must be " + fields[0].Limit
	}
	return problem(http.StatusUnprocessableEntity, wire.CodeInvalid, detail, fields...)
}

// fail answers with the problem that err stands for. What nobody foresaw is logged and shown as internal.
func (s *Server) fail(c *gin.Context, err error) {
	c.Abort()
	if c.Writer.Written() {
		return // too late to say anything
	}
	// Also when the request's context has ended: a body that came too slowly and a caller that closed its half of the
	// connection end it too, and both still read. Without a word from us net/http would tell them 200.
	if p, ok := errors.AsType[*wire.Problem](err); ok {
		s.write(c, p)
		return
	}
	if fields := policyFields(err, nil); len(fields) > 0 {
		s.write(c, invalid(fields...))
		return
	}
	for _, row := range problems {
		if errors.Is(err, row.err) {
			s.write(c, problem(row.status, row.code, row.detail))
			return
		}
	}
	if errors.Is(err, context.Canceled) {
		s.write(c, problem(http.StatusServiceUnavailable, wire.CodeBusy, "the connection ended before the answer was there"))
		return
	}
	s.log.Error("request failed", slog.String("route", c.FullPath()), slog.Any("error", err))
	s.write(c, problem(http.StatusInternalServerError, wire.CodeInternal, "the control plane has a defect; its log says more"))
}

// policyFields collects the fields that err's tree names.
func policyFields(err error, fields []wire.ProblemField) []wire.ProblemField {
	if fe, ok := err.(*policy.FieldError); ok { //nolint:errorlint // the tree is walked here
		return append(fields, wire.ProblemField{Field: fe.Field, Limit: fe.Limit})
	}
	switch u := err.(type) { //nolint:errorlint // the tree is walked here
	case interface{ Unwrap() []error }:
		for _, e := range u.Unwrap() {
			fields = policyFields(e, fields)
		}
	case interface{ Unwrap() error }:
		return policyFields(u.Unwrap(), fields)
	}
	return fields
}

// write sends a problem.
func (s *Server) write(c *gin.Context, p *wire.Problem) {
	switch p.Status {
	case http.StatusServiceUnavailable:
		c.Header("Retry-After", "1")
	case http.StatusUnauthorized:
		c.Header("WWW-Authenticate", `Bearer realm="retryplane"`)
	}
	body, err := json.Marshal(p)
	if err != nil {
		panic(err) // strings and numbers always encode
	}
	c.Header("Content-Type", wire.ContentType)
	c.Status(p.Status)
	_, _ = c.Writer.Write(body) // a caller that went away is no error of ours
}

// answer sends v as JSON.
func answer(c *gin.Context, v any) error {
	body, err := json.Marshal(v)
	if err != nil {
		return err
	}
	c.Header("Content-Type", "application/json")
	c.Status(http.StatusOK)
	_, _ = c.Writer.Write(body) // a caller that went away is no error of ours
	return nil
}
