package bench

import (
	"bytes"
	"io"
	"net/http"
	"testing"

	"github.com/failsafe-go/failsafe-go/failsafehttp"
	"github.com/hashicorp/go-retryablehttp"
)

// stub answers at once, so that what is left is the cost of whoever guards it.
type stub struct{}

func (stub) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.Body != nil {
		_, _ = io.Copy(io.Discard, req.Body)
		_ = req.Body.Close()
	}
	return &http.Response{StatusCode: http.StatusOK, Header: http.Header{}, Body: http.NoBody, Request: req}, nil
}

// doer is what sends a request: an http.Client with whatever guards it.
type doer func(method string, body []byte) (*http.Response, error)

// plain makes the request that a program without retries makes.
func plain(c *http.Client) doer {
	return func(method string, body []byte) (*http.Response, error) {
		var r io.Reader
		if body != nil {
			r = bytes.NewReader(body)
		}
		req, err := http.NewRequest(method, "http://payments.test/v1/charges", r)
		if err != nil {
			return nil, err
		}
		return c.Do(req)
	}
}

// BenchmarkTransport is one request that succeeds at once. "bare" is the http.Client alone: what a peer costs is what
// it adds to that.
func BenchmarkTransport(b *testing.B) {
	for _, request := range []struct {
		name, method string
		body         []byte
	}{{"Get", http.MethodGet, nil}, {"Put1KiB", http.MethodPut, make([]byte, 1<<10)}} {
		run := func(peer string, send doer) {
			b.Run(request.name+"/"+peer, func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					resp, err := send(request.method, request.body)
					if err != nil {
						b.Fatal(err)
					}
					_ = resp.Body.Close()
				}
			})
		}
		run("bare", plain(&http.Client{Transport: stub{}}))
		run("retryplane", plain(&http.Client{Transport: newPlane(b, "").Transport("payments", stub{})}))
		run("retryablehttp", retryable())
		run("failsafehttp", plain(&http.Client{Transport: failsafehttp.NewRoundTripper(stub{}, failsafehttp.NewRetryPolicyBuilder().Build())}))
	}
}

// retryable sends as go-retryablehttp wants it: with a request of its own, and a client that it was given.
func retryable() doer {
	c := retryablehttp.NewClient()
	c.Logger = nil
	c.HTTPClient = &http.Client{Transport: stub{}}
	return func(method string, body []byte) (*http.Response, error) {
		var raw any
		if body != nil {
			raw = body
		}
		req, err := retryablehttp.NewRequest(method, "http://payments.test/v1/charges", raw)
		if err != nil {
			return nil, err
		}
		return c.Do(req)
	}
}
