package api

import (
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/retryplane/retryplane/pkg/wire"
)

// Token is one named bearer token. The control plane knows only its SHA-256.
type Token struct {
	Name   string   // 1 to 64 printable characters; who did it, in logs and records
	SHA256 string   // of the token, 64 hexadecimal digits
	Roles  []string // report (sync, stream), read, operate (includes read); at least one
	// Dependencies limits the token to the names that match one of these globs: '*' matches any run of characters,
	// '/' included, '?' one character, [a-z] a class. None = all names.
	Dependencies []string
	ExpiresAt    time.Time // zero = never
}

// Auth knows the tokens. It is immutable. A nil *Auth lets everybody in as "anonymous"; an Auth without tokens lets
// nobody in.
type Auth struct{ known []knownToken }

type knownToken struct {
	hash   [sha256.Size]byte
	caller caller
}

// Anonymous is everybody's name while there is no Auth.
const Anonymous = "anonymous"

// roles is a set of roles.
type roles uint8

const (
	roleReport roles = 1 << iota
	roleRead
	roleOperate
)

var roleWords = []struct {
	role roles
	word string
}{{roleReport, "report"}, {roleRead, "read"}, {roleOperate, "operate"}}

// String is for people: "report or read".
func (r roles) String() string { return strings.Join(r.words(), " or ") }

func (r roles) words() []string {
	words := []string{}
	for _, w := range roleWords {
		if r&w.role != 0 {
			words = append(words, w.word)
		}
	}
	return words
}

// caller is who sent a request.
type caller struct {
	name    string
	roles   roles
	globs   []string // as configured
	expires time.Time
}

const callerKey = "caller"

func callerOf(c *gin.Context) *caller { return c.MustGet(callerKey).(*caller) }

var anonymous = &caller{name: Anonymous, roles: roleReport | roleRead | roleOperate}

// NewAuth checks the tokens. The error joins one per wrong field, each beginning with its name: tokens[2].sha256.
func NewAuth(tokens []Token) (*Auth, error) {
	const mostName = 64
	var errs []error
	wrong := func(i int, field, limit string) {
		errs = append(errs, fmt.Errorf("tokens[%d].%s: must be %s", i, field, limit))
	}
	a := &Auth{}
	names, hashes := make(map[string]bool), make(map[[sha256.Size]byte]bool)
	for i, t := range tokens {
		k := knownToken{caller: caller{name: t.Name, globs: slices.Clone(t.Dependencies), expires: t.ExpiresAt}}
		switch {
		case !text(t.Name, 1, mostName):
			wrong(i, "name", fmt.Sprintf("1 to %d printable characters", mostName))
		case t.Name == Anonymous:
			wrong(i, "name", "another word than "+Anonymous)
		case names[t.Name]:
			wrong(i, "name", "a name that no other token has")
		}
		names[t.Name] = true
		if raw, err := hex.DecodeString(t.SHA256); err != nil || len(raw) != sha256.Size {
			wrong(i, "sha256", "64 hexadecimal digits: the SHA-256 of the token")
		} else if guessable([sha256.Size]byte(raw)) {
			wrong(i, "sha256", "the hash of a token that nobody can guess")
		} else if k.hash = [sha256.Size]byte(raw); hashes[k.hash] {
			wrong(i, "sha256", "the hash of a token of its own")
		}
		hashes[k.hash] = true
		if len(t.Roles) == 0 {
			wrong(i, "roles", "at least one of report, read, operate")
		}
		for j, word := range t.Roles {
			at := slices.IndexFunc(roleWords, func(w struct {
				role roles
				word string
			}) bool {
				return w.word == word
			})
			if at < 0 {
				wrong(i, fmt.Sprintf("roles[%d]", j), "one of report, read, operate")
				continue
			}
			k.caller.roles |= roleWords[at].role
		}
		if k.caller.roles&roleOperate != 0 {
			k.caller.roles |= roleRead
		}
		for j, glob := range t.Dependencies {
			switch _, err := path.Match(flat(glob), ""); {
			case err != nil || glob == "":
				wrong(i, fmt.Sprintf("dependencies[%d]", j), `a glob such as "payments/*"`)
			case strings.ToLower(glob) != glob:
				wrong(i, fmt.Sprintf("dependencies[%d]", j), "in lower case, as all names are")
			}
		}
		a.known = append(a.known, k)
	}
	if len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	return a, nil
}

// guessable reports whether the hash is that of a token that stands in examples everywhere.
func guessable(hash [sha256.Size]byte) bool {
	for _, token := range [...]string{"", "test", "token", "secret", "password", "changeme", "admin"} {
		if hash == sha256.Sum256([]byte(token)) {
			return true
		}
	}
	return false
}

// identify finds out who sent r. The error is a problem that says what is wrong with the token.
func (a *Auth) identify(r *http.Request) (*caller, error) {
	if a == nil {
		return anonymous, nil
	}
	scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	token = strings.TrimSpace(token)
	if !strings.EqualFold(scheme, "Bearer") || token == "" {
		return nil, unauthorized("the request has no bearer token")
	}
	hash := sha256.Sum256([]byte(token))
	var found *caller
	for i := range a.known { // all of them, so that the time tells nothing
		if subtle.ConstantTimeCompare(hash[:], a.known[i].hash[:]) == 1 {
			found = &a.known[i].caller
		}
	}
	switch {
	case found == nil:
		return nil, unauthorized("the token is unknown")
	case found.expired(time.Now()):
		return nil, unauthorized("the token expired at " + found.expires.UTC().Format(time.RFC3339))
	}
	return found, nil
}

func unauthorized(detail string) error {
	return problem(http.StatusUnauthorized, wire.CodeUnauthorized, detail)
}

func (w *caller) expired(now time.Time) bool { return !w.expires.IsZero() && !now.Before(w.expires) }

// seesAll reports whether no glob limits the caller.
func (w *caller) seesAll() bool { return len(w.globs) == 0 }

// sees reports whether the caller may know of a dependency.
func (w *caller) sees(name string) bool {
	if w.seesAll() {
		return true
	}
	name = flat(name)
	for _, glob := range w.globs {
		if ok, _ := path.Match(flat(glob), name); ok { // NewAuth checked the pattern
			return true
		}
	}
	return false
}

// flat hides the slashes from path.Match, whose '*' stops at them. Dependency names never hold a NUL.
func flat(s string) string { return strings.ReplaceAll(s, "/", "\x00") }

// forbidden names the dependencies that a token's globs keep it from.
func (w *caller) forbidden(fields ...wire.ProblemField) error {
	return problem(http.StatusForbidden, wire.CodeForbidden,
		fmt.Sprintf("the token %q does not reach this dependency", w.name), fields...)
}

// limit says what the token reaches, for error messages.
func (w *caller) limit() string { return "a name that matches " + strings.Join(w.globs, ", ") }
