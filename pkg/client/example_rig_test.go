package client_test

import (
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"time"

	"github.com/retryplane/retryplane/pkg/client"
	"github.com/retryplane/retryplane/pkg/policy"
)

// exampleClient is what client.New("https://retryplane.example.com") returns where there is such a control plane: here one
// in memory that grants every retry. Waits are short, so that the examples are.
func exampleClient(opts ...client.Option) *client.Client {
	return exampleClientOf(&generous{grants: 1000}, opts...)
}

// outageClient is one whose control plane says that all breakers are open.
func outageClient(opts ...client.Option) *client.Client {
	return exampleClientOf(&generous{open: true}, opts...)
}

func exampleClientOf(plane *generous, opts ...client.Option) *client.Client {
	p := policy.Default()
	p.Retry.Base, p.Retry.Cap, p.Retry.Jitter = time.Millisecond, time.Millisecond, policy.JitterNone
	c, err := client.New("https://retryplane.example.com", append([]client.Option{
		client.WithHTTPClient(&http.Client{Transport: plane}), client.WithPolicy(p),
	}, opts...)...)
	if err != nil {
		panic(err)
	}
	return c
}

// stutteringAPI answers the first n requests with 503, and the others with 200 and what Idempotency-Key they had.
func stutteringAPI(n int32) *httptest.Server {
	var seen atomic.Int32
	return httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if seen.Add(1) <= n {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		_, _ = w.Write([]byte("welcome " + r.Header.Get("Idempotency-Key")))
	}))
}
