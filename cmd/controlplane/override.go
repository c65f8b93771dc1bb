package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	"github.com/alecthomas/kong"

	"github.com/retryplane/retryplane/pkg/policy"
	"github.com/retryplane/retryplane/pkg/wire"
)

// modes are the commands that put an override.
var modes = map[string]policy.Mode{
	"open":       policy.ModeForceOpen,
	"close":      policy.ModeForceClosed,
	"no-retries": policy.ModeNoRetries,
}

// overrideFlags are an override. It must have a reason and an end: who finds it at night has to know why it is there,
// and nobody should have to think of removing it.
type overrideFlags struct {
	Dependency dependencyName `arg:"" help:"Its name. It need not be known yet."`
	Reason     string         `required:"" placeholder:"TEXT" help:"Why, for those who find it: 8 to 500 characters."`
	For        *time.Duration `required:"" placeholder:"DURATION" help:"How long, such as 30m or 1h; at most 168h."`
	Revision   *int64         `placeholder:"N" help:"Only over the override with this revision, 0 for none (exit code 5 otherwise)."`
}

// Validate checks what the server would see rounded.
func (f *overrideFlags) Validate() error {
	const most = time.Duration(wire.MaxOverrideMS) * time.Millisecond
	if f.For != nil && (*f.For < time.Millisecond || *f.For > most) { // nil: kong misses it itself, after this
		return fmt.Errorf("--for: %s must be a duration of 1ms to %.0fh, such as 1h", f.For, most.Hours())
	}
	return validRevision(f.Revision)
}

func validRevision(r *int64) error {
	if r != nil && *r < 0 {
		return fmt.Errorf("--revision: %d must be a revision as read, or 0 for none", *r)
	}
	return nil
}

// Run puts the override whose mode the command's name says.
func (f *overrideFlags) Run(ctx context.Context, k *kong.Context, o *operator) error {
	what := k.Selected().Name
	body, err := json.Marshal(wire.OverrideRequest{Mode: string(modes[what]), Reason: f.Reason, ExpiresInMS: f.For.Milliseconds()})
	if err != nil {
		return err
	}
	return o.order(ctx, what, f.Dependency, ask{
		method: http.MethodPut, path: dependencyPath(f.Dependency, "/override"), ifMatch: f.Revision, body: body,
	})
}

// autoFlags end an override.
type autoFlags struct {
	Dependency dependencyName `arg:"" help:"Its name."`
	Revision   *int64         `placeholder:"N" help:"Only if the override has this revision (exit code 5 otherwise)."`
}

// Validate is kong's.
func (f *autoFlags) Validate() error { return validRevision(f.Revision) }

// Run succeeds too when there is no override: the dependency is then as the operator wants it.
func (f *autoFlags) Run(ctx context.Context, o *operator) error {
	return o.remove(ctx, "auto", "automatic", f.Dependency, ask{
		method: http.MethodDelete, path: dependencyPath(f.Dependency, "/override"), ifMatch: f.Revision,
	})
}

// resetFlags name the breaker that is reset.
type resetFlags struct {
	Dependency dependencyName `arg:"" help:"Its name."`
}

// Run closes a breaker and forgets its episode; an override stays.
func (f *resetFlags) Run(ctx context.Context, o *operator) error {
	return o.order(ctx, "reset", f.Dependency, ask{method: http.MethodPost, path: dependencyPath(f.Dependency, "/reset")})
}
