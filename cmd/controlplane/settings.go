package main

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/retryplane/retryplane/internal/api"
)

// serveFlags are the settings of the server as given by flag or variable; "" means not given. They are text, so that
// every mistake can be reported at once and not only the first that does not parse.
type serveFlags struct {
	Config        string   `env:"RETRYPLANE_CONFIG" placeholder:"FILE" help:"YAML file with any of these settings and the tokens."`
	Listen        string   `env:"RETRYPLANE_LISTEN" placeholder:"HOST:PORT" help:"Address to serve on (127.0.0.1:8080). Anything but loopback needs tokens in the config file."`
	Redis         []string `env:"RETRYPLANE_REDIS" sep:"none" placeholder:"URL" help:"redis://host:6379/0, rediss://..., redis-sentinel://host,host/master[/db] or redis-cluster://host,host. May be repeated for more sentinels or nodes. Without it the store is in memory."`
	LogLevel      string   `env:"RETRYPLANE_LOG_LEVEL" placeholder:"LEVEL" help:"debug, info, warn or error (info)."`
	LogFormat     string   `env:"RETRYPLANE_LOG_FORMAT" placeholder:"FORMAT" help:"text or json (text)."`
	ShutdownGrace string   `env:"RETRYPLANE_SHUTDOWN_GRACE" placeholder:"DURATION" help:"How long open requests may take after SIGTERM (10s)."`

	variables map[string]string // by flag: those that a value came from; the others came from the command line
}

// Defaults and bounds.
const (
	defaultListen = "127.0.0.1:8080"
	defaultGrace  = 10 * time.Second
	maxGrace      = 10 * time.Minute
)

// settings are what the server runs with: complete and valid.
type settings struct {
	listen string
	redis  *redisTarget // nil = embedded
	level  slog.Level
	json   bool
	grace  time.Duration
	auth   *api.Auth // nil = off
}

// settings puts flag over variable over file over default and checks the result. The error joins one error per
// mistake, each beginning with where the setting was given.
func (f serveFlags) settings() (settings, error) {
	var wrong []error
	file := &configFile{}
	inFile := func(err error) {
		if err == nil {
			return
		}
		for _, e := range unjoin(err) {
			wrong = append(wrong, fmt.Errorf("config: %s: %w", f.Config, e))
		}
	}
	// check notes a mistake in a setting, which was given by flag or variable, or else by the file.
	check := func(flag string, given bool, err error) {
		switch {
		case err == nil:
		case given:
			wrong = append(wrong, fmt.Errorf("%s: %w", first(f.variables[flag], "--"+flag), err))
		default:
			inFile(fmt.Errorf("%s: %w", strings.ReplaceAll(flag, "-", "_"), err))
		}
	}

	if f.Config != "" {
		text, err := readConfig(f.Config)
		check("config", true, err)
		if file.wrong = err != nil; !file.wrong {
			file, err = parseConfig(text)
			inFile(err)
		}
	}

	var s settings
	var err error
	s.auth, err = file.auth()
	inFile(err)
	s.listen, err = parseListen(first(f.Listen, file.Listen, defaultListen), len(file.Tokens) > 0 || file.wrong)
	check("listen", f.Listen != "", err)
	given := nonempty(f.Redis)
	urls := given
	if len(urls) == 0 {
		urls = nonempty(file.Redis)
	}
	if len(urls) > 0 {
		target, err := parseRedis(urls)
		check("redis", len(given) > 0, err)
		s.redis = &target
	}
	s.level, err = parseLevel(first(f.LogLevel, file.LogLevel, "info"))
	check("log-level", f.LogLevel != "", err)
	s.json, err = parseFormat(first(f.LogFormat, file.LogFormat, "text"))
	check("log-format", f.LogFormat != "", err)
	s.grace, err = parseGrace(first(f.ShutdownGrace, file.ShutdownGrace, defaultGrace.String()))
	check("shutdown-grace", f.ShutdownGrace != "", err)
	return s, errors.Join(wrong...)
}

// nonempty returns the values that are given: an empty variable, and an empty key of the file, is one empty value.
func nonempty(values []string) []string {
	return slices.DeleteFunc(slices.Clone(values), func(v string) bool { return v == "" })
}

// first returns the first that is given.
func first(values ...string) string {
	for _, v := range values {
		if v != "" {
			return v
		}
	}
	return ""
}

// parseListen checks an address. Without tokens only a loopback address will do: whoever reaches the port may open
// every breaker of the fleet.
func parseListen(s string, tokens bool) (string, error) {
	host, port, err := net.SplitHostPort(s)
	if err != nil {
		return "", fmt.Errorf("%q must be host:port", s)
	}
	if n, err := strconv.Atoi(port); err != nil || n < 0 || n > 65535 {
		return "", fmt.Errorf("%q must have a port of 0 to 65535", s)
	}
	if !tokens && !loopback(host) {
		return "", fmt.Errorf("%q is not a loopback address, which needs tokens: run \"controlplane token\" and put what it prints into the file of --config", s)
	}
	return s, nil
}

// loopback reports whether only this machine can reach host. Names other than localhost could resolve to anything.
func loopback(host string) bool {
	ip, err := netip.ParseAddr(host)
	return err == nil && ip.Unmap().IsLoopback() || strings.EqualFold(host, "localhost")
}

func parseLevel(s string) (slog.Level, error) {
	switch strings.ToLower(s) {
	case "debug":
		return slog.LevelDebug, nil
	case "info":
		return slog.LevelInfo, nil
	case "warn":
		return slog.LevelWarn, nil
	case "error":
		return slog.LevelError, nil
	}
	return 0, fmt.Errorf("%q must be debug, info, warn or error", s)
}

func parseFormat(s string) (asJSON bool, err error) {
	switch s {
	case "text":
		return false, nil
	case "json":
		return true, nil
	}
	return false, fmt.Errorf("%q must be text or json", s)
}

func parseGrace(s string) (time.Duration, error) {
	d, err := time.ParseDuration(s)
	if err != nil || d < 0 || d > maxGrace {
		return 0, fmt.Errorf("%q must be a duration of 0s to %s, such as 10s", s, maxGrace)
	}
	return d, nil
}

// logger writes as the settings say.
func (s settings) logger(w io.Writer) *slog.Logger {
	o := &slog.HandlerOptions{Level: s.level}
	if s.json {
		return slog.New(slog.NewJSONHandler(w, o))
	}
	return slog.New(slog.NewTextHandler(w, o))
}
