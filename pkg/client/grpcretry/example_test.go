package grpcretry_test

import (
	"context"
	"fmt"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/retryplane/retryplane/pkg/client"
	"github.com/retryplane/retryplane/pkg/client/grpcretry"
)

// A connection whose calls are guarded: the breaker may reject them, and what may be repeated is.
func Example() {
	plane, err := client.New("http://127.0.0.1:8080", client.WithService("checkout", "1.4.2"))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer plane.Close(context.Background())

	options := grpcretry.DialOptions(plane,
		grpcretry.Dependency("payments"),
		grpcretry.IdempotentMethods("/payments.v1.Charges/Get"))
	conn, err := grpc.NewClient("dns:///payments.example:443", append(options, grpc.WithTransportCredentials(insecure.NewCredentials()))...)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer conn.Close()
	fmt.Println(conn.Target())
	// Output: dns:///payments.example:443
}
