package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"

	"github.com/retryplane/retryplane/pkg/policy"
	"github.com/retryplane/retryplane/pkg/wire"
)

// operator is what the commands of an operator work with.
type operator struct {
	plane          *remote
	json           bool
	stdin          io.Reader
	stdout, stderr io.Writer
}

// dependencyName is a dependency on the command line.
type dependencyName string

// Validate refuses what can be no name before anybody is asked: "." would be another path.
func (n dependencyName) Validate() error {
	if !policy.ValidName(string(n)) {
		return fmt.Errorf("%q must be %s", string(n), policy.NameLimit)
	}
	return nil
}

// usageError is a mistake on the command line that only shows when a command begins.
type usageError struct{ error }

// Unwrap lets the mistakes in it be told one by one.
func (e usageError) Unwrap() error { return e.error }

// report tells on stderr why a command did not do its work and returns the exit code for it.
func report(stderr io.Writer, err error) int {
	l := log.New(stderr, "controlplane: ", 0)
	if usage, ok := errors.AsType[usageError](err); ok {
		return refuse(stderr, usage.error)
	}
	if p, ok := errors.AsType[*wire.Problem](err); ok {
		l.Printf("%v", err)
		for _, f := range p.Errors {
			l.Printf("  %s: %s", f.Field, f.Limit)
		}
		switch p.Status {
		case http.StatusNotFound:
			return exitNotFound
		case http.StatusConflict, http.StatusPreconditionFailed:
			return exitConflict
		}
		return exitError
	}
	lost, isLost := errors.AsType[*unreachableError](err)
	interrupted := errors.Is(err, context.Canceled)
	if interrupted {
		err = errors.New("interrupted")
	}
	l.Print(err)
	if !isLost {
		return exitError
	}
	if lost.unsure {
		l.Print("the order may have been carried out nonetheless; look before you repeat it")
	}
	if interrupted {
		return exitError
	}
	return exitUnreachable
}

// note tells a human something that is not the answer.
func (o *operator) note(format string, args ...any) {
	log.New(o.stderr, "controlplane: ", 0).Printf(format, args...)
}

// printJSON shows an answer of the API with everything in it, also what a newer server says and we do not know.
func (o *operator) printJSON(answer json.RawMessage) error {
	var b bytes.Buffer
	if err := json.Indent(&b, answer, "", "  "); err != nil {
		return err
	}
	b.WriteByte('\n')
	_, err := o.stdout.Write(b.Bytes())
	return err
}

// dependency reads one dependency, for the command that what names.
func (o *operator) dependency(ctx context.Context, what string, name dependencyName) (wire.Dependency, json.RawMessage, error) {
	var d wire.Dependency
	raw, err := o.plane.call(ctx, ask{path: dependencyPath(name, "")}, &d)
	if err != nil {
		return d, nil, fmt.Errorf("%s %s: %w", what, name, err)
	}
	return d, raw, nil
}

// show prints a dependency.
func (o *operator) show(d *wire.Dependency, raw json.RawMessage) error {
	if o.json {
		return o.printJSON(raw)
	}
	return writeTable(o.stdout, details(d))
}

// order sends an order about a dependency and shows what it is like then.
func (o *operator) order(ctx context.Context, what string, name dependencyName, a ask) error {
	var d wire.Dependency
	raw, err := o.plane.call(ctx, a, &d)
	if err != nil {
		return fmt.Errorf("%s %s: %w", what, name, err)
	}
	return o.show(&d, raw)
}

// remove deletes a part of a dependency, and is content if it is not there: then it says already. It is an error if the
// dependency itself is unknown.
func (o *operator) remove(ctx context.Context, what, already string, name dependencyName, a ask) error {
	err := o.order(ctx, what, name, a)
	if p, ok := errors.AsType[*wire.Problem](err); !ok || p.Status != http.StatusNotFound {
		return err
	}
	// The refusal does not say which of the two is missing.
	d, raw, err := o.dependency(ctx, what, name)
	if err != nil {
		return err
	}
	o.note("%s is %s already", name, already)
	return o.show(&d, raw)
}
