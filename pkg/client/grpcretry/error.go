package grpcretry

import (
	"context"
	"errors"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/retryplane/retryplane/pkg/client"
)

// callError is a *client.Error with the status by which gRPC's users tell errors apart.
type callError struct {
	cause  error
	status *status.Status
}

// newError gives failed, which is a *client.Error, the status of the last attempt; last is its error, nil if none was
// made.
func newError(failed, last error) error {
	code := codes.Unavailable // the breaker, or an operator: gRPC's word for "try again later"
	switch {
	case last != nil:
		code = status.Code(last)
		if ctx := status.FromContextError(last); code == codes.Unknown && ctx.Code() != codes.Unknown {
			code = ctx.Code()
		}
	case errors.Is(failed, client.ErrOpen):
	case errors.Is(failed, context.DeadlineExceeded):
		code = codes.DeadlineExceeded
	case errors.Is(failed, context.Canceled):
		code = codes.Canceled
	default: // the name of the dependency, or options of the call that are out of bounds
		code = codes.InvalidArgument
	}
	if failed, ok := errors.AsType[*client.Error](failed); ok && failed.Timeout() && code == codes.Canceled {
		code = codes.DeadlineExceeded // it was our clock that cancelled the attempt
	}
	s := status.New(code, failed.Error())
	if details := status.Convert(last).Proto().GetDetails(); last != nil && len(details) > 0 {
		p := s.Proto()
		p.Details = details
		s = status.FromProto(p)
	}
	return &callError{failed, s}
}

func (e *callError) Error() string { return e.cause.Error() }
func (e *callError) Unwrap() error { return e.cause }

// GRPCStatus is what status.FromError asks for.
func (e *callError) GRPCStatus() *status.Status { return e.status }
