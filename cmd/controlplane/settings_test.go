package main

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/retryplane/retryplane/pkg/wire"
)

func config(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "config.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestParseRedis(t *testing.T) {
	t.Parallel()
	for url, want := range map[string]redisTarget{
		"redis://127.0.0.1:6379/0":                 {topology: standalone, addrs: []string{"127.0.0.1:6379"}},
		"redis://cache":                            {topology: standalone, addrs: []string{"cache:6379"}},
		"redis://cache:7000/3\n":                   {topology: standalone, addrs: []string{"cache:7000"}, db: 3},
		"redis://[::1]:7000/3":                     {topology: standalone, addrs: []string{"[::1]:7000"}, db: 3},
		"redis://[::1]":                            {topology: standalone, addrs: []string{"[::1]:6379"}},
		"redis://:p%40ss@cache/1":                  {topology: standalone, addrs: []string{"cache:6379"}, password: "p@ss", db: 1},
		"redis://u:a/b@cache":                      {topology: standalone, addrs: []string{"cache:6379"}, username: "u", password: "a/b"},
		"rediss://u:p@cache:1":                     {topology: standalone, addrs: []string{"cache:1"}, username: "u", password: "p", tls: true},
		"redis-sentinel://a:1,b/main":              {topology: sentinel, addrs: []string{"a:1", "b:26379"}, master: "main"},
		"redis-sentinel://:p@a/main/2":             {topology: sentinel, addrs: []string{"a:26379"}, master: "main", db: 2, password: "p"},
		"redis-cluster://a:1,b:2":                  {topology: cluster, addrs: []string{"a:1", "b:2"}},
		"rediss-cluster://a":                       {topology: cluster, addrs: []string{"a:6379"}, tls: true},
		"redis-sentinel://a/m?sentinel_password=q": {topology: sentinel, addrs: []string{"a:26379"}, master: "m", sentinelPassword: "q"},
	} {
		got, err := parseRedis([]string{url})
		if err != nil {
			t.Errorf("%s: %v", url, err)
		}
		if diff := cmp.Diff(want, got, cmp.AllowUnexported(redisTarget{})); diff != "" {
			t.Errorf("%s (-want +got):\n%s", url, diff)
		}
		if s := got.String(); got.password != "" && strings.Contains(s, got.password+"@") {
			t.Errorf("%s shows its password as %s", url, s)
		}
	}
	several, err := parseRedis([]string{"redis-cluster://a:1", "redis-cluster://b:2,c:3"})
	if err != nil || len(several.addrs) != 3 {
		t.Errorf("got %v, %v", several, err)
	}
}

// TestParseRedisRefuses: and never repeats what could be a password.
func TestParseRedisRefuses(t *testing.T) {
	t.Parallel()
	for _, urls := range [][]string{
		{""}, {"hunter2"}, {"http://:hunter2@a"}, {"redis://"}, {"redis://:hunter2@"}, {"redis://hunter2@a"},
		{"redis://:hunter2%zz@a"}, {"redis://a,b"}, {"redis://:hunter2@a/x"}, {"redis://a/-1"}, {"redis://a:0"}, {"redis://a:hunter2"},
		{"redis://a:70000"}, {"redis-sentinel://a"}, {"redis-sentinel://a/"}, {"redis-cluster://a/1"}, {"redis-cluster://a,,b"},
		{"redis://a?password=hunter2"}, {"redis://a", "redis://b"}, {"redis-cluster://a", "redis-sentinel://b/m"},
		{"redis-cluster://:hunter2@a", "redis-cluster://b"},
	} {
		got, err := parseRedis(urls)
		if err == nil {
			t.Errorf("%q: got %v, want an error", urls, got)
		} else if strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%q: the error repeats it: %v", urls, err)
		}
	}
}

// TestPrecedence: flag over variable over file over default.
func TestPrecedence(t *testing.T) {
	t.Parallel()
	file := config(t, "listen: 127.0.0.1:3\nlog_level: warn\nlog_format: json\nshutdown_grace: 3s\nredis: redis-cluster://file\n")
	for _, c := range []struct {
		name  string
		flags serveFlags
		want  settings
	}{
		{"default", serveFlags{}, settings{listen: "127.0.0.1:8080", grace: 10 * time.Second}},
		{"file", serveFlags{Config: file}, settings{listen: "127.0.0.1:3", level: 4, json: true, grace: 3 * time.Second, redis: &redisTarget{topology: cluster, addrs: []string{"file:6379"}}}},
		{"flag", serveFlags{Config: file, Listen: "localhost:1", Redis: []string{"redis://flag"}, LogLevel: "debug", LogFormat: "text", ShutdownGrace: "1s"},
			settings{listen: "localhost:1", level: -4, grace: time.Second, redis: &redisTarget{topology: standalone, addrs: []string{"flag:6379"}}}},
	} {
		got, err := c.flags.settings()
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
		}
		if diff := cmp.Diff(c.want, got, cmp.AllowUnexported(settings{}, redisTarget{})); diff != "" {
			t.Errorf("%s (-want +got):\n%s", c.name, diff)
		}
	}
	// The wrong value shows which source won.
	env := map[string]string{"RETRYPLANE_CONFIG": file, "RETRYPLANE_LISTEN": "from-env", "RETRYPLANE_LOG_LEVEL": "from-env"}
	got := fails(t, []string{"--log-level", "from-flag"}, env)
	wants(t, got, `RETRYPLANE_LISTEN: "from-env"`, `--log-level: "from-flag"`)
}

