package main

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/retryplane/retryplane/internal/api"
)

// configFile is the YAML file of --config. Every key is optional.
type configFile struct {
	Listen        string      `yaml:"listen"`
	Redis         oneOrMore   `yaml:"redis"`
	LogLevel      string      `yaml:"log_level"`
	LogFormat     string      `yaml:"log_format"`
	ShutdownGrace string      `yaml:"shutdown_grace"`
	Tokens        []fileToken `yaml:"tokens"`

	broken bool // it could not be read in full
}

// fileToken is who may call the API. Only the hash of the token is in the file.
type fileToken struct {
	Name         string    `yaml:"name"`
	SHA256       string    `yaml:"sha256"`
	Roles        []string  `yaml:"roles"`
	Dependencies []string  `yaml:"dependencies"`
	ExpiresAt    time.Time `yaml:"expires_at"`
}

// oneOrMore is a list that may be written as its only item.
type oneOrMore []string

// UnmarshalYAML implements [yaml.Unmarshaler].
func (o *oneOrMore) UnmarshalYAML(n *yaml.Node) error {
	if n.Kind == yaml.ScalarNode {
		*o = oneOrMore{n.Value}
		return nil
	}
	var list []string
	if err := n.Decode(&list); err != nil {
		// Not what yaml says: its text may hold a part of a URL, and with it of a password.
		return fmt.Errorf("line %d: redis must be a URL or a list of URLs", n.Line)
	}
	*o = list
	return nil
}

// maxConfig bounds the file: a wrong path must not fill the memory.
const maxConfig = 1 << 20

// readConfig reads a file. The error joins one error per mistake; what could be read is returned beside it.
func readConfig(path string) (*configFile, error) {
	c := &configFile{}
	f, err := os.Open(path)
	if err != nil {
		c.broken = true
		return c, fmt.Errorf("config: %w", err)
	}
	defer func() { _ = f.Close() }() // only read
	text, err := io.ReadAll(io.LimitReader(f, maxConfig+1))
	if err != nil {
		return c, fmt.Errorf("config: %w", err)
	}
	if len(text) > maxConfig {
		return c, fmt.Errorf("config: %s must be at most %d bytes", path, maxConfig)
	}
	d := yaml.NewDecoder(bytes.NewReader(text))
	d.KnownFields(true)
	err = d.Decode(c)
	if errors.Is(err, io.EOF) { // empty, or nothing but comments
		return c, nil
	}
	if mistakes, ok := errors.AsType[*yaml.TypeError](err); ok {
		all := make([]error, len(mistakes.Errors))
		for i, m := range mistakes.Errors {
			text, known := plain(m)
			all[i] = fmt.Errorf("config: %s: %s", path, text)
			c.broken = c.broken || !known
		}
		return c, errors.Join(all...)
	}
	if err != nil {
		c.broken = true
		return c, fmt.Errorf("config: %s: %w", path, err)
	}
	return c, nil
}

// keys are all keys of the file, to suggest from.
var keys = []string{
	"listen", "redis", "log_level", "log_format", "shutdown_grace", "tokens",
	"name", "sha256", "roles", "dependencies", "expires_at",
}

// plain turns yaml's words for an unknown or a repeated key, which name a Go type, into ours. known reports whether the
// message is about such a key: then the rest of the file was read.
func plain(message string) (text string, known bool) {
	if text, _, ok := strings.Cut(message, " not found in type "); ok {
		line, key, _ := strings.Cut(text, ": field ")
		meant := strings.ToLower(strings.ReplaceAll(key, "-", "_"))
		if slices.Contains(keys, meant) && meant != key {
			return fmt.Sprintf("%s: unknown key %s: is %s meant?", line, key, meant), true
		}
		return line + ": unknown key " + key, true
	}
	if text, _, ok := strings.Cut(message, " already set in type "); ok {
		return strings.Replace(text, ": field ", ": repeated key ", 1), true
	}
	// "line 2: cannot unmarshal !!str `none` into []main.fileToken"
	text, _, _ = strings.Cut(message, " into ")
	line, value, ok := strings.Cut(text, ": cannot unmarshal ")
	if !ok {
		return message, false
	}
	_, value, _ = strings.Cut(value, " ")
	return line + ": this key does not take " + cmp.Or(value, "a list or a map"), false
}

// auth checks the tokens. nil without tokens.
func (c *configFile) auth() (*api.Auth, error) {
	if len(c.Tokens) == 0 {
		return nil, nil
	}
	tokens := make([]api.Token, len(c.Tokens))
	for i, t := range c.Tokens {
		tokens[i] = api.Token{Name: t.Name, SHA256: t.SHA256, Roles: t.Roles, Dependencies: t.Dependencies, ExpiresAt: t.ExpiresAt}
	}
	return api.NewAuth(tokens)
}
