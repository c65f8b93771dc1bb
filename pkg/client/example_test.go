package client_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/retryplane/retryplane/pkg/client"
)

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
