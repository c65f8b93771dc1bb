package grpcretry_test

import (
	"context"
	"errors"
	"net"
	"slices"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/retryplane/retryplane/pkg/client"
	"github.com/retryplane/retryplane/pkg/client/grpcretry"
	"github.com/retryplane/retryplane/pkg/policy"
)

// trailing is a status with a trailer.
func trailing(ctx context.Context, code codes.Code, key, value string) error {
	_ = grpc.SetTrailer(ctx, metadata.Pairs(key, value))
	return status.Error(code, "no")
}

func TestUnary(t *testing.T) {
	t.Parallel()
	comeBack := func(after time.Duration) error {
		s, err := status.New(codes.ResourceExhausted, "too many").WithDetails(&errdetails.RetryInfo{RetryDelay: durationpb.New(after)})
		if err != nil {
			t.Fatal(err)
		}
		return s.Err()
	}
	always := func(code codes.Code) func(context.Context, int) error {
		return func(context.Context, int) error { return status.Error(code, "no") }
	}
	for name, tc := range map[string]struct {
		end        func(ctx context.Context, n int) error
		idempotent bool
		calls      int
		code       codes.Code
		reason     policy.StopReason // "" = the plain error of the server, or none
		outcomes   [4]int64          // success, failure, throttled, ignored
		least      time.Duration
	}{
		"good":                          {end: func(context.Context, int) error { return nil }, calls: 1, outcomes: [4]int64{1, 0, 0, 0}},
		"unavailable, then good":        {end: func(_ context.Context, n int) error { return until(n, 2, status.Error(codes.Unavailable, "no")) }, idempotent: true, calls: 2, outcomes: [4]int64{1, 1, 0, 0}},
		"unavailable":                   {end: always(codes.Unavailable), idempotent: true, calls: 3, code: codes.Unavailable, reason: policy.StopAttempts, outcomes: [4]int64{0, 3, 0, 0}},
		"unavailable, not idempotent":   {end: always(codes.Unavailable), calls: 1, code: codes.Unavailable, reason: policy.StopNotRetryable, outcomes: [4]int64{0, 1, 0, 0}},
		"not found":                     {end: always(codes.NotFound), idempotent: true, calls: 1, code: codes.NotFound, outcomes: [4]int64{1, 0, 0, 0}},
		"internal":                      {end: always(codes.Internal), idempotent: true, calls: 1, code: codes.Internal, reason: policy.StopNotRetryable, outcomes: [4]int64{0, 1, 0, 0}},
		"resource exhausted":            {end: always(codes.ResourceExhausted), idempotent: true, calls: 1, code: codes.ResourceExhausted, reason: policy.StopNotRetryable, outcomes: [4]int64{0, 0, 1, 0}},
		"resource exhausted, come back": {end: func(_ context.Context, n int) error { return until(n, 2, comeBack(50*time.Millisecond)) }, idempotent: true, calls: 2, outcomes: [4]int64{1, 0, 1, 0}, least: 50 * time.Millisecond},
		"come back too late for a call": {end: func(context.Context, int) error { return comeBack(10 * time.Minute) }, idempotent: true, calls: 1, code: codes.ResourceExhausted, reason: policy.StopRetryAfter, outcomes: [4]int64{0, 0, 1, 0}},
		"pushback": {end: func(ctx context.Context, n int) error {
			return until(n, 2, trailing(ctx, codes.Unavailable, "grpc-retry-pushback-ms", "40"))
		}, idempotent: true, calls: 2, outcomes: [4]int64{1, 1, 0, 0}, least: 40 * time.Millisecond},
		"pushback forbids": {end: func(ctx context.Context, _ int) error {
			return trailing(ctx, codes.Unavailable, "grpc-retry-pushback-ms", "-1")
		}, idempotent: true, calls: 1, code: codes.Unavailable, reason: policy.StopVeto, outcomes: [4]int64{0, 1, 0, 0}},
		"pushback that is no number": {end: func(ctx context.Context, _ int) error {
			return trailing(ctx, codes.Unavailable, "grpc-retry-pushback-ms", "soon")
		}, idempotent: true, calls: 1, code: codes.Unavailable, reason: policy.StopVeto, outcomes: [4]int64{0, 1, 0, 0}},
		"headers came, then unavailable": {end: func(ctx context.Context, _ int) error {
			_ = grpc.SendHeader(ctx, metadata.Pairs("a", "b"))
			return status.Error(codes.Unavailable, "no")
		}, idempotent: true, calls: 1, code: codes.Unavailable, reason: policy.StopNotRetryable, outcomes: [4]int64{0, 1, 0, 0}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := &server{}
			s.unary = func(ctx context.Context, n int, _ *grpc_testing.SimpleRequest) (*grpc_testing.SimpleResponse, error) {
				if err := tc.end(ctx, n); err != nil {
					return nil, err
				}
				return &grpc_testing.SimpleResponse{Username: "me"}, nil
			}
			r := setup(t, s, quick(), grpcretry.IdempotentFunc(func(method string) bool { return tc.idempotent && method == unaryMethod }))
			start := time.Now()
			resp, err := r.UnaryCall(t.Context(), &grpc_testing.SimpleRequest{})
			if status.Code(err) != tc.code || s.seen() != tc.calls {
				t.Fatalf("%d calls, %v; want %d, %v", s.seen(), err, tc.calls, tc.code)
			}
			if err == nil && resp.GetUsername() != "me" {
				t.Errorf("got %v", resp)
			}
			if took := time.Since(start); took < tc.least {
				t.Errorf("took %v, want at least %v", took, tc.least)
			}
			failed, ok := errors.AsType[*client.Error](err)
			if ok != (tc.reason != "") || ok && failed.Reason != tc.reason {
				t.Errorf("got %v, want the reason %q", err, tc.reason)
			}
			if tc.code == codes.ResourceExhausted && name != "resource exhausted" && len(status.Convert(err).Details()) != 1 {
				t.Errorf("the details of the status are lost: %v", status.Convert(err).Details())
			}
			got := r.report(t)
			if o := [4]int64{got.Success, got.Failure, got.Throttled, got.Ignored}; o != tc.outcomes || got.Requests != 1 || got.Attempts != int64(tc.calls) {
				t.Errorf("reported %v of %d requests and %d attempts, want %v", o, got.Requests, got.Attempts, tc.outcomes)
			}
			for i, previous := range s.previous {
				if want := []string{}; i > 0 {
					want = append(want, string(rune('0'+i)))
					if !slices.Equal(previous, want) {
						t.Errorf("attempt %d told of %q previous ones", i+1, previous)
					}
				} else if len(previous) != 0 {
					t.Errorf("the first told of %q previous ones", previous)
				}
			}
		})
	}
}

