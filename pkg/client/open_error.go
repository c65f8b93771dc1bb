package client

import (
	"errors"
	"fmt"
	"time"

	"github.com/retryplane/retryplane/pkg/policy"
)

// Errors that callers branch on with errors.Is.
var (
	ErrOpen   = errors.New("breaker open")           // the call was not sent: always a *OpenError
	ErrBudget = errors.New("retry budget exhausted") // the retry was not sent; the attempts before it were
	// ErrUnreachable: what Flush had to report stays here, because the control plane cannot be reached at present.
	ErrUnreachable = errors.New("control plane unreachable")
	ErrClosed      = errors.New("client closed") // from Flush after Close
	// ErrTokenRefused: the control plane is there, and does not take this client's token (status 401 or 403): see
	// [WithToken]. Until it does, local breakers and budgets apply. From Flush, and in Stats and EventDegraded.
	ErrTokenRefused = errors.New("token refused by the control plane")
)

// Source says who decided that a call is rejected.
type Source string

// The sources of a decision.
const (
	SourceFleet    Source = "fleet"    // the breaker that all instances share
	SourceLocal    Source = "local"    // this instance's own breaker
	SourceOverride Source = "override" // an operator
)

// OpenError says that a call was rejected without being sent. errors.Is(err, ErrOpen) holds. Values are shared
// between calls and must not be written to.
type OpenError struct {
	Dependency string
	RetryAfter time.Duration // about how long calls will still be rejected (up to a tenth too long); 0 = unknown
	Source     Source
}

func (e *OpenError) Error() string { return e.Dependency + ": " + e.text() }

// text is Error without the name, for who has said it.
func (e *OpenError) text() string {
	if e.RetryAfter <= 0 {
		return fmt.Sprintf("breaker open (%s)", e.Source)
	}
	return fmt.Sprintf("breaker open (%s), retry after %s", e.Source, e.RetryAfter.Round(time.Millisecond))
}

// Is makes every OpenError an [ErrOpen].
func (e *OpenError) Is(target error) bool { return target == ErrOpen }

// InvalidNameError is what the methods of a handle return whose name cannot name a dependency. Nothing is guarded,
// counted or sent under such a name.
type InvalidNameError struct{ Name string }

func (e *InvalidNameError) Error() string {
	name := e.Name
	if len(name) > 140 {
		name = name[:140] + "..."
	}
	return fmt.Sprintf("dependency name %q: must be %s", name, policy.NameLimit)
}
