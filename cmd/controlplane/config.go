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

	wrong bool // something in it is: there may have been meant to be tokens
	torn  bool // what it says of tokens was not read in full
	// The fields of tokens that are missing where an unknown key may mean them: tokens[0].roles.
	unclear []string
}

// fileToken is who may call the API. Only the hash of the token is in the file.
type fileToken struct {
	Name         string   `yaml:"name"`
	SHA256       string   `yaml:"sha256"`
	Roles        []string `yaml:"roles"`
	Dependencies []string `yaml:"dependencies"`
	ExpiresAt    instant  `yaml:"expires_at"`
}

// instant is a time, whether YAML takes its text for one or for a string.
type instant struct{ time.Time }

// UnmarshalYAML implements [yaml.Unmarshaler].
func (i *instant) UnmarshalYAML(n *yaml.Node) error {
	if err := n.Decode(&i.Time); err != nil {
		return mistake(n, "expires_at must be a time such as 2030-01-01T00:00:00Z")
	}
	return nil
}

// mistake is an error that lets yaml go on and find more of them.
func mistake(n *yaml.Node, text string) error {
	return &yaml.TypeError{Errors: []string{fmt.Sprintf("line %d: %s", n.Line, text)}}
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
		return mistake(n, "redis must be a URL or a list of URLs")
	}
	*o = list
	return nil
}

// maxConfig bounds the file: a wrong path must not fill the memory.
const maxConfig = 1 << 20

// readConfig returns the text of a file.
func readConfig(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // only read
	text, err := io.ReadAll(io.LimitReader(f, maxConfig+1))
	if err == nil && len(text) > maxConfig {
		err = fmt.Errorf("%s must be at most %d bytes", path, maxConfig)
	}
	return text, err
}

// parseConfig reads the text of a file. The error joins one error per mistake; what could be read is returned beside it.
func parseConfig(text []byte) (*configFile, error) {
	c := &configFile{}
	d := yaml.NewDecoder(bytes.NewReader(text))
	d.KnownFields(true)
	err := d.Decode(c)
	if errors.Is(err, io.EOF) { // empty, or nothing but comments
		return c, nil
	}
	if err == nil {
		var more yaml.Node
		if err = d.Decode(&more); errors.Is(err, io.EOF) {
			return c, nil
		} else if err == nil {
			err = fmt.Errorf("line %d: only one document is read: what is after the --- would not count", more.Line)
		}
	}
	c.wrong = true
	mistakes, ok := errors.AsType[*yaml.TypeError](err)
	if !ok {
		c.torn = true
		return c, err
	}
	all := make([]error, len(mistakes.Errors))
	for i, m := range mistakes.Errors {
		text, known := plain(m)
		all[i] = errors.New(text)
		c.torn = c.torn || !known
	}
	c.unclear = unclear(text)
	return c, errors.Join(all...)
}

// unclear returns the fields of tokens that are missing where an unknown key may mean them.
func unclear(text []byte) (fields []string) {
	var file struct{ Tokens []map[string]yaml.Node }
	if yaml.Unmarshal(text, &file) != nil {
		return nil
	}
	for i, t := range file.Tokens {
		known := 0
		var missing []string
		for _, key := range keys["main.fileToken"] {
			if _, ok := t[key]; ok {
				known++
			} else {
				missing = append(missing, fmt.Sprintf("tokens[%d].%s", i, key))
			}
		}
		if known < len(t) {
			fields = append(fields, missing...)
		}
	}
	return fields
}

// keys are all keys of the file and of a token, by the names that yaml has for them.
var keys = map[string][]string{
	"main.configFile": {"listen", "redis", "log_level", "log_format", "shutdown_grace", "tokens"},
	"main.fileToken":  {"name", "sha256", "roles", "dependencies", "expires_at"},
}

// plain turns yaml's words, which name Go types, into ours. known reports whether the message is about an unknown key:
// then the rest of the file was read.
func plain(message string) (text string, known bool) {
	if text, of, ok := strings.Cut(message, " not found in type "); ok {
		line, key, _ := strings.Cut(text, ": field ")
		if meant := nearest(key, keys[of]); meant != "" {
			return fmt.Sprintf("%s: unknown key %s: is %s meant?", line, key, meant), true
		}
		return fmt.Sprintf("%s: unknown key %s: there are %s", line, key, strings.Join(keys[of], ", ")), true
	}
	// "line 2: cannot unmarshal !!str `none` into []main.fileToken"
	text, into, _ := strings.Cut(message, " into ")
	line, value, ok := strings.Cut(text, ": cannot unmarshal ")
	if !ok {
		return message, false
	}
	_, value, _ = strings.Cut(value, " ")
	value = cmp.Or(value, "a list or a map")
	switch into {
	case "main.configFile":
		return line + ": the file must be keys and their values, such as listen: " + defaultListen, false
	case "main.fileToken":
		return line + ": a token must be keys and their values, as controlplane token prints them", false
	case "[]main.fileToken":
		return line + ": tokens must be a list, as controlplane token prints it", false
	case "[]string":
		return line + ": this key takes a list, such as [a, b], not " + value, false
	}
	return line + ": this key does not take " + value, false
}

// nearest returns the key that was meant by another one, or "": written with dashes or capitals, cut short, or a
// letter or two away.
func nearest(key string, known []string) string {
	written := strings.ToLower(strings.ReplaceAll(key, "-", "_"))
	const slip = 2
	best, least := "", slip+1
	for _, k := range known {
		d := distance(written, k)
		if len(written) > slip && strings.HasPrefix(k, written) {
			d = min(d, 1)
		}
		if d < least && len(k) > d+slip {
			best, least = k, d
		}
	}
	return best
}

// distance counts the letters to add, to drop and to change between two words (Levenshtein).
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			changed := diagonal
			if a[i] != b[j] {
				changed++
			}
			diagonal = row[j+1]
			row[j+1] = min(changed, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}

// auth checks the tokens. nil without tokens. The error joins one error per mistake, and says nothing of what was not
// read or is unclear.
func (c *configFile) auth() (*api.Auth, error) {
	if len(c.Tokens) == 0 || c.torn {
		return nil, nil
	}
	tokens := make([]api.Token, len(c.Tokens))
	for i, t := range c.Tokens {
		tokens[i] = api.Token{Name: t.Name, SHA256: t.SHA256, Roles: t.Roles, Dependencies: t.Dependencies, ExpiresAt: t.ExpiresAt.Time}
	}
	auth, err := api.NewAuth(tokens)
	if err == nil {
		return auth, nil
	}
	mine := slices.DeleteFunc(unjoin(err), func(e error) bool {
		field, _, _ := strings.Cut(e.Error(), ": ")
		return slices.Contains(c.unclear, field)
	})
	return nil, errors.Join(mine...)
}