// TestAllMistakesAtOnce: whoever fixes a config file wants the whole list.
func TestAllMistakesAtOnce(t *testing.T) {
	t.Parallel()
	file := config(t, `
listen: 8080
log_level: loud
colour: red
tokens:
  - name: ""
    sha256: abc
    roles: [king]
    scope: x
`)
	got := fails(t, []string{"serve", "--config", file, "--redis", "redis://:hunter2@", "--log-format", "xml", "--shutdown-grace", "1h"}, nil)
	wants(t, got, "line 4: unknown key colour", "line 9: unknown key scope", "config: "+file+`: listen: "8080" must be host:port`,
		"--redis: URL 1: a host is missing", "config: "+file+`: log_level: "loud" must be`,
		`--log-format: "xml" must be`, `--shutdown-grace: "1h" must be`,
		"tokens[0].name", "tokens[0].sha256", "tokens[0].roles[0]")
	if strings.Contains(got, "hunter2") {
		t.Errorf("the password is shown:\n%s", got)
	}
}

// TestMistakesInTheFile: each is said once, in words of the file and not of Go, and nothing follows from it. Every file
// serves beyond loopback, for which it would need tokens.
func TestMistakesInTheFile(t *testing.T) {
	t.Parallel()
	const token = "tokens:\n  - name: a\n    sha256: abababababababababababababababababababababababababababababababab\n    "
	const there = ": there are listen, redis, log_level, log_format, shutdown_grace, tokens"
	for text, want := range map[string]string{
		"log-level: debug":             "line 1: unknown key log-level: is log_level meant?",
		"Listen: a":                    "line 1: unknown key Listen: is listen meant?",
		"lisen: a":                     "line 1: unknown key lisen: is listen meant?",
		"token:\n  - name: a":          "line 1: unknown key token: is tokens meant?",
		"colour: red":                  "line 1: unknown key colour" + there,
		"name: a":                      "line 1: unknown key name" + there,
		"x: a":                         "line 1: unknown key x" + there,
		token + "role: [report]":       "line 4: unknown key role: is roles meant?",
		token + "listen: a":            "line 4: unknown key listen: there are name, sha256, roles, dependencies, expires_at",
		token + "roles: report":        "line 4: this key takes a list, such as [a, b], not `report`",
		token + "expires_at: tomorrow": "line 4: expires_at must be a time such as 2030-01-01T00:00:00Z",
		token + "expires_at: [2030]":   "line 4: expires_at must be a time such as 2030-01-01T00:00:00Z",
		"tokens: none":                 "line 1: tokens must be a list, as controlplane token prints it",
		"tokens: [none]":               "line 1: a token must be keys and their values, as controlplane token prints them",
		"redis: {url: hunter2}":        "line 1: redis must be a URL or a list of URLs",
		"none":                         "line 1: the file must be keys and their values, such as listen: 127.0.0.1:8080",
		"log_level: [info]":            "line 1: this key does not take a list or a map",
		"log_level: a\nlog_level: b":   `line 2: mapping key "log_level" already defined at line 1`,
		"log_level: info\n---\nx: y":   "line 2: only one document is read: what is after the --- would not count",
	} {
		file := config(t, text+"\n")
		got := strings.ReplaceAll(fails(t, []string{"--listen", ":0", "--config", file}, nil), file, "FILE")
		if want := "controlplane: config: FILE: " + want + "\n"; got != want {
			t.Errorf("%s:\ngot  %swant %s", text, got, want)
		}
	}
}

// TestHashes: a token's hash must be one, and not that of a token that everybody knows.
func TestHashes(t *testing.T) {
	t.Parallel()
	sum := func(token string) string { return fmt.Sprintf("%x", sha256.Sum256([]byte(token))) }
	for hash, want := range map[string]string{
		"":                                "must be 64 hexadecimal digits",
		sum("a")[1:]:                      "must be 64 hexadecimal digits",
		"z" + sum("a")[1:]:                "must be 64 hexadecimal digits",
		"<printed by controlplane token>": "must be 64 hexadecimal digits",
		sum("test"):                       "must be the hash of a token that nobody can guess",
		sum(""):                           "must be the hash of a token that nobody can guess",
	} {
		file := config(t, fmt.Sprintf("tokens:\n  - {name: a, roles: [read], sha256: %q}\n", hash))
		got := fails(t, []string{"--config", file}, nil)
		wants(t, got, "config: "+file+": tokens[0].sha256: "+want)
		if strings.Count(got, "\n") != 1 {
			t.Errorf("more than one mistake:\n%s", got)
		}
	}
}

