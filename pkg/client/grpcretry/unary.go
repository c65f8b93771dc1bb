package grpcretry

import (
	"context"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"

	"github.com/retryplane/retryplane/pkg/client"
)

// UnaryInterceptor guards unary calls. Use it with [DialOptions], or with grpc.WithDisableRetry.
func UnaryInterceptor(plane *client.Client, opts ...Option) grpc.UnaryClientInterceptor {
	c := newConfig(opts)
	return func(ctx context.Context, method string, req, reply any, conn *grpc.ClientConn, invoke grpc.UnaryInvoker, callOpts ...grpc.CallOption) error {
		d := c.guard(plane, method, conn)
		if d == nil {
			return invoke(ctx, method, req, reply, conn, callOpts...)
		}
		calls := d.Attempts(ctx)
		defer calls.Close()
		idempotent := calls.Idempotent(c.idempotent(method))
		var err error
		for calls.Next() {
			var end rpcEnd
			err = invoke(outgoing(calls), method, req, reply, conn,
				append(callOpts[:len(callOpts):len(callOpts)], grpc.Header(&end.header), grpc.Trailer(&end.trailer), grpc.Peer(&end.peer))...)
			end.err = err
			calls.Done(err, end.word(), end.decide(idempotent))
		}
		if failed := calls.Err(); failed != nil {
			return newError(failed, err)
		}
		return err // of a server that works, such as NOT_FOUND, or none
	}
}

// outgoing is the context of the attempt under way, with its number for who serves it.
func outgoing(calls *client.Attempts) context.Context {
	ctx := calls.Context()
	if n := calls.Number(); n > 1 {
		ctx = withPrevious(ctx, n-1)
	}
	return ctx
}

// rpcEnd is how one attempt ended.
type rpcEnd struct {
	err     error
	header  metadata.MD
	trailer metadata.MD
	peer    peer.Peer // no address: no connection was ever chosen for it
}
