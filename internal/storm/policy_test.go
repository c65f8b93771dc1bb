package storm

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/retryplane/retryplane/pkg/client"
	"github.com/retryplane/retryplane/pkg/policy"
	"github.com/retryplane/retryplane/pkg/wire"
)

// order puts a policy for the dependency through the API: one under which neither breaker nor budget nor chance has a say
// in what the calls below do, with one field of the retry policy as given; "" = none.
func order(t *testing.T, r *Replica, field string, value any) {
	t.Helper()
	retry := map[string]any{
		"attempts": 3, "deadline_ms": 10_000, "attempt_timeout_ms": 3000, "base_ms": 100, "cap_ms": 3000, "jitter": "none",
	}
	if field != "" {
		retry[field] = value
	}
	body, err := json.Marshal(map[string]any{
		"breaker": map[string]any{"local_failures": 0, "consecutive_failures": 0, "min_attempts": 10_000},
		"budget":  map[string]any{"floor": 10_000},
		"retry":   retry,
	})
	if err != nil {
		t.Fatal(err)
	}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPut, "http://plane"+wire.PathDependencies+"/payments/policy", bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := r.Client().Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(resp.Body)
		t.Fatalf("put %s: %s: %s", body, resp.Status, text)
	}
}

// learn has an instance exchange one sync with its control plane.
func learn(t *testing.T, c *client.Client) {
	t.Helper()
	if err := c.Dependency("payments").Do(t.Context(), func(context.Context) error { return nil }); err != nil {
		t.Fatal(err)
	}
	if err := c.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
}

var errPolicyTest = errors.New("down")

// What a call does, in words that tell one policy from another.

func failing(err error) func(*testing.T, *client.Client) string {
	return func(t *testing.T, c *client.Client) string {
		start, calls := time.Now(), 0
		got := c.Dependency("payments").Do(t.Context(), func(context.Context) error { calls++; return err })
		var failed *client.Error
		if !errors.As(got, &failed) {
			t.Fatalf("got %v", got)
		}
		return fmt.Sprintf("%d calls in %v, %s", calls, time.Since(start), failed.Reason)
	}
}

func hanging(t *testing.T, c *client.Client) string {
	start, calls := time.Now(), 0
	_ = c.Dependency("payments").Do(t.Context(), func(ctx context.Context) error {
		calls++
		<-ctx.Done()
		return ctx.Err()
	})
	return fmt.Sprintf("%d calls in %v", calls, time.Since(start))
}

// spread says whether waits depend on chance.
func spread(t *testing.T, c *client.Client) string {
	first := failing(errPolicyTest)(t, c)
	for range 5 {
		if failing(errPolicyTest)(t, c) != first {
			return "waits differ"
		}
	}
	return "waits are the same"
}

func answered(method string, status int) func(*testing.T, *client.Client) string {
	return func(t *testing.T, c *client.Client) string {
		sends := 0
		rt := c.Transport("payments", roundTripper(func(r *http.Request) (*http.Response, error) {
			sends++
			_, _ = io.Copy(io.Discard, r.Body)
			return &http.Response{StatusCode: status, Header: http.Header{"Retry-After": {"0"}}, Body: http.NoBody}, nil
		}))
		body := io.MultiReader(strings.NewReader("a body without GetBody")) // so that it has to be kept
		req, err := http.NewRequestWithContext(t.Context(), method, "http://payments.test", body)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := rt.RoundTrip(req); err != nil {
			t.Fatal(err)
		}
		return fmt.Sprintf("%d sends", sends)
	}
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// TestPolicyReachesTheFleet: an operator changes one field of the retry policy, and every running instance acts on it
// after its next sync. No field is forgotten on the way from the API to what a call does.
func TestPolicyReachesTheFleet(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		field         string
		value         any
		observe       func(*testing.T, *client.Client) string
		before, after string
	}{
		"attempts": {
			"attempts", 5, failing(errPolicyTest),
			"3 calls in 300ms, attempts", "5 calls in 1.5s, attempts",
		},
		"deadline": {
			"deadline_ms", 2000, hanging,
			"3 calls in 9.3s", "1 calls in 2s",
		},
		"attempt timeout": {
			"attempt_timeout_ms", 500, hanging,
			"3 calls in 9.3s", "3 calls in 1.8s",
		},
		"base": {
			"base_ms", 500, failing(errPolicyTest),
			"3 calls in 300ms, attempts", "3 calls in 1.5s, attempts",
		},
		"cap": {
			"cap_ms", 150, failing(errPolicyTest),
			"3 calls in 300ms, attempts", "3 calls in 250ms, attempts",
		},
		"jitter": {
			"jitter", "full", spread,
			"waits are the same", "waits differ",
		},
		"retry-after cap": {
			"retry_after_cap_ms", 1000, func(t *testing.T, c *client.Client) string {
				_, reason, _ := strings.Cut(failing(client.RetryAfter(errPolicyTest, 2*time.Second))(t, c), ", ")
				return reason
			},
			"attempts", "retry_after",
		},
		"replay buffer":            {"replay_buffer_bytes", 8, answered(http.MethodPut, 503), "3 sends", "1 sends"},
		"retry 500":                {"retry_500", true, answered(http.MethodPut, 500), "1 sends", "3 sends"},
		"retry throttled writes":   {"retry_throttled_writes", true, answered(http.MethodPost, 429), "1 sends", "3 sends"},
		"retry unavailable writes": {"retry_unavailable_writes", true, answered(http.MethodPost, 503), "1 sends", "3 sends"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				replica := NewPlane(t, 1).Replicas[0]
				fleet := []*client.Client{newClient(t, replica, 0), newClient(t, replica, 1)}
				order(t, replica, "", nil)
				for i, c := range fleet {
					learn(t, c)
					if got := tc.observe(t, c); got != tc.before {
						t.Errorf("instance %d before: %s, want %s", i, got, tc.before)
					}
				}
				order(t, replica, tc.field, tc.value)
				for i, c := range fleet {
					learn(t, c)
					if got := tc.observe(t, c); got != tc.after {
						t.Errorf("instance %d after one sync: %s, want %s", i, got, tc.after)
					}
				}
			})
		})
	}
}

// TestCallerOverFleet: what a caller says of one call wins over what operators say of all, and over what the client was
// made with; the calls beside it go by the fleet's policy.
func TestCallerOverFleet(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		replica := NewPlane(t, 1).Replicas[0]
		c := newClient(t, replica, 0)
		order(t, replica, "attempts", 2)
		learn(t, c)
		calls := 0
		count := func(context.Context) error { calls++; return errPolicyTest }
		_ = c.Dependency("payments").Do(t.Context(), count, client.MaxAttempts(6))
		if calls != 6 {
			t.Errorf("%d calls, want the caller's 6", calls)
		}
		calls = 0
		_, err := client.Do(client.WithCall(t.Context(), client.Retry(policy.Background())), c.Dependency("payments"),
			func(ctx context.Context) (int, error) { return 0, count(ctx) })
		if calls != 7 || err == nil {
			t.Errorf("%d calls, want the preset's 7", calls)
		}
		calls = 0
		_ = c.Dependency("payments").Do(t.Context(), count)
		if calls != 2 {
			t.Errorf("%d calls, want the fleet's 2", calls)
		}
	})
}
