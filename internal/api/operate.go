package api

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/retryplane/retryplane/internal/exchange"
	"github.com/retryplane/retryplane/pkg/policy"
	"github.com/retryplane/retryplane/pkg/wire"
)

// order is what the operators' calls have in common: a dependency, who orders, and the revision or version that the
// caller saw.
type order struct {
	ctx      context.Context
	name     string
	actor    string
	expected int64 // exchange.AnyRevision without If-Match
}

func newOrder(c *gin.Context) (order, error) {
	name, err := named(c)
	if err != nil {
		return order{}, err
	}
	// An operator who hangs up does not take the order back, and half an order sent looks like a store that does not
	// answer. The exchange has its own deadline.
	o := order{ctx: context.WithoutCancel(c.Request.Context()), name: name, actor: callerOf(c).name, expected: exchange.AnyRevision}
	if match := c.GetHeader("If-Match"); match != "" && match != "*" {
		text := match
		if unquoted, ok := strings.CutPrefix(match, `"`); ok {
			text, _ = strings.CutSuffix(unquoted, `"`)
		}
		if o.expected, err = strconv.ParseInt(text, 10, 64); err != nil || o.expected < 0 {
			return order{}, malformed("If-Match is no revision",
				wire.ProblemField{Field: "If-Match", Limit: "a revision or version as read, 0 for none yet, or *"})
		}
	}
	return o, nil
}

// finish answers with the dependency, or says that the caller's revision is stale.
func (o order) finish(c *gin.Context, d wire.Dependency, err error) error {
	if errors.Is(err, exchange.ErrConflict) && o.expected != exchange.AnyRevision {
		return problem(http.StatusPreconditionFailed, wire.CodePrecondition, "If-Match names an older revision; read again and repeat",
			wire.ProblemField{Field: "If-Match", Limit: "the current revision"})
	}
	if err != nil {
		return err
	}
	return answer(c, d)
}

func (s *Server) putOverride(c *gin.Context) error {
	o, err := newOrder(c)
	if err != nil {
		return err
	}
	var r wire.OverrideRequest
	if err := read(c, &r, strict); err != nil {
		return err
	}
	r.Reason = strings.TrimSpace(r.Reason)
	if wrong := checkOverride(&r); len(wrong) > 0 {
		return invalid(wrong...)
	}
	d, err := s.exchange.PutOverride(o.ctx, o.name, exchange.Override{
		Mode: policy.Mode(r.Mode), Reason: r.Reason, Actor: o.actor,
		Duration: time.Duration(r.ExpiresInMS) * time.Millisecond,
	}, o.expected)
	return o.finish(c, d, err)
}

// checkOverride names every wrong field.
func checkOverride(r *wire.OverrideRequest) []wire.ProblemField {
	c := &check{}
	c.must("mode", policy.Mode(r.Mode).Valid(), "one of force_open, force_closed, no_retries")
	c.text("reason", r.Reason, wire.MinReason, wire.MaxReason)
	c.must("expires_in_ms", r.ExpiresInMS >= 1 && r.ExpiresInMS <= wire.MaxOverrideMS, fmt.Sprintf("1 to %d", wire.MaxOverrideMS))
	return c.fields
}

func (s *Server) deleteOverride(c *gin.Context) error {
	o, err := newOrder(c)
	if err != nil {
		return err
	}
	d, err := s.exchange.DeleteOverride(o.ctx, o.name, o.actor, o.expected)
	return o.finish(c, d, err)
}

func (s *Server) reset(c *gin.Context) error {
	o, err := newOrder(c)
	if err != nil {
		return err
	}
	d, err := s.exchange.Reset(o.ctx, o.name, o.actor)
	return o.finish(c, d, err)
}

func (s *Server) putPolicy(c *gin.Context) error {
	o, err := newOrder(c)
	if err != nil {
		return err
	}
	var p wire.Policy
	if err := read(c, &p, strict); err != nil {
		return err
	}
	d, err := s.exchange.PutPolicy(o.ctx, o.name, p, o.expected)
	return o.finish(c, d, err)
}

func (s *Server) deletePolicy(c *gin.Context) error {
	o, err := newOrder(c)
	if err != nil {
		return err
	}
	d, err := s.exchange.DeletePolicy(o.ctx, o.name, o.expected)
	return o.finish(c, d, err)
}

func (s *Server) forget(c *gin.Context) error {
	o, err := newOrder(c)
	if err != nil {
		return err
	}
	if err := s.exchange.Forget(o.ctx, o.name); err != nil {
		return err
	}
	c.Status(http.StatusNoContent)
	return nil
}
