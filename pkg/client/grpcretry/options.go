package grpcretry

import (
	"slices"

	"google.golang.org/grpc"

	"github.com/retryplane/retryplane/pkg/client"
)

// Option adjusts the interceptors.
type Option func(*config)

type config struct {
	dependency func(method, target string) string
	idempotent func(method string) bool
}

// Dependency names the dependency of all calls. Default: none is guarded.
func Dependency(name string) Option {
	return func(c *config) { c.dependency = func(string, string) string { return name } }
}

// DependencyFunc names the dependency of a call by its full method ("/package.Service/Method") and the target that the
// connection was made for. "" = unguarded. It may be called at the same time for several calls.
func DependencyFunc(name func(method, target string) string) Option {
	return func(c *config) { c.dependency = name }
}

// IdempotentMethods declares full methods ("/package.Service/Method") that may be carried out twice. Default: none. What
// is said of a single call, by client.WithCall and client.Idempotent, wins.
func IdempotentMethods(methods ...string) Option {
	methods = slices.Clone(methods)
	return IdempotentFunc(func(method string) bool { return slices.Contains(methods, method) })
}

// IdempotentFunc is [IdempotentMethods] by a function.
func IdempotentFunc(idempotent func(method string) bool) Option {
	return func(c *config) { c.idempotent = idempotent }
}

func newConfig(opts []Option) *config {
	c := &config{
		dependency: func(string, string) string { return "" },
		idempotent: func(string) bool { return false },
	}
	for _, set := range opts {
		set(c)
	}
	return c
}

// guard returns the dependency of a call, nil for none.
func (c *config) guard(plane *client.Client, method string, conn *grpc.ClientConn) *client.Dependency {
	if name := c.dependency(method, conn.Target()); name != "" {
		return plane.Dependency(name)
	}
	return nil
}

// DialOptions are both interceptors, and gRPC's own retries switched off: two layers that retry multiply.
func DialOptions(plane *client.Client, opts ...Option) []grpc.DialOption {
	return []grpc.DialOption{
		grpc.WithDisableRetry(),
		grpc.WithChainUnaryInterceptor(UnaryInterceptor(plane, opts...)),
		grpc.WithChainStreamInterceptor(StreamInterceptor(plane, opts...)),
	}
}
