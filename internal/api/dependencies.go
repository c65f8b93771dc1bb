package api

import (
	"cmp"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/gin-gonic/gin"

	"github.com/retryplane/retryplane/pkg/policy"
	"github.com/retryplane/retryplane/pkg/wire"
)

// Limits of a page of a list.
const (
	defaultPage = 100
	mostPage    = 1000
)

// Orders within the same severity.
const (
	sortName    = "name"
	sortFailure = "failure"
)

// stateForced selects the dependencies under an override.
const stateForced = "forced"

var stateWords = []string{wire.Open, wire.HalfOpen, stateForced, wire.Closed}

// place is where a dependency stands in the list, and what a cursor holds: the place of the page's last one. What
// changes its place between two pages may be missing or come twice.
type place struct {
	Sort     string `json:"s"`
	Severity int    `json:"v"`
	Failure  int64  `json:"f,omitempty"` // ppm, only when sorted by it
	Name     string `json:"n"`
}

func placeOf(d *wire.Dependency, sort string) place {
	p := place{Sort: sort, Severity: severity(d), Name: d.Name}
	if total := d.Window.Success + d.Window.Failure; sort == sortFailure && total > 0 {
		p.Failure = d.Window.Failure * policy.Whole / total
	}
	return p
}

func (p place) compare(q place) int {
	return cmp.Or(cmp.Compare(p.Severity, q.Severity), cmp.Compare(q.Failure, p.Failure), cmp.Compare(p.Name, q.Name))
}

// severity is smaller for what a human should look at first.
func severity(d *wire.Dependency) int {
	switch {
	case d.Breaker.Effective == wire.Open:
		return 0
	case d.Breaker.Effective == wire.HalfOpen:
		return 1
	case d.Breaker.Override != nil:
		return 2
	}
	return 3
}

func (s *Server) listDependencies(c *gin.Context) error {
	q := &query{c: c}
	states := q.words("state", stateWords)
	sort := cmp.Or(q.word("sort", []string{sortName, sortFailure}), sortName)
	part := strings.ToLower(c.Query("q"))
	limit := q.limit()
	var after *place
	if text := c.Query("cursor"); text != "" {
		after = new(place)
		raw, err := base64.RawURLEncoding.DecodeString(text)
		if err != nil || json.Unmarshal(raw, after) != nil || after.Sort != sort {
			q.wrong("cursor", "what the page before gave as next, with the same sort")
		}
	}
	if len(q.fields) > 0 {
		return invalid(q.fields...)
	}

	who := callerOf(c)
	type item struct {
		place
		d *wire.Dependency
	}
	var items []item
	all := s.exchange.Dependencies()
	for i := range all {
		d := &all[i]
		if !who.sees(d.Name) || !strings.Contains(d.Name, part) || !inState(d, states) {
			continue
		}
		if p := placeOf(d, sort); after == nil || p.compare(*after) > 0 {
			items = append(items, item{p, d})
		}
	}
	slices.SortFunc(items, func(a, b item) int { return a.compare(b.place) })
	list := wire.DependencyList{Dependencies: []wire.Dependency{}}
	for i, it := range items {
		if i == limit {
			raw, err := json.Marshal(items[i-1].place)
			if err != nil {
				return err
			}
			list.Next = base64.RawURLEncoding.EncodeToString(raw)
			break
		}
		list.Dependencies = append(list.Dependencies, *it.d)
	}
	return answer(c, list)
}

func inState(d *wire.Dependency, states []string) bool {
	return len(states) == 0 || slices.Contains(states, d.Breaker.Effective) ||
		d.Breaker.Override != nil && slices.Contains(states, stateForced)
}

func (s *Server) getDependency(c *gin.Context) error {
	name, err := named(c)
	if err != nil {
		return err
	}
	d, ok := s.exchange.Dependency(name)
	if !ok {
		return problem(http.StatusNotFound, wire.CodeNotFound, fmt.Sprintf("there is no dependency %q", name))
	}
	return answer(c, d)
}

// named is the dependency in the path, if it can be one and the caller may know of it.
func named(c *gin.Context) (string, error) {
	name := c.Param("name")
	if !policy.ValidName(name) {
		return "", invalid(wire.ProblemField{Field: "name", Limit: policy.NameLimit})
	}
	if who := callerOf(c); !who.sees(name) {
		return "", who.forbidden(wire.ProblemField{Field: "name", Limit: who.limit() + ", not " + name})
	}
	return name, nil
}

// query reads query parameters and collects the wrong ones.
type query struct {
	c      *gin.Context
	fields []wire.ProblemField
}

func (q *query) wrong(field, limit string) {
	q.fields = append(q.fields, wire.ProblemField{Field: field, Limit: limit})
}

func (q *query) limit() int { return q.number("limit", defaultPage, mostPage) }

// number reads a number from 1 to most.
func (q *query) number(field string, otherwise, most int) int {
	text := q.c.Query(field)
	if text == "" {
		return otherwise
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 || n > most {
		q.wrong(field, fmt.Sprintf("1 to %d", most))
	}
	return n
}

func (q *query) word(field string, known []string) string {
	word := q.c.Query(field)
	if word != "" && !slices.Contains(known, word) {
		q.wrong(field, "one of "+strings.Join(known, ", "))
	}
	return word
}

// words reads a parameter that may be repeated.
func (q *query) words(field string, known []string) []string {
	words := slices.DeleteFunc(q.c.QueryArray(field), func(w string) bool { return w == "" })
	for _, w := range words {
		if !slices.Contains(known, w) {
			q.wrong(field, "one of "+strings.Join(known, ", "))
			break
		}
	}
	return words
}

func (q *query) truth(field string) bool {
	text := q.c.Query(field)
	if text == "" {
		return false
	}
	v, err := strconv.ParseBool(text)
	if err != nil {
		q.wrong(field, "true or false")
	}
	return v
}
