// Command agent guards calls for programs that are not Go: it asks Retryplane for them, over loopback.
//
// It is an ordinary user of pkg/client. A program acquires a permit before a call and reports the call's outcome.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/alecthomas/kong"

	"github.com/retryplane/retryplane/pkg/client"
	"github.com/retryplane/retryplane/pkg/wire"
)

// version is set by the linker: -X main.version=v1.2.3.
var version = "dev"

// flags are the command line. Every flag has a variable; an empty one counts as not given.
type flags struct {
	Listen       string           `env:"RETRYPLANE_AGENT_LISTEN" default:"127.0.0.1:4680" placeholder:"HOST:PORT" help:"Loopback address to serve on (${default})."`
	ControlPlane string           `env:"RETRYPLANE_CONTROL_PLANE" default:"http://127.0.0.1:8080" placeholder:"URL" help:"The control plane, which need not be up (${default})."`
	TokenFile    string           `env:"RETRYPLANE_TOKEN_FILE" placeholder:"FILE" help:"File that holds the token for the control plane (none)."`
	Service      string           `env:"RETRYPLANE_SERVICE" default:"agent" placeholder:"NAME" help:"Name under which the control plane shows this instance (${default})."`
	PermitTTL    time.Duration    `env:"RETRYPLANE_PERMIT_TTL" default:"60s" placeholder:"DURATION" help:"How long a permit waits for its outcome, 1s to 1h; then it ends as ignored (${default})."`
	Version      kong.VersionFlag `help:"Print the version."`
}

// Bounds of the flags.
const (
	minTTL   = time.Second
	maxTTL   = time.Hour
	maxToken = 4096 // bytes of the token file
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends at once
	os.Exit(run(ctx, os.Args[1:], os.Stdout, os.Stderr, os.Getenv))
}

// run is the whole program. It ends gracefully after ctx and returns the exit code: 1 = failed, 2 = wrong flags.
func run(ctx context.Context, args []string, stdout, stderr io.Writer, getenv func(string) string) int {
	var f flags
	exited := false
	parser, err := kong.New(&f,
		kong.Name("agent"),
		kong.Description("Guards calls of programs that are not Go: POST /v1/acquire, then POST /v1/permits/{id} with the outcome."),
		kong.Vars{"version": "agent " + version},
		kong.Writers(stdout, stderr),
		kong.Exit(func(int) { exited = true }), // only --help and --version exit
		kong.ConfigureHelp(kong.HelpOptions{FlagsLast: true}),
		kong.Resolvers(kong.ResolverFunc(func(_ *kong.Context, _ *kong.Path, f *kong.Flag) (any, error) {
			for _, name := range f.Envs {
				if v := getenv(name); v != "" {
					return v, nil
				}
			}
			return nil, nil
		})),
	)
	if err != nil {
		panic(err) // only for a wrong grammar
	}
	if len(args) == 1 && args[0] == "version" { // as controlplane has it
		args = []string{"--version"}
	}
	_, err = parser.Parse(args)
	if exited {
		return 0
	}
	var token string
	if err == nil {
		token, err = f.check()
	}
	if err != nil {
		for line := range strings.Lines(err.Error()) {
			fmt.Fprintf(stderr, "agent: %s\n", strings.TrimSuffix(line, "\n"))
		}
		return 2
	}
	log := slog.New(slog.NewTextHandler(stderr, nil))
	if err := serve(ctx, f, token, log); err != nil {
		log.Error("ended", "error", err)
		return 1
	}
	return 0
}

