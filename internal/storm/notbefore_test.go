package storm

import (
	"context"
	"errors"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/retryplane/retryplane/pkg/client"
)

// TestNotBeforeReachesTheFleet: one instance is asked to stay away for two minutes; the others hear of it within a second,
// through another replica, and none retries before the time is over. First attempts go on.
func TestNotBeforeReachesTheFleet(t *testing.T) {
	t.Parallel()
	for name, stream := range map[string]bool{"by sync": false, "by stream": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				plane := NewPlane(t, 2)
				one := newClient(t, plane.Replicas[0], 0, client.WithStream(false))
				two := newClient(t, plane.Replicas[1], 1, client.WithStream(stream))
				order(t, plane.Replicas[0], "", nil)
				learn(t, one)
				learn(t, two)
				attempt := func(c *client.Client, err error) (attempts int, reason string) {
					t.Helper()
					got := c.Dependency("payments").Do(t.Context(), func(context.Context) error { return err })
					failed, ok := errors.AsType[*client.Error](got)
					if !ok {
						t.Fatalf("got %v", got)
					}
					return failed.Attempts, string(failed.Reason)
				}
				if n, reason := attempt(two, errPolicyTest); n != 3 {
					t.Fatalf("before: %d attempts, %s, want 3", n, reason)
				}
				if n, reason := attempt(one, client.RetryAfter(errPolicyTest, 2*time.Minute)); n != 1 || reason != "retry_after" {
					t.Errorf("the one that was asked: %d attempts, %s", n, reason)
				}
				if n, reason := attempt(one, errPolicyTest); n != 1 || reason != "retry_after" {
					t.Errorf("the one that was asked, again: %d attempts, %s", n, reason)
				}
				began := time.Now()
				if !stream {
					learn(t, two) // it has traffic
				}
				<-time.After(time.Second)
				if n, reason := attempt(two, errPolicyTest); n != 1 || reason != "retry_after" {
					t.Errorf("the other one after a second: %d attempts, %s", n, reason)
				}
				if got := two.Dependency("payments").State().NotBefore; got < 118*time.Second || got > 2*time.Minute {
					t.Errorf("it knows of %v, want nearly 2m", got)
				}
				<-time.After(time.Until(began.Add(2*time.Minute + time.Second)))
				learn(t, two)
				if n, reason := attempt(two, errPolicyTest); n != 3 {
					t.Errorf("when the time is over: %d attempts, %s, want 3: nobody may have reported the demand again", n, reason)
				}
			})
		})
	}
}

// TestResetEndsNotBefore: an operator knows better than a header.
func TestResetEndsNotBefore(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		replica := NewPlane(t, 1).Replicas[0]
		c := newClient(t, replica, 0)
		order(t, replica, "", nil)
		learn(t, c)
		_ = c.Dependency("payments").Do(t.Context(), func(context.Context) error { return client.RetryAfter(errPolicyTest, 10*time.Minute) })
		learn(t, c)
		if got := c.Dependency("payments").State().NotBefore; got < 9*time.Minute {
			t.Fatalf("it knows of %v, want 10m", got)
		}
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://plane/v1/dependencies/payments/reset", nil)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := replica.Client().Do(req)
		if err != nil || resp.StatusCode != http.StatusOK {
			t.Fatalf("reset: %v %v", resp, err)
		}
		resp.Body.Close()
		learn(t, c)
		if got := c.Dependency("payments").State().NotBefore; got != 0 {
			t.Errorf("after a reset: %v", got)
		}
	})
}
