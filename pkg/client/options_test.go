package client

import (
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
	for _, field := range []string{"base url", "token", "service", "retry.attempts", "budget.ratio_ppm", "http client", "sync interval", "cache size"} {
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
