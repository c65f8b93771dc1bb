package client

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// Client guards the calls of one process. Its methods are safe for concurrent use.
type Client struct {
	config   *config
	base     string // of the API, without a slash at the end
	instance string // random per process start
	start    time.Time

	registry registry
	syncer   syncer
	link     link
	events   events
	stream   stream
	alarms   sync.Pool // of *alarm, at rest

	seq        atomic.Int64
	syncs      atomic.Int64 // answered
	syncErrors atomic.Int64
	malformed  atomic.Int64 // requests served whose Retry-Context was ignored
	refused    atomic.Bool  // a refusal was logged

	life   context.Context // of everything that runs in the background
	end    context.CancelFunc
	closed chan struct{} // by the first Close, when it is done
	close  sync.Once
	err    error // of the first Close
}

// New returns a Client of the control plane at baseURL, such as "https://retryplane.example.com". It does no I/O: the
// control plane need not be up. The error names every option that is out of its bounds.
func New(baseURL string, opts ...Option) (*Client, error) {
	conf, err := newConfig(opts)
	base, urlErr := parseBase(baseURL)
	if err = errors.Join(urlErr, err); err != nil {
		return nil, fmt.Errorf("retryplane client: %w", err)
	}
	c := &Client{
		config: conf, base: base, instance: strings.ToLower(rand.Text()), start: conf.now(), closed: make(chan struct{}),
	}
	c.life, c.end = context.WithCancel(context.Background())
	c.link.state.Store(&linkState{})
	c.events = events{handle: conf.events, log: conf.log}
	c.syncer.init(c)
	c.registry.init(conf.cache)
	c.stream.init(c)
	return c, nil
}

// parseBase checks the address of the control plane. The error shows what was given, save what may hold a secret, and
// what to write instead.
func parseBase(s string) (string, error) {
	const form = `must be http(s)://host[:port][/path], such as "https://retryplane.example.com" or "http://127.0.0.1:8080"`
	u, err := url.Parse(s)
	switch {
	case s == "":
		return "", errors.New("base url: is empty: " + form)
	case schemeForgotten(s):
		return "", fmt.Errorf("base url %q: has no scheme: write %q", s, "http://"+s)
	case err != nil, u.Scheme != "http" && u.Scheme != "https", u.Host == "":
		if strings.Contains(s, "@") {
			return "", errors.New("base url: " + form)
		}
		return "", fmt.Errorf("base url %q: %s", s, form)
	case u.RawQuery != "" || u.Fragment != "" || u.User != nil:
		return "", fmt.Errorf("base url %q: must have no user, query or fragment", u.Scheme+"://"+u.Host+u.EscapedPath())
	}
	return strings.TrimRight(s, "/"), nil
}

// schemeForgotten reports whether s is fine but for the http:// in front. "plane:8080" is an URL of the scheme "plane" to
// the letter, which nobody means.
func schemeForgotten(s string) bool {
	if strings.Contains(s, "://") || strings.HasPrefix(s, "http:") || strings.HasPrefix(s, "https:") {
		return false
	}
	u, err := url.Parse("http://" + s)
	return err == nil && u.Host != "" && u.User == nil && u.RawQuery == "" && u.Fragment == ""
}

// Dependency returns the handle of a dependency, to be kept by who calls it often. While somebody holds it, the same
// name gives the same handle. For a name that is none (see [policy.ValidName]) the calls of the handle return an
// [*InvalidNameError].
func (c *Client) Dependency(name string) *Dependency { return c.registry.get(c, name) }

// Flush reports what was counted and waits for the answer: the end of a serverless invocation. ctx bounds it. What could
// not be sent waits for the next time. Errors: [ErrUnreachable], or again [ErrTokenRefused], without trying, while a
// control plane that failed is left alone; what the sync failed of; ctx's; [ErrClosed].
func (c *Client) Flush(ctx context.Context) error {
	if c.link.now().closed {
		return ErrClosed
	}
	return c.syncer.flush(ctx)
}

// Close flushes, as far as ctx allows, and ends everything that runs in the background. Handles go on working on their
// own. Only the first Close does that; others wait for it, and all return its error: what Flush failed of. It waits for
// the handler of events, so a handler must not call it.
func (c *Client) Close(ctx context.Context) error {
	c.close.Do(func() {
		defer close(c.closed)
		c.err = c.syncer.flush(ctx)
		before, after := c.link.shut(c.now())
		c.syncer.stop()
		c.end()
		c.syncer.ends.Wait()
		c.registry.each(func(d *Dependency) { d.relink() })
		c.relink(before, after, nil)
		c.stream.ends.Wait()
		if c.config.transport != nil {
			c.config.transport.CloseIdleConnections()
		}
		c.events.wait(ctx.Done())
	})
	select {
	case <-c.closed:
		return c.err
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (c *Client) now() time.Time { return c.config.now() }

// clocked reports whether nobody minds the clock in the background, so that calls do.
func (c *Client) clocked() bool { return c.config.serverless || c.link.now().closed }
