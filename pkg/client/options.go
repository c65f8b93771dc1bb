package client

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/retryplane/retryplane/pkg/policy"
	"github.com/retryplane/retryplane/pkg/wire"
)

// Option configures a [Client]. [New] reports every option that is out of its bounds.
type Option func(*config)

// config is what the options set, with their defaults applied.
type config struct {
	token            string
	service, version string
	policy           policy.Policy
	http             *http.Client
	transport        *http.Transport // of http, if it is our own
	log              *slog.Logger
	events           func(Event)
	stream           bool
	interval         time.Duration
	cache            int
	serverless       bool
	now              func() time.Time
	errs             []error
}

func newConfig(opts []Option) (*config, error) {
	c := &config{
		policy: policy.Default(), log: slog.New(slog.DiscardHandler),
		interval: defaultInterval, cache: 1024, now: time.Now,
	}
	for _, o := range opts {
		if o != nil {
			o(c)
		}
	}
	if c.http == nil {
		c.transport = &http.Transport{
			Proxy:               http.ProxyFromEnvironment,
			DialContext:         (&net.Dialer{Timeout: time.Second}).DialContext,
			TLSHandshakeTimeout: time.Second,
			MaxIdleConnsPerHost: 4,
			IdleConnTimeout:     90 * time.Second,
			ForceAttemptHTTP2:   true,
		}
		c.http = &http.Client{Transport: c.transport}
	}
	return c, errors.Join(c.errs...)
}

// check notes an option that is out of its bounds. given is shown; nil = not, because it is nothing or a secret.
func (c *config) check(ok bool, option string, given any, limit string) {
	switch {
	case ok:
	case given == nil:
		c.errs = append(c.errs, fmt.Errorf("%s: must be %s", option, limit))
	default:
		c.errs = append(c.errs, fmt.Errorf("%s: %v: must be %s", option, given, limit))
	}
}

// WithToken sends a bearer token of the role "report" with every request to the control plane. Default none.
func WithToken(token string) Option {
	return func(c *config) {
		ok := true
		for _, r := range token {
			ok = ok && r > ' ' && r < 0x7f
		}
		c.check(ok, "WithToken", nil, "printable ASCII without blanks")
		c.token = token
	}
}

// WithService labels the instance for people: the name of the program and its version, up to 128 bytes each. Default
// none.
func WithService(name, version string) Option {
	return func(c *config) {
		c.check(len(name) <= wire.MaxLabel, "WithService: name", nil, fmt.Sprintf("at most %d bytes", wire.MaxLabel))
		c.check(len(version) <= wire.MaxLabel, "WithService: version", nil, fmt.Sprintf("at most %d bytes", wire.MaxLabel))
		c.service, c.version = name, version
	}
}

// WithPolicy sets the policy of every dependency until the control plane says otherwise. Default [policy.Default]. What a
// [CallOption] says of a single call wins over both.
func WithPolicy(p policy.Policy) Option {
	return func(c *config) {
		if err := p.Validate(); err != nil {
			c.errs = append(c.errs, fmt.Errorf("WithPolicy: %w", err))
		}
		c.policy = p
	}
}

// WithHTTPClient sets what talks to the control plane. Its own Timeout applies beside the client's 2 s per request.
// Default: a client of its own, with connections kept alive and a proxy if the environment names one. The caller
// closes the idle connections of a client of theirs.
func WithHTTPClient(h *http.Client) Option {
	return func(c *config) {
		c.check(h != nil, "WithHTTPClient", nil, "not nil")
		c.http = h
	}
}

// WithLogger sets where the client logs what a human may act on: the control plane out of reach and back, refusals.
// Default nowhere.
func WithLogger(log *slog.Logger) Option {
	return func(c *config) {
		if log != nil {
			c.log = log
		}
	}
}

// WithEvents has handle called for every [Event], in order, one at a time, from a goroutine of the client's. It may call
// the client, except for Close. A slow handler delays nobody: beyond 1024 waiting events further ones are dropped and
// counted in [Stats]. Default none.
func WithEvents(handle func(Event)) Option {
	return func(c *config) { c.events = handle }
}

// WithStream keeps a connection open by which the control plane tells changes of the dependencies in use at once,
// instead of with the next sync. For long-lived processes. Default off.
func WithStream(on bool) Option {
	return func(c *config) { c.stream = on }
}

// WithSyncInterval sets the time between two reports while there is traffic, +-20 %; 100 ms to 1 min, default 1 s. The
// control plane may ask for more, up to 5 s. What is urgent does not wait for it.
func WithSyncInterval(d time.Duration) Option {
	return func(c *config) {
		c.check(d >= 100*time.Millisecond && d <= time.Minute, "WithSyncInterval", d, "100ms to 1m")
		c.interval = d
	}
}

// WithCacheSize sets how many dependencies the client remembers that nobody holds a handle of; 1 to 1,000,000, default
// 1024. Those that are open or overridden it remembers beyond that.
func WithCacheSize(n int) Option {
	return func(c *config) {
		c.check(n >= 1 && n <= 1_000_000, "WithCacheSize", n, "1 to 1000000")
		c.cache = n
	}
}

// WithoutBackground is for processes that are frozen between invocations. Nothing runs regularly: the calls look at the
// clock themselves, and [Client.Flush] reports. What cannot wait for it (a retry, a probe, a run of failures, a view
// that is old) is still exchanged at once, by a goroutine that ends with it. Streams are off.
func WithoutBackground() Option {
	return func(c *config) { c.serverless = true }
}

// WithClock sets where the client reads the time that it decides by: a simulation's clock, or in a test one that jumps.
// Waiting itself goes by the real clock. Default [time.Now].
func WithClock(now func() time.Time) Option {
	return func(c *config) {
		c.check(now != nil, "WithClock", nil, "not nil")
		c.now = now
	}
}
