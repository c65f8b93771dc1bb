// Package redistest gives tests the Redis servers they run on: the embedded one, and a real redis-server that it
// starts on a free port. An absent redis-server fails the test; it never skips.
package redistest

import (
	"context"
	"fmt"
	"net"
	"os/exec"
	"strconv"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
)

// Server is a Redis server of one test.
type Server struct {
	Addr string
	// Elapse lets the time pass on a server whose clock stands still, and waits on one whose clock runs.
	Elapse func(time.Duration)
	// Embedded is the server itself when it is the embedded one, else nil.
	Embedded *miniredis.Miniredis

	cmd *exec.Cmd
	dir string
}

// Each runs fn as two subtests: on the embedded store and on a real redis-server.
func Each(t *testing.T, fn func(t *testing.T, srv *Server)) {
	t.Helper()
	t.Run("embedded", func(t *testing.T) { fn(t, Embedded(t)) })
	t.Run("redis", func(t *testing.T) { fn(t, Real(t)) })
}

// Embedded starts the embedded store. Its clock stands still until Elapse is called.
func Embedded(t testing.TB) *Server {
	t.Helper()
	m := miniredis.NewMiniRedis()
	if err := m.Start(); err != nil {
		t.Fatalf("start the embedded store: %v", err)
	}
	t.Cleanup(m.Close)
	now := time.Now().Truncate(time.Millisecond)
	m.SetTime(now)
	return &Server{Addr: m.Addr(), Embedded: m, Elapse: func(d time.Duration) {
		now = now.Add(d)
		m.SetTime(now)
		m.FastForward(d)
	}}
}

// Real starts a redis-server on a free port of the loopback interface, without persistence.
func Real(t testing.TB) *Server {
	t.Helper()
	path, err := exec.LookPath("redis-server")
	if err != nil {
		t.Fatalf("these tests need redis-server (make test installs it): %v", err)
	}
	s := &Server{Addr: freeAddr(t), dir: t.TempDir(), Elapse: time.Sleep}
	s.start(t, path)
	t.Cleanup(func() { s.Kill(t) })
	return s
}

// Kill ends a real server at once, as a crash does.
func (s *Server) Kill(t testing.TB) {
	t.Helper()
	if s.cmd == nil {
		return
	}
	_ = s.cmd.Process.Kill()
	_ = s.cmd.Wait() // reports the kill
	s.cmd = nil
}

// Restart starts a killed real server again on its old port, with nothing in it.
func (s *Server) Restart(t testing.TB) {
	t.Helper()
	path, err := exec.LookPath("redis-server")
	if err != nil {
		t.Fatalf("find redis-server: %v", err)
	}
	s.start(t, path)
}

// Pid is the process of a real server, for signals.
func (s *Server) Pid() int { return s.cmd.Process.Pid }

// Client returns a client of the server that closes with the test.
func (s *Server) Client(t testing.TB) *redis.Client {
	t.Helper()
	c := redis.NewClient(&redis.Options{
		Addr: s.Addr, ContextTimeoutEnabled: true, MaxRetries: -1, DialerRetries: 1,
		DialTimeout: 10 * time.Second, ReadTimeout: 10 * time.Second, WriteTimeout: 10 * time.Second, // tests share the machine
	})
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func (s *Server) start(t testing.TB, path string) {
	t.Helper()
	_, port, err := net.SplitHostPort(s.Addr)
	if err != nil {
		t.Fatalf("address of the server: %v", err)
	}
	s.cmd = exec.Command(path, "--port", port, "--bind", "127.0.0.1", "--save", "", "--appendonly", "no",
		"--dir", s.dir, "--loglevel", "warning")
	if err := s.cmd.Start(); err != nil {
		t.Fatalf("start redis-server: %v", err)
	}
	if err := s.awaitPing(10 * time.Second); err != nil {
		t.Fatalf("redis-server on %s: %v", s.Addr, err)
	}
}

func (s *Server) awaitPing(limit time.Duration) error {
	c := redis.NewClient(&redis.Options{Addr: s.Addr, MaxRetries: -1, DialTimeout: time.Second})
	defer func() { _ = c.Close() }()
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		err := c.Ping(ctx).Err()
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("no answer within %s: %w", limit, err)
		case <-tick.C:
		}
	}
}

func freeAddr(t testing.TB) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatalf("find a free port: %v", err)
	}
	defer func() { _ = l.Close() }()
	return net.JoinHostPort("127.0.0.1", strconv.Itoa(l.Addr().(*net.TCPAddr).Port))
}
