package grpcretry_test

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/retryplane/retryplane/pkg/client"
	"github.com/retryplane/retryplane/pkg/client/grpcretry"
	"github.com/retryplane/retryplane/pkg/policy"
)

func message(text string) *grpc_testing.StreamingOutputCallResponse {
	return &grpc_testing.StreamingOutputCallResponse{Payload: &grpc_testing.Payload{Body: []byte(text)}}
}

func ask(text string) *grpc_testing.StreamingOutputCallRequest {
	return &grpc_testing.StreamingOutputCallRequest{Payload: &grpc_testing.Payload{Body: []byte(text)}}
}

func input(text string) *grpc_testing.StreamingInputCallRequest {
	return &grpc_testing.StreamingInputCallRequest{Payload: &grpc_testing.Payload{Body: []byte(text)}}
}

var errAway = status.Error(codes.Unavailable, "away")

// all receives until the end.
func all(s grpc.ServerStreamingClient[grpc_testing.StreamingOutputCallResponse]) (got []string, err error) {
	for {
		m, err := s.Recv()
		if errors.Is(err, io.EOF) {
			return got, nil
		}
		if err != nil {
			return got, err
		}
		got = append(got, string(m.GetPayload().GetBody()))
	}
}

// TestServerStream: it is begun again until something of it came, and not after that.
func TestServerStream(t *testing.T) {
	t.Parallel()
	type out = grpc.ServerStreamingServer[grpc_testing.StreamingOutputCallResponse]
	for name, tc := range map[string]struct {
		serve    func(n int, s out) error
		got      string
		code     codes.Code
		calls    int
		outcomes [2]int64 // success, failure
	}{
		"good":  {func(_ int, s out) error { return errors.Join(s.Send(message("a")), s.Send(message("b"))) }, "a b", codes.OK, 1, [2]int64{1, 0}},
		"empty": {func(int, out) error { return nil }, "", codes.OK, 1, [2]int64{1, 0}},
		"away at first": {func(n int, s out) error {
			if n < 3 {
				return errAway
			}
			return s.Send(message("a"))
		}, "a", codes.OK, 3, [2]int64{1, 2}},
		"away":                    {func(int, out) error { return errAway }, "", codes.Unavailable, 3, [2]int64{0, 3}},
		"away after a message":    {func(_ int, s out) error { return errors.Join(s.Send(message("a")), errAway) }, "a", codes.Unavailable, 1, [2]int64{1, 0}},
		"away after the headers":  {func(_ int, s out) error { return errors.Join(s.SendHeader(metadata.Pairs("a", "b")), errAway) }, "", codes.Unavailable, 1, [2]int64{0, 1}},
		"a refusal that is final": {func(int, out) error { return status.Error(codes.NotFound, "no") }, "", codes.NotFound, 1, [2]int64{1, 0}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := &server{output: func(n int, out out) error {
				err := tc.serve(n, out)
				if status.Code(err) == codes.Unknown && err != nil { // errors.Join
					err = errAway
				}
				return err
			}}
			r := setup(t, s, quick(), grpcretry.IdempotentMethods(outputMethod))
			stream, err := r.StreamingOutputCall(t.Context(), &grpc_testing.StreamingOutputCallRequest{})
			if err != nil {
				t.Fatal(err)
			}
			got, err := all(stream)
			if strings.Join(got, " ") != tc.got || status.Code(err) != tc.code || s.seen() != tc.calls {
				t.Errorf("%d calls, got %q, %v", s.seen(), got, err)
			}
			if _, again := stream.Recv(); again == nil {
				t.Error("no error after the end")
			}
			if o := r.report(t); [2]int64{o.Success, o.Failure} != tc.outcomes || o.Requests != 1 {
				t.Errorf("reported %+v, want %v", o, tc.outcomes)
			}
		})
	}
}

// TestClientStream: what was sent is sent again, as long as it was kept.
func TestClientStream(t *testing.T) {
	t.Parallel()
	type in = grpc.ClientStreamingServer[grpc_testing.StreamingInputCallRequest, grpc_testing.StreamingInputCallResponse]
	for name, tc := range map[string]struct {
		buffer int64
		calls  int
		code   codes.Code
	}{"kept": {1 << 20, 3, codes.OK}, "too large": {10, 1, codes.Unavailable}, "not kept": {0, 1, codes.Unavailable}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := &server{input: func(n int, in in) error {
				size := int32(0)
				for {
					m, err := in.Recv()
					if errors.Is(err, io.EOF) {
						break
					}
					if err != nil {
						return err
					}
					size += int32(len(m.GetPayload().GetBody()))
					if n == 1 && size > 8 { // in the middle
						return errAway
					}
				}
				if n == 2 { // at the end
					return errAway
				}
				return in.SendAndClose(&grpc_testing.StreamingInputCallResponse{AggregatedPayloadSize: size})
			}}
			p := quick()
			p.Retry.ReplayBuffer = tc.buffer
			r := setup(t, s, p, grpcretry.IdempotentMethods(inputMethod))
			stream, err := r.StreamingInputCall(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			for range 4 {
				if err := stream.Send(input("12345")); err != nil && !errors.Is(err, io.EOF) {
					t.Fatal(err)
				}
			}
			resp, err := stream.CloseAndRecv()
			if status.Code(err) != tc.code || s.seen() != tc.calls || err == nil && resp.GetAggregatedPayloadSize() != 20 {
				t.Errorf("%d calls, got %v, %v", s.seen(), resp, err)
			}
			if tc.code != codes.OK {
				if failed, ok := errors.AsType[*client.Error](err); !ok || failed.Reason != policy.StopBody {
					t.Errorf("got %v, want the reason %q", err, policy.StopBody)
				}
			}
		})
	}
}

