package grpcretry_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"

	"github.com/retryplane/retryplane/pkg/client"
	"github.com/retryplane/retryplane/pkg/client/grpcretry"
	"github.com/retryplane/retryplane/pkg/policy"
	"github.com/retryplane/retryplane/pkg/wire"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// plane is a control plane that grants every retry. It may hold the breaker open.
type plane struct {
	mu       sync.Mutex
	open     bool
	reported wire.Report
}

func (p *plane) RoundTrip(r *http.Request) (*http.Response, error) {
	var asked wire.SyncRequest
	if err := json.NewDecoder(r.Body).Decode(&asked); err != nil {
		return nil, err
	}
	r.Body.Close()
	p.mu.Lock()
	defer p.mu.Unlock()
	told := wire.SyncResponse{Seq: asked.Seq, NextSyncMS: 1000}
	for _, report := range asked.Dependencies {
		d := wire.Decision{Name: report.Name, Epoch: "e", Generation: 1, State: wire.Closed, Granted: report.Want, GrantTTLMS: 3000}
		if p.open {
			d.State, d.RemainingMS = wire.Open, 60_000
		}
		sum := &p.reported
		sum.Requests += report.Requests
		sum.Attempts += report.Attempts
		sum.Success += report.Success
		sum.Failure += report.Failure
		sum.Throttled += report.Throttled
		sum.Ignored += report.Ignored
		told.Dependencies = append(told.Dependencies, d)
	}
	body, err := json.Marshal(told)
	if err != nil {
		return nil, err
	}
	return &http.Response{StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(bytes.NewReader(body)), Request: r}, nil
}

// server is a gRPC server whose methods a test gives. Unset ones are not implemented.
type server struct {
	grpc_testing.UnimplementedTestServiceServer
	unary  func(ctx context.Context, n int, in *grpc_testing.SimpleRequest) (*grpc_testing.SimpleResponse, error)
	output func(n int, s grpc.ServerStreamingServer[grpc_testing.StreamingOutputCallResponse]) error
	input  func(n int, s grpc.ClientStreamingServer[grpc_testing.StreamingInputCallRequest, grpc_testing.StreamingInputCallResponse]) error
	duplex func(n int, s grpc.BidiStreamingServer[grpc_testing.StreamingOutputCallRequest, grpc_testing.StreamingOutputCallResponse]) error

	mu       sync.Mutex
	calls    int
	previous [][]string // grpc-previous-rpc-attempts of each call
}

func (s *server) count(ctx context.Context) int {
	md, _ := metadata.FromIncomingContext(ctx)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls++
	s.previous = append(s.previous, md.Get("grpc-previous-rpc-attempts"))
	return s.calls
}

func (s *server) seen() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.calls
}

func (s *server) UnaryCall(ctx context.Context, in *grpc_testing.SimpleRequest) (*grpc_testing.SimpleResponse, error) {
	return s.unary(ctx, s.count(ctx), in)
}

func (s *server) StreamingOutputCall(_ *grpc_testing.StreamingOutputCallRequest, out grpc.ServerStreamingServer[grpc_testing.StreamingOutputCallResponse]) error {
	return s.output(s.count(out.Context()), out)
}

func (s *server) StreamingInputCall(in grpc.ClientStreamingServer[grpc_testing.StreamingInputCallRequest, grpc_testing.StreamingInputCallResponse]) error {
	return s.input(s.count(in.Context()), in)
}

func (s *server) FullDuplexCall(both grpc.BidiStreamingServer[grpc_testing.StreamingOutputCallRequest, grpc_testing.StreamingOutputCallResponse]) error {
	return s.duplex(s.count(both.Context()), both)
}

// rig is a guarded client of a server on loopback.
type rig struct {
	grpc_testing.TestServiceClient
	plane  *plane
	guard  *client.Client
	server *grpc.Server
	conn   *grpc.ClientConn
}

// quick is the default policy with waits that tests can wait for, and without chance.
func quick() policy.Policy {
	p := policy.Default()
	p.Retry.Base, p.Retry.Cap, p.Retry.Jitter = time.Millisecond, time.Millisecond, policy.JitterNone
	p.Breaker.LocalFailures = 0
	return p
}

func setup(t *testing.T, s *server, p policy.Policy, opts ...grpcretry.Option) *rig {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r := &rig{plane: &plane{}, server: grpc.NewServer()}
	grpc_testing.RegisterTestServiceServer(r.server, s)
	served := make(chan error, 1)
	go func() { served <- r.server.Serve(l) }()
	t.Cleanup(func() { r.server.Stop(); <-served })

	r.guard, err = client.New("http://control.plane.test", client.WithHTTPClient(&http.Client{Transport: r.plane}), client.WithPolicy(p))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := r.guard.Close(context.Background()); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	opts = append([]grpcretry.Option{grpcretry.Dependency("payments")}, opts...)
	r.conn, err = grpc.NewClient(l.Addr().String(), append(grpcretry.DialOptions(r.guard, opts...), grpc.WithTransportCredentials(insecure.NewCredentials()))...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.conn.Close() })
	r.TestServiceClient = grpc_testing.NewTestServiceClient(r.conn)
	return r
}

// report is what the instance told of its calls.
func (r *rig) report(t *testing.T) wire.Report {
	t.Helper()
	if err := r.guard.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	r.plane.mu.Lock()
	defer r.plane.mu.Unlock()
	return r.plane.reported
}

const (
	unaryMethod  = grpc_testing.TestService_UnaryCall_FullMethodName
	outputMethod = grpc_testing.TestService_StreamingOutputCall_FullMethodName
	inputMethod  = grpc_testing.TestService_StreamingInputCall_FullMethodName
	duplexMethod = grpc_testing.TestService_FullDuplexCall_FullMethodName
)
