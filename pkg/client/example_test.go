package client_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/retryplane/retryplane/pkg/client"
	"github.com/retryplane/retryplane/pkg/policy"
)

// The usual way: one client per process, one transport per dependency, below an http.Client that stays as it is. The API
// stutters, and who calls it does not notice.
func ExampleClient_Transport() {
	api := stutteringAPI(1)
	defer api.Close()
	c := exampleClient()
	defer c.Close(context.Background())

	crm := &http.Client{Transport: c.Transport("crm", http.DefaultTransport)}

	resp, err := crm.Get(api.URL + "/customers/7")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer resp.Body.Close()
	fmt.Println(resp.StatusCode)
	// Output: 200
}

// A payment must not be carried out twice. With an Idempotency-Key the provider sees to that, so that it may be sent
// again; without one it is, only if it provably never arrived.
func ExampleClient_Transport_payment() {
	api := stutteringAPI(1)
	defer api.Close()
	c := exampleClient()
	defer c.Close(context.Background())
	payments := &http.Client{Transport: c.Transport("payments", http.DefaultTransport)}

	pay := func(key string) {
		req, err := http.NewRequestWithContext(context.Background(), http.MethodPost, api.URL+"/charges", strings.NewReader(`{"cents":4200}`))
		if err != nil {
			fmt.Println(err)
			return
		}
		if key != "" {
			req.Header.Set("Idempotency-Key", key)
		}
		resp, err := payments.Do(req)
		if err != nil {
			fmt.Println(err)
			return
		}
		defer resp.Body.Close()
		answer, _ := io.ReadAll(resp.Body)
		fmt.Println(resp.StatusCode, string(answer))
	}
	pay("order-1042")
	// Output: 200 welcome order-1042
}

// Anything can be guarded, not only HTTP. A refusal that another attempt will not change is marked as one.
func ExampleDependency_Do() {
	c := exampleClient()
	defer c.Close(context.Background())
	payments := c.Dependency("payments")
	errDeclined := errors.New("card declined")

	calls := 0
	err := payments.Do(context.Background(), func(context.Context) error {
		if calls++; calls == 1 {
			return errors.New("connection reset")
		}
		return client.Permanent(errDeclined)
	})
	fmt.Println(err)
	fmt.Println(errors.Is(err, errDeclined))
	// Output:
	// payments: 2 attempts (not_retryable): card declined
	// true
}

// A function that returns a value is called again like any other, here because the CRM stutters once.
func ExampleDo() {
	c := exampleClient()
	defer c.Close(context.Background())
	crm := c.Dependency("crm")

	calls := 0
	name, err := client.Do(context.Background(), crm, func(context.Context) (string, error) {
		if calls++; calls == 1 {
			return "", errors.New("connection reset")
		}
		return "Ada Lovelace", nil
	})
	fmt.Println(name, err, calls)
	// Output: Ada Lovelace <nil> 2
}

// Nobody waits for a nightly job, so it may take its time: 7 attempts over up to 5 minutes.
func ExampleRetry() {
	c := exampleClient()
	defer c.Close(context.Background())
	invoicing := c.Dependency("invoicing")
	patient := policy.Background()
	patient.Base = time.Millisecond // it is 1 s; an example has to hurry

	calls := 0
	err := invoicing.Do(context.Background(), func(context.Context) error {
		if calls++; calls < 6 {
			return errors.New("still starting")
		}
		return nil
	}, client.Retry(patient), client.AttemptTimeout(30*time.Second))
	fmt.Println(err, calls)
	// Output: <nil> 6
}

// Through a transport, the request's context carries what is said of a single call.
func ExampleWithCall() {
	api := stutteringAPI(3)
	defer api.Close()
	c := exampleClient()
	defer c.Close(context.Background())
	crm := &http.Client{Transport: c.Transport("crm", http.DefaultTransport)}

	ctx := client.WithCall(context.Background(), client.MaxAttempts(5), client.Timeout(2*time.Second))
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, api.URL, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	resp, err := crm.Do(req)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer resp.Body.Close()
	fmt.Println(resp.StatusCode)
	// Output: 200
}

// A function that is frozen between its invocations: nothing runs in the background, and the end of each invocation
// reports, for a limited time.
func ExampleClient_Flush() {
	// Once per process, outside of the handler.
	c := exampleClient(client.WithoutBackground(), client.WithService("checkout", "1.4.2"))
	payments := c.Dependency("payments")

	handler := func(ctx context.Context) error {
		defer func() {
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 300*time.Millisecond)
			defer cancel()
			_ = c.Flush(ctx) // what could not be reported waits for the next invocation
		}()
		return payments.Do(ctx, func(context.Context) error { return nil })
	}
	for range 2 {
		fmt.Println(handler(context.Background()))
	}
	fmt.Println(c.Stats().Dependencies["payments"].Requests, "requests")
	// Output:
	// <nil>
	// <nil>
	// 2 requests
}

// While the breaker is open nothing is sent and nobody waits: the moment to answer with something else.
func ExampleOpenError() {
	c := outageClient()
	defer c.Close(context.Background())
	rates := c.Dependency("exchange-rates")
	ask := func(context.Context) (string, error) { return "1.08 as of now", nil }
	_, _ = client.Do(context.Background(), rates, ask)
	_ = c.Flush(context.Background()) // from now on this instance knows of the outage

	rate, err := client.Do(context.Background(), rates, ask)
	var open *client.OpenError
	switch {
	case errors.As(err, &open):
		rate = "1.07 as of yesterday"
		fmt.Println("decided by:", open.Source, "- try again within a minute:", open.RetryAfter <= time.Minute)
	case err != nil:
		fmt.Println(err)
	}
	fmt.Println(rate)
	// Output:
	// decided by: fleet - try again within a minute: true
	// 1.07 as of yesterday
}

// How a call went can be read for one that succeeded, too.
func ExampleRecord() {
	api := stutteringAPI(2)
	defer api.Close()
	c := exampleClient()
	defer c.Close(context.Background())
	crm := &http.Client{Transport: c.Transport("crm", http.DefaultTransport)}

	var how client.Call
	ctx := client.WithCall(context.Background(), client.Record(&how))
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, api.URL, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	resp, err := crm.Do(req)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer resp.Body.Close()
	fmt.Println(how.Dependency, how.Attempts, how.Reason, how.LastStatus, how.Source)
	// Output: crm 3 done 200 fleet
}

// Events as structured records. Times are left out here, so that the output is the same every time.
func ExampleLogEvents() {
	log := slog.New(slog.NewTextHandler(os.Stdout, &slog.HandlerOptions{
		ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
			if a.Key == slog.TimeKey {
				return slog.Attr{}
			}
			return a
		},
	}))
	c := outageClient(client.WithEvents(client.LogEvents(log)))
	payments := c.Dependency("payments")
	_ = payments.Do(context.Background(), func(context.Context) error { return nil })
	c.Close(context.Background())
	// Output: level=WARN msg="breaker opened" event=breaker dependency=payments from=closed to=open source=fleet
}
