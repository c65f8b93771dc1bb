package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"

	"go.yaml.in/yaml/v3"

	"github.com/retryplane/retryplane/pkg/wire"
)

// policyFlags are the commands about a policy.
type policyFlags struct {
	Get    policyGetFlags    `cmd:"" help:"Show the policy in force, in a form that \"policy set\" takes."`
	Set    policySetFlags    `cmd:"" help:"Set the policy. What the file leaves out has the default value."`
	Delete policyDeleteFlags `cmd:"" help:"Go back to the default policy."`
}

// policyGetFlags name whose policy is shown.
type policyGetFlags struct {
	Dependency dependencyName `arg:"" help:"Its name."`
}

// policyDocument is a policy as people edit it.
type policyDocument struct {
	Source      string `yaml:"source"`
	Version     int64  `yaml:"version"`
	wire.Policy `yaml:",inline"`
}

// Run shows the policy in YAML, or as the API says it.
func (f *policyGetFlags) Run(ctx context.Context, o *operator) error {
	d, raw, err := o.dependency(ctx, "policy get", f.Dependency)
	if err != nil {
		return err
	}
	if o.json {
		var parts struct {
			Policy json.RawMessage `json:"policy"`
		}
		if err := json.Unmarshal(raw, &parts); err != nil {
			return err
		}
		return o.printJSON(parts.Policy)
	}
	text, err := yaml.Marshal(policyDocument{d.Policy.Source, d.Policy.Version, d.Policy.Policy})
	if err != nil {
		return err
	}
	_, err = o.stdout.Write(text)
	return err
}

// policySetFlags are a policy to be.
type policySetFlags struct {
	Dependency dependencyName `arg:"" help:"Its name. It need not be known yet."`
	File       string         `short:"f" required:"" placeholder:"FILE" help:"YAML or JSON; - reads it from the standard input. If it has a version, as \"policy get\" shows it, the policy is set only if that is still the one in force (exit code 5 otherwise)."`
}

// Run sets the policy. The server checks the fields: it may know more of them than we do.
func (f *policySetFlags) Run(ctx context.Context, o *operator) error {
	text, err := f.read(o.stdin)
	if err != nil {
		return usageError{fmt.Errorf("--file: %w", err)}
	}
	body, version, err := policyBody(text)
	if err != nil {
		return usageError{fmt.Errorf("--file: %s: %w", f.File, err)}
	}
	return o.order(ctx, "policy set", f.Dependency, ask{
		method: http.MethodPut, path: dependencyPath(f.Dependency, "/policy"), ifMatch: version, body: body,
	})
}

func (f *policySetFlags) read(stdin io.Reader) ([]byte, error) {
	from := stdin
	if f.File != "-" {
		file, err := os.Open(f.File)
		if err != nil {
			return nil, err
		}
		defer func() { _ = file.Close() }() // only read
		from = file
	}
	text, err := io.ReadAll(io.LimitReader(from, wire.MaxBody+1))
	if err == nil && len(text) > wire.MaxBody {
		err = fmt.Errorf("%s holds more than %d bytes", f.File, wire.MaxBody)
	}
	return text, err
}

// policyBody turns YAML or JSON into the body of a request. What "policy get" shows beside the policy is taken out:
// the source, and the version, which is returned; nil = none.
func policyBody(text []byte) (body []byte, version *int64, err error) {
	if !json.Valid(text) { // JSON is YAML too, but yaml does not take its tabs
		if text, err = yamlToJSON(text); err != nil {
			return nil, nil, err
		}
	}
	var fields map[string]json.RawMessage
	if json.Unmarshal(text, &fields) != nil || fields == nil {
		return nil, nil, errors.New("must hold a policy, such as \"budget: {floor: 20}\"")
	}
	if raw, ok := fields["version"]; ok {
		if err := json.Unmarshal(raw, &version); err != nil || version != nil && *version < 0 {
			return nil, nil, errors.New("version: must be a version as read, or 0 for none yet")
		}
	}
	delete(fields, "version")
	delete(fields, "source")
	body, err = json.Marshal(fields)
	return body, version, err
}

func yamlToJSON(text []byte) ([]byte, error) {
	d := yaml.NewDecoder(bytes.NewReader(text))
	var doc any
	if err := d.Decode(&doc); err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	if err := d.Decode(new(any)); !errors.Is(err, io.EOF) {
		return nil, errors.New("must hold one document")
	}
	text, err := json.Marshal(doc)
	if err != nil { // keys that are no strings, numbers that are none
		return nil, fmt.Errorf("must be what JSON can say: %w", err)
	}
	return text, nil
}

// policyDeleteFlags name whose policy is deleted.
type policyDeleteFlags struct {
	Dependency dependencyName `arg:"" help:"Its name."`
}

// Run succeeds too when the default policy is in force already.
func (f *policyDeleteFlags) Run(ctx context.Context, o *operator) error {
	return o.remove(ctx, "policy delete", "under the default policy", f.Dependency, ask{
		method: http.MethodDelete, path: dependencyPath(f.Dependency, "/policy"),
	})
}
