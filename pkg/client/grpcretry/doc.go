// Package grpcretry guards the calls of a gRPC client: the fleet's breaker may reject them, and they are sent again as the
// dependency's policy says. It is a package of its own, so that only programs that use gRPC import it.
//
//	conn, err := grpc.NewClient(target, append(grpcretry.DialOptions(plane, grpcretry.Dependency("payments")),
//		grpc.WithTransportCredentials(creds))...)
//
// UNAVAILABLE is retried if the method is declared idempotent ([IdempotentMethods], or client.Idempotent of a single call)
// or if the call provably never reached a server; RESOURCE_EXHAUSTED if the server says when to come back. The trailer
// grpc-retry-pushback-ms and the RetryInfo of a status are honoured: the first may forbid a retry, both are lower bounds of
// the wait. Retries carry grpc-previous-rpc-attempts. gRPC's own retries are switched off ([DialOptions]), but for those of
// calls that no server has seen.
//
// A unary call is over within the policy's deadline. A stream can be begun again until it is committed: until response
// headers or a message come, or more was sent than the policy's replay buffer holds. From then on it lives as long as its
// caller wants, and counts as a success for the breaker.
//
// The error of a call that failed has the status of its last attempt (status.Code, status.FromError); errors.As finds the
// *client.Error, and errors.Is client.ErrOpen of a call that was not sent, whose code is UNAVAILABLE.
package grpcretry
