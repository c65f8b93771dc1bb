package wire

import "fmt"

// Problem is an error answer, application/problem+json (RFC 9457). Callers branch on Code, which never changes its
// meaning; the rest is for people.
type Problem struct {
	Type   string         `json:"type"` // always "about:blank"
	Title  string         `json:"title"`
	Status int            `json:"status"`
	Code   string         `json:"code"`
	Detail string         `json:"detail,omitempty"`
	Errors []ProblemField `json:"errors,omitempty"`
}

// ProblemField names one field of a request that was refused, and the limit it broke.
type ProblemField struct {
	Field string `json:"field"`
	Limit string `json:"limit"`
}

// ContentType is the media type of a Problem.
const ContentType = "application/problem+json"

// Error codes.
const (
	CodeMalformed        = "malformed"          // 400: not JSON, or not of the right shape
	CodeInvalid          = "invalid"            // 422: a field is out of its bounds
	CodeUnauthorized     = "unauthorized"       // 401: no token, unknown token, expired token
	CodeForbidden        = "forbidden"          // 403: the token's role or dependencies do not allow this
	CodeNotFound         = "not_found"          // 404
	CodeMethod           = "method_not_allowed" // 405
	CodeConflict         = "conflict"           // 409: somebody else was faster
	CodePrecondition     = "precondition"       // 412: If-Match names an older revision
	CodeTooLarge         = "too_large"          // 413: body over the limit
	CodeMediaType        = "media_type"         // 415: not application/json
	CodeRateLimited      = "rate_limited"       // 429
	CodeInternal         = "internal"           // 500
	CodeStoreUnavailable = "store_unavailable"  // 503: Redis does not answer
	CodeShuttingDown     = "shutting_down"      // 503
	CodeBusy             = "busy"               // 503: too many syncs wait for the store
)

// Error makes a Problem usable as a Go error.
func (p *Problem) Error() string {
	if p.Detail == "" {
		return fmt.Sprintf("%s (%d)", p.Code, p.Status)
	}
	return fmt.Sprintf("%s (%d): %s", p.Code, p.Status, p.Detail)
}
