package client_test

import (
	"net/http"
	"time"

	"github.com/retryplane/retryplane/pkg/client"
	"github.com/retryplane/retryplane/pkg/policy"
)

// exampleClient is what client.New("https://retryplane.example.com") returns where there is such a control plane: here one
// in memory that grants every retry. Waits are short, so that the examples are.
func exampleClient(opts ...client.Option) *client.Client {
	plane := &http.Client{Transport: &generous{grants: 1000}}
	p := policy.Default()
	p.Retry.Base, p.Retry.Cap, p.Retry.Jitter = time.Millisecond, time.Millisecond, policy.JitterNone
	c, err := client.New("https://retryplane.example.com", append([]client.Option{
		client.WithHTTPClient(plane), client.WithPolicy(p),
	}, opts...)...)
	if err != nil {
		panic(err)
	}
	return c
}
