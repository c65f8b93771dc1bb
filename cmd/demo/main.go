// Command demo shows in two minutes what Retryplane is for: a fleet calls a dependency that stalls for two seconds,
// first with plain retries, then with Retryplane. It ends with both minutes side by side.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/alecthomas/kong"
	"github.com/mattn/go-isatty"
)

// flags are the demo's settings.
type flags struct {
	ControlPlane string        `help:"The control plane's binary." default:"bin/controlplane" placeholder:"FILE"`
	Listen       string        `help:"Where the control plane listens." default:"127.0.0.1:8080" placeholder:"HOST:PORT"`
	Instances    int           `help:"Instances of the fleet, at least 2." default:"200"`
	Rate         float64       `help:"Requests a second of the whole fleet; the dependency can do 1000." default:"700"`
	Phase        time.Duration `help:"Length of each of the two phases, at least 20s." default:"1m"`
	Keep         string        `help:"Keep the guarded fleet running after the figures: yes, no, or auto (if there is a terminal)." enum:"yes,no,auto" default:"auto"`
}

// Validate names what is out of bounds.
func (f *flags) Validate() error {
	var wrong []error
	if f.Instances < 2 || f.Instances > 10_000 {
		wrong = append(wrong, errors.New("--instances: must be 2 to 10000"))
	}
	if f.Rate < 1 || f.Rate > 5000 {
		wrong = append(wrong, errors.New("--rate: must be 1 to 5000"))
	}
	if f.Phase < 20*time.Second || f.Phase > time.Hour {
		wrong = append(wrong, errors.New("--phase: must be 20s to 1h"))
	}
	return errors.Join(wrong...)
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	os.Exit(run(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}

// run returns the exit code: 0 if the storm showed without Retryplane and not with it, 1 if not or if something
// failed, 2 for wrong flags, 130 when interrupted before the end.
func run(ctx context.Context, args []string, stdin *os.File, stdout, stderr io.Writer) int {
	var f flags
	code := -1
	parser, err := kong.New(&f, kong.Name("demo"), kong.Description("Shows a retry storm, and the same without the storm."),
		kong.Writers(stdout, stderr), kong.Exit(func(c int) { code = c }))
	if err == nil {
		_, err = parser.Parse(args)
	}
	switch {
	case code >= 0:
		return code
	case err != nil:
		fmt.Fprintln(stderr, "demo:", err)
		return 2
	}
	f.Keep = keeping(f.Keep, stdin)
	ok, err := show(ctx, f, stdin, stdout)
	switch {
	case ctx.Err() != nil && !ok:
		return 130
	case err != nil:
		fmt.Fprintln(stderr, "demo:", err)
		return 1
	case !ok:
		return 1
	}
	return 0
}

// keeping resolves auto: only who sits at a terminal can press keys and ctrl-C.
func keeping(keep string, stdin *os.File) string {
	if keep != "auto" {
		return keep
	}
	if isatty.IsTerminal(stdin.Fd()) { // /dev/null is a character device too
		return "yes"
	}
	return "no"
}