// until fails the calls before the good one.
func until(n, good int, err error) error {
	if n < good {
		return err
	}
	return nil
}

// TestUnaryPerCall: what the caller says of one call wins.
func TestUnaryPerCall(t *testing.T) {
	t.Parallel()
	s := &server{unary: func(context.Context, int, *grpc_testing.SimpleRequest) (*grpc_testing.SimpleResponse, error) {
		return nil, status.Error(codes.Unavailable, "no")
	}}
	r := setup(t, s, quick())
	var told client.Call
	ctx := client.WithCall(t.Context(), client.Idempotent(true), client.MaxAttempts(5), client.Record(&told))
	_, err := r.UnaryCall(ctx, &grpc_testing.SimpleRequest{})
	if status.Code(err) != codes.Unavailable || s.seen() != 5 || told.Attempts != 5 || told.Reason != policy.StopAttempts {
		t.Errorf("%d calls, %v, record %+v", s.seen(), err, told)
	}
}

// TestBreakerOpen: nothing is sent, and the error is one that gRPC's users know.
func TestBreakerOpen(t *testing.T) {
	t.Parallel()
	s := &server{unary: func(context.Context, int, *grpc_testing.SimpleRequest) (*grpc_testing.SimpleResponse, error) {
		return &grpc_testing.SimpleResponse{}, nil
	}}
	r := setup(t, s, quick())
	if _, err := r.UnaryCall(t.Context(), &grpc_testing.SimpleRequest{}); err != nil {
		t.Fatal(err)
	}
	r.plane.mu.Lock()
	r.plane.open = true
	r.plane.mu.Unlock()
	r.report(t)
	_, err := r.UnaryCall(t.Context(), &grpc_testing.SimpleRequest{})
	if !errors.Is(err, client.ErrOpen) || status.Code(err) != codes.Unavailable || s.seen() != 1 {
		t.Errorf("%d calls, %v", s.seen(), err)
	}
	open, ok := errors.AsType[*client.OpenError](err)
	if !ok || open.RetryAfter <= 0 {
		t.Errorf("got %v", err)
	}
	if _, err := r.FullDuplexCall(t.Context()); !errors.Is(err, client.ErrOpen) || status.Code(err) != codes.Unavailable {
		t.Errorf("a stream: %v", err)
	}
}

