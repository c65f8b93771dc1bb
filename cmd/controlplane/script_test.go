package main

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
)

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){
		"controlplane": func() {
			os.Exit(run(context.Background(), os.Args[1:], os.Stdout, os.Stderr, os.Getenv))
		},
	})
}

// Tokens of the server that wants some.
const (
	operatorToken = "rp_operators_secret"
	readerToken   = "rp_readers_secret"
)

// guarded is the config of a server that wants tokens.
func guarded(t *testing.T) string {
	t.Helper()
	text := "tokens:\n"
	for _, k := range []struct{ name, token, role string }{{"alice", operatorToken, "operate"}, {"rita", readerToken, "read"}} {
		text += fmt.Sprintf("  - {name: %s, roles: [%s], sha256: %x}\n", k.name, k.role, sha256.Sum256([]byte(k.token)))
	}
	return config(t, text)
}

// TestScripts runs the scripts beside two servers that they share, so each uses names of dependencies of its own. The
// variable RETRYPLANE_SERVER is the open one, GUARDED the one that wants tokens.
func TestScripts(t *testing.T) {
	t.Parallel()
	open, closed := start(t), start(t, "--config", guarded(t))
	open.ready(t)
	closed.ready(t)
	testscript.Run(t, testscript.Params{
		Dir: "testdata",
		Setup: func(e *testscript.Env) error {
			e.Setenv("RETRYPLANE_SERVER", open.url)
			e.Setenv("GUARDED", closed.url)
			e.Setenv("TAKEN", strings.TrimPrefix(open.url, "http://"))
			e.Setenv("OPERATOR", operatorToken)
			e.Setenv("READER", readerToken)
			e.Setenv("TZ", "UTC")
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){"exits": exits},
	})
}

// exits runs a command that must end with a code: exits 5 controlplane auto payments.
func exits(ts *testscript.TestScript, _ bool, args []string) {
	want, err := strconv.Atoi(args[0])
	if err != nil {
		ts.Fatalf("exits CODE COMMAND...: %v", err)
	}
	got := 0
	if err := ts.Exec(args[1], args[2:]...); err != nil {
		failed, ok := errors.AsType[*exec.ExitError](err)
		if !ok {
			ts.Fatalf("%v", err)
		}
		got = failed.ExitCode()
	}
	if got != want {
		ts.Fatalf("got the exit code %d, want %d", got, want)
	}
}
