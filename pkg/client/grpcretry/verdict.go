package grpcretry

import (
	"context"
	"strconv"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/retryplane/retryplane/pkg/policy"
)

// Metadata of gRPC's retry design (gRFC A6).
const (
	previousAttempts = "grpc-previous-rpc-attempts"
	pushbackTrailer  = "grpc-retry-pushback-ms"
)

func withPrevious(ctx context.Context, n int) context.Context {
	return metadata.AppendToOutgoingContext(ctx, previousAttempts, strconv.Itoa(n))
}

// decide says what the end means under a policy.
func (e *rpcEnd) decide(idempotent bool) func(policy.RetryPolicy) policy.Verdict {
	return func(p policy.RetryPolicy) policy.Verdict {
		s := status.Convert(e.err)
		return p.DecideRPC(policy.RPC{
			Code:       policy.Code(s.Code()),
			Idempotent: idempotent,
			NotSent:    s.Code() == codes.Unavailable && e.peer.Addr == nil,
			Committed:  e.header != nil,
			Pushback:   e.trailer.Get(pushbackTrailer),
			RetryInfo:  retryInfo(s),
		})
	}
}

// word is the status's code, for logs and events.
func (e *rpcEnd) word() string { return status.Code(e.err).String() }

// retryInfo is how long the server asks us to stay away by a detail of its status; 0 = it does not.
func retryInfo(s *status.Status) time.Duration {
	for _, d := range s.Details() {
		if info, ok := d.(*errdetails.RetryInfo); ok {
			return max(info.GetRetryDelay().AsDuration(), 0)
		}
	}
	return 0
}
