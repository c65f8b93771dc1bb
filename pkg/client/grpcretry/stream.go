package grpcretry

import (
	"context"
	"errors"
	"io"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"

	"github.com/retryplane/retryplane/pkg/client"
)

// StreamInterceptor guards streams. What is sent before a stream is committed is kept, up to the policy's replay buffer,
// so messages must not be changed after they were sent, as gRPC wants it anyway.
func StreamInterceptor(plane *client.Client, opts ...Option) grpc.StreamClientInterceptor {
	c := newConfig(opts)
	return func(ctx context.Context, desc *grpc.StreamDesc, conn *grpc.ClientConn, method string, open grpc.Streamer, callOpts ...grpc.CallOption) (grpc.ClientStream, error) {
		d := c.guard(plane, method, conn)
		if d == nil {
			return open(ctx, desc, conn, method, callOpts...)
		}
		calls := d.Attempts(ctx)
		s := &stream{calls: calls, idempotent: calls.Idempotent(c.idempotent(method)), room: calls.Policy().ReplayBuffer}
		if calls.Policy().Attempts < 2 {
			s.room = 0
		}
		s.open = func(ctx context.Context, end *rpcEnd) (grpc.ClientStream, error) {
			return open(ctx, desc, conn, method, append(callOpts[:len(callOpts):len(callOpts)], grpc.Peer(&end.peer))...)
		}
		if err := s.begin(nil); err != nil {
			return nil, err
		}
		s.stop = context.AfterFunc(ctx, s.abandon)
		return s, nil
	}
}

// stream is a stream of the caller's over the attempts to open one. As any ClientStream it may be sent to and received
// from at the same time; mu is held while that could change which attempt is the current one, and not once it is
// committed.
type stream struct {
	open       func(context.Context, *rpcEnd) (grpc.ClientStream, error)
	idempotent bool

	mu        sync.Mutex
	calls     *client.Attempts
	current   grpc.ClientStream
	end       *rpcEnd
	committed bool
	sent      []any // to be sent again
	room      int64 // left in the replay buffer; below 0 = it was too small
	closed    bool  // CloseSend was called
	over      error // how it ended; nil = it did not
	stop      func() bool
}

// abandon ends the attempt of a caller who went away without receiving.
func (s *stream) abandon() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.over == nil && !s.committed {
		s.calls.Close()
	}
}

// begin makes attempts until one opens a stream. last is the error of the one before, nil if there was none. It needs mu,
// or nobody else who knows s.
func (s *stream) begin(last error) error {
	for s.calls.Next() {
		end := &rpcEnd{}
		current, err := s.open(outgoing(s.calls), end)
		if err == nil {
			if err = s.replay(current); err == nil {
				s.current, s.end = current, end
				return nil
			}
			err = broken(current, err)
		}
		end.err, last = err, err
		s.calls.Done(err, end.word(), end.decide(s.idempotent))
	}
	return s.fail(last)
}

// replay sends again what was sent before.
func (s *stream) replay(to grpc.ClientStream) error {
	for _, m := range s.sent {
		if err := to.SendMsg(m); err != nil {
			return err
		}
	}
	if s.closed {
		return to.CloseSend()
	}
	return nil
}

// broken is why a stream ended while it was sent to: gRPC tells that by receiving.
func broken(s grpc.ClientStream, err error) error {
	if !errors.Is(err, io.EOF) {
		return err
	}
	if _, err := s.Header(); err != nil {
		return err
	}
	if err := s.RecvMsg(nil); err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	return err
}

// fail ends s. It needs mu.
func (s *stream) fail(last error) error {
	s.over = last
	if failed := s.calls.Err(); failed != nil {
		s.over = newError(failed, last)
	}
	s.finish()
	return s.over
}

// finish frees what s holds. It needs mu.
func (s *stream) finish() {
	s.sent = nil
	s.calls.Close()
	if s.stop != nil {
		s.stop()
	}
}

// commit makes the current attempt the last one. It needs mu.
func (s *stream) commit() {
	if s.committed {
		return
	}
	s.sent = nil
	if s.committed = s.calls.Commit(); !s.committed {
		s.calls.Fix() // its time was over just before
	}
}

func (s *stream) SendMsg(m any) error {
	s.mu.Lock()
	if s.over != nil {
		defer s.mu.Unlock()
		return io.EOF // the error is RecvMsg's, as gRPC has it
	}
	if !s.committed {
		s.keep(m)
	}
	current, committed := s.current, s.committed
	s.mu.Unlock()

	err := current.SendMsg(m) // without the lock: it waits for who receives
	if committed || !errors.Is(err, io.EOF) {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.committed && current == s.current || s.room < 0 {
		return err
	}
	return nil // it broke, and may be begun again with all that was sent: receiving will tell
}

// keep keeps a message to be sent again. It needs mu.
func (s *stream) keep(m any) {
	size := int64(1)
	if p, ok := m.(proto.Message); ok {
		size = max(int64(proto.Size(p)), 1)
	}
	if s.room -= size; s.room < 0 {
		s.sent = nil
		s.calls.Fix()
		return
	}
	s.sent = append(s.sent, m)
}

func (s *stream) CloseSend() error {
	s.mu.Lock()
	s.closed = true
	current, over := s.current, s.over != nil
	s.mu.Unlock()
	if over {
		return nil //nolint:nilerr // there is nothing left to close; receiving tells the error
	}
	return current.CloseSend()
}

func (s *stream) RecvMsg(m any) error {
	for {
		s.mu.Lock()
		if s.over != nil {
			defer s.mu.Unlock()
			return s.over
		}
		current := s.current
		s.mu.Unlock()

		err := current.RecvMsg(m) // without the lock: a stream may be silent for long
		if again := s.received(current, err); !again {
			return s.told(err)
		}
	}
}

// received takes what an attempt's stream said, and reports whether there is another one to ask.
func (s *stream) received(from grpc.ClientStream, err error) (again bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.over != nil:
		return false
	case from != s.current:
		return true // somebody else began anew meanwhile
	case err == nil:
		s.commit()
		return false
	case s.committed:
		s.over = err
		s.finish()
		return false
	case errors.Is(err, io.EOF):
		s.commit()
		s.over = io.EOF
		s.finish()
		return false
	}
	s.end.err, s.end.trailer = err, from.Trailer()
	if header, headerErr := from.Header(); headerErr == nil {
		s.end.header = header
	}
	s.calls.Done(err, s.end.word(), s.end.decide(s.idempotent))
	return s.begin(err) == nil
}

// told is what the caller gets to hear: how the call ended, rather than one of its attempts.
func (s *stream) told(err error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil && s.over != nil {
		return s.over
	}
	return err
}

// Header commits the stream: what the caller has seen cannot be taken back.
func (s *stream) Header() (metadata.MD, error) {
	for {
		s.mu.Lock()
		current, over, committed := s.current, s.over, s.committed
		s.mu.Unlock()
		if over != nil && !committed {
			return nil, over
		}
		header, err := current.Header()
		if err == nil && header != nil { // nil: the stream ended with its trailers
			s.mu.Lock()
			if current == s.current {
				s.commit()
			}
			s.mu.Unlock()
			return header, nil
		}
		if committed {
			return header, err
		}
		// It ended without headers; receiving says how, and begins anew if it may.
		if end := current.RecvMsg(nil); !s.received(current, end) {
			return header, s.told(end)
		}
	}
}

func (s *stream) Trailer() metadata.MD {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.current == nil {
		return nil
	}
	return s.current.Trailer()
}

// Context is the current attempt's.
func (s *stream) Context() context.Context {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.current.Context()
}