// TestFileOutOfReach: neither does anything follow from a file that cannot be read.
func TestFileOutOfReach(t *testing.T) {
	t.Parallel()
	for path, want := range map[string]string{
		filepath.Join(t.TempDir(), "missing"):       "no such file",
		t.TempDir():                                 "is a directory",
		config(t, strings.Repeat("#", maxConfig+1)): "must be at most 1048576 bytes",
	} {
		for _, got := range []string{
			strings.ReplaceAll(fails(t, []string{"--listen", ":0", "--config", path}, nil), "--config", "NAME"),
			strings.ReplaceAll(fails(t, []string{"--listen", ":0"}, map[string]string{"RETRYPLANE_CONFIG": path}), "RETRYPLANE_CONFIG", "NAME"),
		} {
			wants(t, got, "controlplane: NAME: ", want)
			if strings.Count(got, "\n") != 1 {
				t.Errorf("more than one mistake:\n%s", got)
			}
		}
	}
}

// TestEmptyKeys count as not given, like empty variables.
func TestEmptyKeys(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		"listen:\nredis:\nlog_level:\nlog_format:\nshutdown_grace:\ntokens:\n",
		"listen: ''\nredis: ''\nlog_level: ''\nlog_format: ''\nshutdown_grace: ''\ntokens: []\n",
		"redis: ['']\n",
	} {
		got, err := serveFlags{Config: config(t, text)}.settings()
		if err != nil {
			t.Errorf("%s: %v", text, err)
		}
		want := settings{listen: defaultListen, grace: defaultGrace}
		if diff := cmp.Diff(want, got, cmp.AllowUnexported(settings{})); diff != "" {
			t.Errorf("%s (-want +got):\n%s", text, diff)
		}
	}
}

// TestExpiryInQuotes: Helm's toYaml writes a time as a string.
func TestExpiryInQuotes(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"2030-01-01T00:00:00Z", `"2030-01-01T00:00:00Z"`, "2030-01-01T01:00:00+01:00", "2030-01-01"} {
		c, err := parseConfig([]byte("tokens: [{expires_at: " + text + "}]"))
		if want := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC); err != nil || !c.Tokens[0].ExpiresAt.Equal(want) {
			t.Errorf("%s: got %v, %v", text, c.Tokens, err)
		}
	}
}

func TestListenNeedsTokensBeyondLoopback(t *testing.T) {
	t.Parallel()
	for _, addr := range []string{":8080", "0.0.0.0:8080", "[::]:8080", "192.0.2.1:8080", "example.com:8080", "127.0.0.1.example.com:8080"} {
		wants(t, fails(t, []string{"--listen", addr}, nil), "--listen", "not a loopback address", "controlplane token")
		if _, err := parseListen(addr, true); err != nil {
			t.Errorf("%s with tokens: %v", addr, err)
		}
	}
	for _, addr := range []string{"127.0.0.1:0", "127.9.9.9:1", "[::1]:1", "localhost:1", "[::ffff:127.0.0.1]:1"} {
		if _, err := parseListen(addr, false); err != nil {
			t.Errorf("%s: %v", addr, err)
		}
	}
}

// TestTokenLetsIn: what "token" prints works in the file, and nothing else does.
func TestTokenLetsIn(t *testing.T) {
	t.Parallel()
	out := newLogged()
	if code := run(t.Context(), []string{"token", "--name", "ops: eve", "--roles", "read"}, out, out, func(string) string { return "" }); code != exitOK {
		t.Fatalf("exit code %d:\n%s", code, out)
	}
	token := out.find(t, `token:\s+(\S+)`)
	sum := sha256.Sum256([]byte(token))
	if got := out.find(t, `sha256: (\S+)`); got != hex.EncodeToString(sum[:]) {
		t.Errorf("got the hash %s", got)
	}
	_, yaml, _ := strings.Cut(out.String(), "tokens:\n")
	r := start(t, "--config", config(t, "tokens:\n"+yaml))
	r.ready(t)
	if code := r.call(t, http.MethodGet, wire.PathDependencies, nil, nil); code != http.StatusUnauthorized {
		t.Errorf("without a token: got %d, want 401", code)
	}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, r.url+wire.PathDependencies, nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+token)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		t.Errorf("with the token: got %d, want 200", resp.StatusCode)
	}
	if strings.Contains(r.log.String(), token) {
		t.Errorf("the token is in the log:\n%s", r.log)
	}
}
