package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"strconv"

	"github.com/retryplane/retryplane/pkg/wire"
)

// pageSize is how many entries are asked for at once.
const pageSize = 500

// listFlags select dependencies.
type listFlags struct {
	State []string `enum:"open,half_open,forced,closed" placeholder:"STATE" help:"Only these: open, half_open, forced (under an override) or closed. May be repeated."`
	Query string   `placeholder:"TEXT" help:"Only names that contain this."`
}

// Run lists all pages, the most severe dependencies first.
func (f *listFlags) Run(ctx context.Context, o *operator) error {
	query := url.Values{"state": f.State, "q": {f.Query}}
	rows := [][]string{listHeader}
	seen := map[string]bool{}
	all := []json.RawMessage{}
	err := o.pages(ctx, wire.PathDependencies, query, 0, func(page json.RawMessage) (string, int, error) {
		var list struct {
			Dependencies []json.RawMessage `json:"dependencies"`
			Next         string            `json:"next"`
		}
		if err := json.Unmarshal(page, &list); err != nil {
			return "", 0, err
		}
		for _, raw := range list.Dependencies {
			var d wire.Dependency
			if err := json.Unmarshal(raw, &d); err != nil {
				return "", 0, err
			}
			if seen[d.Name] {
				continue // it became less severe between two pages
			}
			seen[d.Name] = true
			all = append(all, raw)
			rows = append(rows, listRow(&d))
		}
		return list.Next, len(list.Dependencies), nil
	})
	if err != nil {
		return fmt.Errorf("list: %w", err)
	}
	if o.json {
		return o.printList("dependencies", all)
	}
	if len(all) == 0 {
		o.note("no dependency to list")
	}
	return writeTable(o.stdout, rows)
}

// getFlags name a dependency.
type getFlags struct {
	Dependency dependencyName `arg:"" help:"Its name."`
}

// Run shows the dependency.
func (f *getFlags) Run(ctx context.Context, o *operator) error {
	d, raw, err := o.dependency(ctx, "get", f.Dependency)
	if err != nil {
		return err
	}
	return o.show(&d, raw)
}

// transitionsFlags select entries of the log.
type transitionsFlags struct {
	Dependency *dependencyName `arg:"" optional:"" help:"Only of this one."`
	Limit      int             `default:"50" placeholder:"N" help:"At most so many, the newest (${default})."`
	Reopenings bool            `help:"Also the reopenings and probings within an episode."`
}

// Validate is kong's.
func (f *transitionsFlags) Validate() error {
	if f.Limit < 1 {
		return fmt.Errorf("--limit: %d must be 1 or more", f.Limit)
	}
	return nil
}

// Run shows the newest entries of the transition log first.
func (f *transitionsFlags) Run(ctx context.Context, o *operator) error {
	query := url.Values{}
	if f.Dependency != nil {
		query.Set("dependency", string(*f.Dependency))
	}
	if f.Reopenings {
		query.Set("reopenings", "true")
	}
	rows := [][]string{transitionHeader}
	all := []json.RawMessage{}
	err := o.pages(ctx, wire.PathTransitions, query, f.Limit, func(page json.RawMessage) (string, int, error) {
		var list struct {
			Transitions []json.RawMessage `json:"transitions"`
			Next        string            `json:"next"`
		}
		if err := json.Unmarshal(page, &list); err != nil {
			return "", 0, err
		}
		for _, raw := range list.Transitions[:min(len(list.Transitions), f.Limit-len(all))] {
			var t wire.Transition
			if err := json.Unmarshal(raw, &t); err != nil {
				return "", 0, err
			}
			all = append(all, raw)
			rows = append(rows, transitionRow(&t))
		}
		return list.Next, len(list.Transitions), nil
	})
	if err != nil {
		return fmt.Errorf("transitions: %w", err)
	}
	if o.json {
		return o.printList("transitions", all)
	}
	return writeTable(o.stdout, rows)
}

// pages reads the pages of a list until there is no next one or most entries have come; 0 = all. take reads a page and
// returns the next one's cursor and how many entries the page had.
func (o *operator) pages(ctx context.Context, path string, query url.Values, most int, take func(json.RawMessage) (string, int, error)) error {
	for got := 0; ; {
		size := pageSize
		if most > 0 {
			size = min(size, most-got)
		}
		query.Set("limit", strconv.Itoa(size))
		var page json.RawMessage
		if _, err := o.plane.call(ctx, ask{path: path, query: query}, &page); err != nil {
			return err
		}
		next, n, err := take(page)
		if err != nil {
			return fmt.Errorf("read a page: %w", err)
		}
		got += n
		if next == "" || most > 0 && got >= most {
			return nil
		}
		if next == query.Get("cursor") {
			return fmt.Errorf("%s gives the same page again and again", o.plane.base)
		}
		query.Set("cursor", next)
	}
}

// printList prints the entries of all pages as one answer.
func (o *operator) printList(name string, entries []json.RawMessage) error {
	all, err := json.Marshal(map[string][]json.RawMessage{name: entries})
	if err != nil {
		return err
	}
	return o.printJSON(all)
}