// check reports all mistakes at once and reads the token.
func (f flags) check() (token string, err error) {
	var wrong []error
	host, _, err := net.SplitHostPort(f.Listen)
	ip, notIP := netip.ParseAddr(host)
	if err != nil || !strings.EqualFold(host, "localhost") && (notIP != nil || !ip.Unmap().IsLoopback()) {
		wrong = append(wrong, fmt.Errorf("--listen: %q must be a loopback host:port, such as 127.0.0.1:4680: the agent asks nobody for a token", f.Listen))
	}
	if u, err := url.Parse(f.ControlPlane); err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		wrong = append(wrong, errors.New("--control-plane: must be an http or https URL")) // not repeated: it may hold a password
	}
	if len(f.Service) > wire.MaxLabel {
		wrong = append(wrong, fmt.Errorf("--service: must be at most %d bytes", wire.MaxLabel))
	}
	if f.PermitTTL < minTTL || f.PermitTTL > maxTTL {
		wrong = append(wrong, fmt.Errorf("--permit-ttl: %s must be %s to %s", f.PermitTTL, minTTL, maxTTL))
	}
	if f.TokenFile != "" {
		if token, err = readToken(f.TokenFile); err != nil {
			wrong = append(wrong, fmt.Errorf("--token-file: %w", err))
		}
	}
	return token, errors.Join(wrong...)
}

// readToken never repeats what is in the file.
func readToken(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer func() { _ = f.Close() }() // only read
	text, err := io.ReadAll(io.LimitReader(f, maxToken+1))
	if err != nil {
		return "", err
	}
	token := strings.TrimSpace(string(text))
	if len(text) > maxToken || token == "" || strings.ContainsAny(token, " \t\r\n") {
		return "", fmt.Errorf("%s must hold one token of at most %d bytes", path, maxToken)
	}
	return token, nil
}

// Limits of connections and of the end.
const (
	headerTimeout  = 5 * time.Second
	requestTimeout = 10 * time.Second
	idleTimeout    = 2 * time.Minute
	maxHeader      = 16 << 10
	grace          = 5 * time.Second
)

// serve answers until ctx ends; then open requests end, permits end as ignored, and what was counted is flushed.
func serve(ctx context.Context, f flags, token string, log *slog.Logger) error {
	options := []client.Option{client.WithService(f.Service, version), client.WithLogger(log)}
	if token != "" {
		options = append(options, client.WithToken(token))
	}
	plane, err := client.New(f.ControlPlane, options...)
	if err != nil {
		return fmt.Errorf("set up the client: %w", err)
	}
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", f.Listen)
	if err != nil {
		if errors.Is(err, syscall.EADDRINUSE) {
			err = fmt.Errorf("%w: another program has the port: stop it, or choose another one with --listen", err)
		}
		return errors.Join(fmt.Errorf("serve on %s: %w", f.Listen, err), plane.Close(context.WithoutCancel(ctx)))
	}
	book := newPermits(f.PermitTTL)
	hs := &http.Server{
		Handler:           handler(plane, book),
		ReadHeaderTimeout: headerTimeout, ReadTimeout: requestTimeout, IdleTimeout: idleTimeout, MaxHeaderBytes: maxHeader,
		ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelDebug),
	}
	log.Info("listening", "url", "http://"+l.Addr().String(), "version", version)
	failed := make(chan error, 1)
	go func() { failed <- hs.Serve(l) }() // ends with Shutdown or Close, and is awaited below
	swept := make(chan struct{})
	stop := make(chan struct{})
	go func() { defer close(swept); book.sweep(stop) }()

	select {
	case err = <-failed:
		err = fmt.Errorf("serve on %s: %w", f.Listen, err)
	case <-ctx.Done():
	}
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), grace)
	defer cancel()
	if err == nil {
		if cut := hs.Shutdown(last); cut != nil {
			log.Warn("requests were cut off after the grace time", "error", cut)
			_ = hs.Close() // the reason is logged
		}
		<-failed //nolint:errcheck // http.ErrServerClosed: we shut it down
	}
	close(stop)
	<-swept
	book.clear()
	if flushed := plane.Close(last); flushed != nil {
		log.Warn("the last counts did not reach the control plane", "error", flushed)
	}
	return err
}