// TestNobodyListens: a call for which there never was a connection is retried, whatever it is.
func TestNobodyListens(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l.Close()
	r := setup(t, &server{}, quick())
	conn, err := grpc.NewClient(l.Addr().String(), append(grpcretry.DialOptions(r.guard, grpcretry.Dependency("payments")), grpc.WithTransportCredentials(insecure.NewCredentials()))...)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_, err = grpc_testing.NewTestServiceClient(conn).UnaryCall(t.Context(), &grpc_testing.SimpleRequest{})
	failed, ok := errors.AsType[*client.Error](err)
	if !ok || failed.Attempts != 3 || status.Code(err) != codes.Unavailable {
		t.Errorf("got %v", err)
	}
}

// TestTimes: an attempt has its time, the call its deadline, and the caller the last word; each shows in the status.
func TestTimes(t *testing.T) {
	t.Parallel()
	hang := func(ctx context.Context, _ int, _ *grpc_testing.SimpleRequest) (*grpc_testing.SimpleResponse, error) {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	within := func(t *testing.T, start time.Time, want time.Duration) {
		t.Helper()
		if took := time.Since(start); took < want-5*time.Millisecond || took > want+500*time.Millisecond { // the race detector's time
			t.Errorf("took %v, want %v", took, want)
		}
	}
	t.Run("attempts", func(t *testing.T) {
		t.Parallel()
		s := &server{unary: hang}
		p := quick()
		p.Retry.AttemptTimeout = 100 * time.Millisecond
		r := setup(t, s, p, grpcretry.IdempotentMethods(unaryMethod))
		start := time.Now()
		_, err := r.UnaryCall(t.Context(), &grpc_testing.SimpleRequest{})
		if status.Code(err) != codes.DeadlineExceeded || s.seen() != 3 {
			t.Errorf("%d calls, %v", s.seen(), err)
		}
		within(t, start, 300*time.Millisecond)
		if got := r.report(t); got.Failure != 3 {
			t.Errorf("reported %+v", got)
		}
	})
	t.Run("deadline", func(t *testing.T) {
		t.Parallel()
		s := &server{unary: hang}
		p := quick()
		p.Retry.AttemptTimeout, p.Retry.Deadline = 100*time.Millisecond, 150*time.Millisecond
		r := setup(t, s, p, grpcretry.IdempotentMethods(unaryMethod))
		start := time.Now()
		_, err := r.UnaryCall(t.Context(), &grpc_testing.SimpleRequest{})
		failed, ok := errors.AsType[*client.Error](err)
		if !ok || failed.Reason != policy.StopDeadline || status.Code(err) != codes.DeadlineExceeded {
			t.Errorf("got %v", err)
		}
		within(t, start, 150*time.Millisecond)
	})
	t.Run("caller", func(t *testing.T) {
		t.Parallel()
		s := &server{}
		ctx, cancel := context.WithCancel(t.Context())
		s.unary = func(c context.Context, n int, in *grpc_testing.SimpleRequest) (*grpc_testing.SimpleResponse, error) {
			cancel()
			return hang(c, n, in)
		}
		r := setup(t, s, quick(), grpcretry.IdempotentMethods(unaryMethod))
		_, err := r.UnaryCall(ctx, &grpc_testing.SimpleRequest{})
		if status.Code(err) != codes.Canceled || !errors.Is(err, context.Canceled) || s.seen() != 1 {
			t.Errorf("%d calls, %v", s.seen(), err)
		}
		if got := r.report(t); got.Ignored != 1 || got.Failure != 0 {
			t.Errorf("reported %+v", got)
		}
	})
}

// TestUnguarded: a method without a dependency goes by.
func TestUnguarded(t *testing.T) {
	t.Parallel()
	s := &server{unary: func(context.Context, int, *grpc_testing.SimpleRequest) (*grpc_testing.SimpleResponse, error) {
		return nil, status.Error(codes.Unavailable, "no")
	}}
	r := setup(t, s, quick(), grpcretry.DependencyFunc(func(string, string) string { return "" }), grpcretry.IdempotentMethods(unaryMethod))
	_, err := r.UnaryCall(t.Context(), &grpc_testing.SimpleRequest{})
	if _, guarded := errors.AsType[*client.Error](err); guarded || s.seen() != 1 || status.Code(err) != codes.Unavailable {
		t.Errorf("%d calls, %v", s.seen(), err)
	}
}
