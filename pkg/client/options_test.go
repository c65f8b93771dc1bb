package client

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/retryplane/retryplane/pkg/policy"
)

// TestOptions: what is out of bounds is an error that names the field; all of them at once.
func TestOptions(t *testing.T) {
	t.Parallel()
	bad := policy.Default()
	bad.Retry.Attempts, bad.Budget.Ratio = 99, -1
	_, err := New("ftp://x",
		WithToken("a\nb"), WithService(strings.Repeat("x", 200), ""), WithPolicy(bad), WithHTTPClient(nil),
		WithSyncInterval(time.Millisecond), WithCacheSize(0))
	if err == nil {
		t.Fatal("accepted")
	}
	for _, field := range []string{"base url", "WithToken", "WithService", "retry.attempts", "budget.ratio_ppm", "WithHTTPClient", "WithSyncInterval", "WithCacheSize"} {
		if !strings.Contains(err.Error(), field) {
			t.Errorf("%q is not named in %q", field, err)
		}
	}
	for _, url := range []string{"", "plane:8080", "http://", "http://u:p@plane", "http://plane?x=1", "::"} {
		if _, err := New(url); err == nil {
			t.Errorf("%q accepted", url)
		}
	}
	c, err := New("https://plane/prefix/", nil, WithLogger(nil), WithEvents(nil))
	if err != nil {
		t.Fatal(err)
	}
	if c.base != "https://plane/prefix" {
		t.Errorf("base %q", c.base)
	}
	if err := c.Close(t.Context()); err != nil {
		t.Error(err)
	}
}

// TestNewSaysWhatIsWrong: "first path segment in URL cannot contain colon" helps nobody who forgot a scheme.
func TestNewSaysWhatIsWrong(t *testing.T) {
	t.Parallel()
	const example = `, such as "https://retryplane.example.com" or "http://127.0.0.1:8080"`
	for base, want := range map[string]string{
		"127.0.0.1:8080":      `base url "127.0.0.1:8080": has no scheme: write "http://127.0.0.1:8080"`,
		"plane:8080":          `base url "plane:8080": has no scheme: write "http://plane:8080"`,
		"plane":               `base url "plane": has no scheme: write "http://plane"`,
		"[::1]:8080/prefix":   `base url "[::1]:8080/prefix": has no scheme: write "http://[::1]:8080/prefix"`,
		"":                    `base url: is empty: must be http(s)://host[:port][/path]` + example,
		"ftp://plane":         `base url "ftp://plane": must be http(s)://host[:port][/path]` + example,
		"http://":             `base url "http://": must be http(s)://host[:port][/path]` + example,
		"http:plane":          `base url "http:plane": must be http(s)://host[:port][/path]` + example,
		"http://plane:80 80":  `base url "http://plane:80 80": must be http(s)://host[:port][/path]` + example,
		"http://plane/?x=1":   `base url "http://plane/": must have no user, query or fragment`,
		"http://plane#x":      `base url "http://plane": must have no user, query or fragment`,
		"http://u:p@plane":    `base url "http://plane": must have no user, query or fragment`,
		"u:secret@plane:8080": `base url: must be http(s)://host[:port][/path]` + example,
		"http://u:se%cret@x":  `base url: must be http(s)://host[:port][/path]` + example,
	} {
		_, err := New(base)
		if err == nil || err.Error() != "retryplane client: "+want {
			t.Errorf("%q:\ngot  %v\nwant retryplane client: %s", base, err, want)
		}
	}

	_, err := New("http://plane", WithSyncInterval(time.Millisecond), WithCacheSize(0))
	want := "retryplane client: WithSyncInterval: 1ms: must be 100ms to 1m\nWithCacheSize: 0: must be 1 to 1000000"
	if err == nil || err.Error() != want {
		t.Errorf("got  %v\nwant %s", err, want)
	}
	if _, err := New("http://plane", WithToken("se cret")); err == nil || errors.Unwrap(err) == nil ||
		err.Error() != "retryplane client: WithToken: must be printable ASCII without blanks" {
		t.Errorf("got %v, want no word of the token", err)
	}
}
