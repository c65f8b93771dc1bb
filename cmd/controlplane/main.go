// Command controlplane is the Retryplane server and its operator command line.
package main

import (
	"context"
	"fmt"
	"io"
	"log"
	"os"
	"os/signal"
	"runtime"
	"syscall"

	"github.com/alecthomas/kong"
)

// version is set by the linker: -X main.version=v1.2.3.
var version = "dev"

// Exit codes.
const (
	exitOK          = 0
	exitError       = 1 // something failed that was asked for rightly, or the server refused it
	exitUsage       = 2 // the command line, the environment or the config file is wrong
	exitUnreachable = 3 // no answer from the server
	exitNotFound    = 4 // there is no such dependency
	exitConflict    = 5 // somebody else was faster
)

func main() {
	// The first signal ends gracefully; AfterFunc gives the second one back its meaning: end at once.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop)
	os.Exit(run(ctx, os.Args[1:], os.Stdout, os.Stderr, os.Getenv))
}

// commands is the command line.
type commands struct {
	Remote remoteFlags `embed:"" group:"remote"`

	Serve   serveFlags   `cmd:"" default:"withargs" help:"Run the server (default)."`
	Token   tokenFlags   `cmd:"" help:"Print a new token and the lines for the config file that let it in."`
	Version versionFlags `cmd:"" help:"Print the version."`

	List        listFlags        `cmd:"" help:"List the dependencies, the most severe first."`
	Get         getFlags         `cmd:"" help:"Show a dependency."`
	Watch       watchFlags       `cmd:"" help:"Follow the states of dependencies until interrupted."`
	Transitions transitionsFlags `cmd:"" help:"Show the log of transitions, newest first."`
	Open        overrideFlags    `cmd:"" help:"Force a breaker open: no call passes."`
	Close       overrideFlags    `cmd:"" help:"Force a breaker closed: every call passes."`
	NoRetries   overrideFlags    `cmd:"" help:"Let calls pass as calculated, but no retries."`
	Auto        autoFlags        `cmd:"" help:"End an override: go back to the calculated state."`
	Reset       resetFlags       `cmd:"" help:"Close a breaker and forget its episode. An override stays."`
	Policy      policyFlags      `cmd:"" help:"Show, set or delete a policy."`
}

const description = `Retryplane's control plane: one breaker and one retry budget per dependency for a whole fleet.

Exit codes: 0 done, 1 failed or refused by the server, 2 wrong command line or settings, 3 server unreachable,
4 no such dependency, 5 conflict: somebody else was faster.`

// versionFlags are none.
type versionFlags struct{}

// run is the whole program: it ends when its command has ended or, gracefully, after ctx. It returns the exit code and
// may run many times in one process.
func run(ctx context.Context, args []string, stdout, stderr io.Writer, getenv func(string) string) int {
	var c commands
	helped := false
	parser, err := kong.New(&c,
		kong.Name("controlplane"),
		kong.Description(description),
		kong.ExplicitGroups([]kong.Group{{Key: "remote", Title: "For the commands that call a server:"}}),
		kong.Writers(stdout, stderr),
		kong.Exit(func(int) { helped = true }), // only --help exits; a program that can be run twice must not
		kong.Resolvers(kong.ResolverFunc(func(_ *kong.Context, _ *kong.Path, f *kong.Flag) (any, error) {
			return fromEnvironment(f, getenv), nil
		})),
		kong.ConfigureHelp(kong.HelpOptions{Compact: true}),
	)
	if err != nil {
		panic(err) // only for a wrong grammar
	}
	if len(args) == 1 && args[0] == "--version" { // what most programs have
		args = []string{"version"}
	}
	cmd, err := parser.Parse(args)
	if helped {
		return exitOK
	}
	if err != nil {
		return refuse(stderr, err)
	}
	switch cmd.Command() {
	case "serve":
		c.Serve.variables = fromVariables(cmd)
		return runServe(ctx, c.Serve, stderr)
	case "token":
		return printToken(stdout, stderr, c.Token)
	case "version":
		if _, err := fmt.Fprintf(stdout, "controlplane %s %s %s/%s\n", version, runtime.Version(), runtime.GOOS, runtime.GOARCH); err != nil {
			return exitError
		}
		return exitOK
	}
	plane, err := c.Remote.remote(getenv)
	if err != nil {
		return report(stderr, err)
	}
	defer plane.close()
	cmd.BindTo(ctx, (*context.Context)(nil))
	o := &operator{plane: plane, json: c.Remote.Output == "json", stdin: os.Stdin, stdout: stdout, stderr: stderr}
	if err := cmd.Run(o); err != nil {
		return report(stderr, err)
	}
	return exitOK
}

// runServe is the command serve.
func runServe(ctx context.Context, f serveFlags, stderr io.Writer) int {
	s, err := f.settings()
	if err != nil {
		return refuse(stderr, err)
	}
	logger := s.logger(stderr)
	if err := serve(ctx, s, logger); err != nil {
		logger.Error("ended", "error", err)
		return exitError
	}
	return exitOK
}

// fromEnvironment returns the value of a flag's variable, or nil. An empty variable counts as not given: kong, which
// looks at the environment too, has taken it for the value and must be told the default.
func fromEnvironment(f *kong.Flag, getenv func(string) string) any {
	for _, name := range f.Envs {
		if v := getenv(name); v != "" {
			return v
		}
	}
	if len(f.Envs) > 0 && f.HasDefault {
		return f.Default
	}
	return nil
}

// fromVariables returns the variables that flags got their values from, by the flags' names.
func fromVariables(cmd *kong.Context) map[string]string {
	variables := map[string]string{}
	for _, p := range cmd.Path {
		if p.Flag != nil && p.Resolved {
			variables[p.Flag.Name] = p.Flag.Envs[0]
		}
	}
	return variables
}

// refuse reports what the user got wrong, each mistake on a line of its own.
func refuse(stderr io.Writer, err error) int {
	l := log.New(stderr, "controlplane: ", 0)
	for _, e := range unjoin(err) {
		l.Print(e)
	}
	return exitUsage
}

// unjoin returns the errors that were joined into err.
func unjoin(err error) []error {
	joined, ok := err.(interface{ Unwrap() []error })
	if !ok {
		return []error{err}
	}
	var all []error
	for _, e := range joined.Unwrap() {
		all = append(all, unjoin(e)...)
	}
	return all
}
