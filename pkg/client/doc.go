// Package client guards a program's calls to its dependencies, together with the rest of the fleet: by a breaker and a
// retry budget per dependency that all instances share through a control plane.
//
// A guarded call does no I/O. It acts on a view, which an exchange with the control plane (a sync) renews in the
// background. Without the control plane every instance goes on with a breaker and a budget of its own; calls never
// fail, and never wait, because the control plane is away.
//
//	c, err := client.New("http://127.0.0.1:8080")
//	...
//	defer c.Close(context.Background())
//	payments := c.Dependency("payments")
//	err = payments.Do(ctx, func(ctx context.Context) error { return charge(ctx) })
//
// # Which call to use
//
//   - [Client.Transport] for HTTP: below an http.Client that stays as it is. [Client.TransportFunc] where one http.Client
//     calls several dependencies.
//   - [Dependency.Do], or [Do] for functions that return a value, for everything else.
//   - [Dependency.Acquire] and [Permit.Done] where retries are somebody else's business: the breaker alone, without a
//     lock, an allocation or a wait.
//
// What may be sent twice is the caller's to say: by method and Idempotency-Key, or by [Idempotent]. Errors are marked by
// [Permanent], [Ignore] and [RetryAfter] within a guarded function.
//
// # The policy of a call
//
// How often and how long is tried is decided, for each field, by the first of these that says something: the [CallOption]
// of the call; the control plane, whose operators change the policy of a dependency for all running instances within one
// sync; [WithPolicy]; [policy.Default]. Breaker, budget and overrides lie above all of them.
//
// # What became of a call
//
// Guarded calls fail with an [*Error], which is also what the attempts failed of. [ErrOpen] says that nothing was sent
// (errors.As gives the [*OpenError] with the time left), [ErrBudget] that the fleet had no retry to spare. [Record] tells
// the same of calls that succeeded. [WithEvents] is told of everything, [LogEvents] makes log records of it,
// [Dependency.State] and [Client.Stats] are there to look at.
//
// Processes that are frozen between invocations use [WithoutBackground] and [Client.Flush].
//
// The examples show each of these: an HTTP client and a payment at [Client.Transport], a background job at [Retry], a
// function in the cloud at [Client.Flush], a fallback at [OpenError], a look back at [Record].
package client