// TestBidi: both directions at once, over a stream that was begun again.
func TestBidi(t *testing.T) {
	t.Parallel()
	s := &server{duplex: func(n int, s grpc.BidiStreamingServer[grpc_testing.StreamingOutputCallRequest, grpc_testing.StreamingOutputCallResponse]) error {
		for {
			m, err := s.Recv()
			if errors.Is(err, io.EOF) {
				return nil
			}
			if err != nil {
				return err
			}
			if n == 1 {
				return errAway
			}
			if err := s.Send(message(string(m.GetPayload().GetBody()))); err != nil {
				return err
			}
		}
	}}
	r := setup(t, s, quick(), grpcretry.IdempotentMethods(duplexMethod))
	stream, err := r.FullDuplexCall(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	const messages = 500
	sent := make(chan error, 1)
	go func() {
		for range messages {
			if err := stream.Send(ask(strings.Repeat("x", 1000))); err != nil {
				sent <- err
				return
			}
		}
		sent <- stream.CloseSend()
	}()
	if header, err := stream.Header(); err != nil || len(header) == 0 {
		t.Errorf("header: %v, %v", header, err)
	}
	received := 0
	for {
		_, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		received++
	}
	if err := <-sent; err != nil || received != messages || s.seen() != 2 {
		t.Errorf("%d calls, %d messages came back, %v", s.seen(), received, err)
	}
}

// TestCommittedStreamLives: neither the attempt's time nor the call's deadline ends a stream that has begun.
func TestCommittedStreamLives(t *testing.T) {
	t.Parallel()
	go1 := make(chan struct{})
	s := &server{output: func(_ int, s grpc.ServerStreamingServer[grpc_testing.StreamingOutputCallResponse]) error {
		if err := s.Send(message("a")); err != nil {
			return err
		}
		<-go1
		return s.Send(message("b"))
	}}
	p := quick()
	p.Retry.AttemptTimeout, p.Retry.Deadline = 500*time.Millisecond, 600*time.Millisecond
	r := setup(t, s, p)
	stream, err := r.StreamingOutputCall(t.Context(), &grpc_testing.StreamingOutputCallRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := stream.Recv(); err != nil {
		t.Fatal(err)
	}
	time.AfterFunc(700*time.Millisecond, func() { close(go1) })
	if got, err := all(stream); len(got) != 1 || err != nil {
		t.Errorf("got %v, %v after the deadline", got, err)
	}
}

// TestAbandonedStream: whoever goes away without receiving leaves nothing behind, which the end of the tests looks for.
func TestAbandonedStream(t *testing.T) {
	t.Parallel()
	s := &server{output: func(_ int, s grpc.ServerStreamingServer[grpc_testing.StreamingOutputCallResponse]) error {
		<-s.Context().Done()
		return s.Context().Err()
	}}
	r := setup(t, s, quick(), grpcretry.IdempotentMethods(outputMethod))
	ctx, cancel := context.WithCancel(t.Context())
	stream, err := r.StreamingOutputCall(ctx, &grpc_testing.StreamingOutputCallRequest{})
	if err != nil {
		t.Fatal(err)
	}
	cancel()
	if _, err := stream.Recv(); status.Code(err) != codes.Canceled {
		t.Errorf("got %v", err)
	}
	if got := r.report(t); got.Failure != 0 || got.Ignored != 1 {
		t.Errorf("reported %+v", got)
	}
}

// TestSilentStream: a stream that does not begin in an attempt's time is begun again.
func TestSilentStream(t *testing.T) {
	t.Parallel()
	s := &server{output: func(n int, s grpc.ServerStreamingServer[grpc_testing.StreamingOutputCallResponse]) error {
		if n == 1 {
			<-s.Context().Done()
			return s.Context().Err()
		}
		return s.Send(message("a"))
	}}
	p := quick()
	p.Retry.AttemptTimeout = 200 * time.Millisecond
	r := setup(t, s, p, grpcretry.IdempotentMethods(outputMethod))
	stream, err := r.StreamingOutputCall(t.Context(), &grpc_testing.StreamingOutputCallRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if got, err := all(stream); len(got) != 1 || err != nil || s.seen() != 2 {
		t.Errorf("%d calls, got %v, %v", s.seen(), got, err)
	}
}
