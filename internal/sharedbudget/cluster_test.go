package sharedbudget

import (
	"context"
	"io"
	"net"
	"os/exec"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/retryplane/retryplane/internal/keyspace"
	"github.com/retryplane/retryplane/internal/redistest"
)

// TestCluster: on a Redis Cluster, which refuses scripts over several slots, every group can be drawn from.
func TestCluster(t *testing.T) {
	t.Parallel()
	addr := startCluster(t)
	c := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{addr}, ContextTimeoutEnabled: true})
	t.Cleanup(func() { _ = c.Close() })
	l := New(c)
	slots := map[int]int64{}
	for group := range keyspace.Groups {
		var draws []Draw
		for _, name := range names(group, 3) {
			draws = append(draws, Draw{Name: name, Deposits: 10, Want: 2, Budget: budget(100_000, 0)})
			slot, err := c.ClusterKeySlot(t.Context(), key(name)).Result()
			if err != nil {
				t.Fatal(err)
			}
			if len(draws) > 1 && slot != slots[group] {
				t.Errorf("group %d: %q lies in slot %d, others in %d", group, name, slot, slots[group])
			}
			slots[group] = slot
		}
		out, err := l.Draw(t.Context(), group, draws)
		if err != nil {
			t.Fatalf("group %d: %v", group, err)
		}
		for _, d := range out {
			if d.Granted != 1 || read(t, l, d.Name, draws[0].Budget) != d.Usage {
				t.Errorf("group %d: got %+v", group, d)
			}
			if err := l.Forget(t.Context(), d.Name); err != nil {
				t.Error(err)
			}
		}
	}
}

// TestSentOnce: go-redis repeats a command whose connection broke. A draw whose answer is lost was carried out, and
// must not be carried out again.
func TestSentOnce(t *testing.T) {
	t.Parallel()
	cluster := startCluster(t)
	single := redistest.Real(t).Addr
	for name, connect := range map[string]func(dial func(ctx context.Context, network, addr string) (net.Conn, error)) redis.UniversalClient{
		"one server": func(dial func(ctx context.Context, network, addr string) (net.Conn, error)) redis.UniversalClient {
			return redis.NewClient(&redis.Options{Addr: single, Dialer: dial, MaxRetries: 3})
		},
		"cluster": func(dial func(ctx context.Context, network, addr string) (net.Conn, error)) redis.UniversalClient {
			return redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{cluster}, Dialer: dial, MaxRedirects: 3})
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var lose atomic.Bool
			c := connect(func(ctx context.Context, network, addr string) (net.Conn, error) {
				conn, err := (&net.Dialer{Timeout: time.Second}).DialContext(ctx, network, addr)
				return lossy{conn, &lose}, err
			})
			t.Cleanup(func() { _ = c.Close() })
			l := New(c)
			d := Draw{Name: "a", Deposits: 10, Want: 1, Budget: budget(500_000, 0)}
			one(t, l, d)
			lose.Store(true)
			if out, err := l.Draw(t.Context(), keyspace.Group("a"), []Draw{d}); err == nil {
				t.Fatalf("got %+v although the answer was lost", out)
			}
			if lose.Load() {
				t.Fatal("nothing was lost")
			}
			if got := read(t, l, "a", d.Budget); got.Requests != 20 || got.Granted != 2 {
				t.Errorf("got %+v, want 20 requests and 2 granted", got)
			}
		})
	}
}

// lossy is a connection that breaks instead of delivering the next answer, when lose says so.
type lossy struct {
	net.Conn
	lose *atomic.Bool
}

func (c lossy) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if err == nil && c.lose.CompareAndSwap(true, false) {
		_ = c.Close()
		return 0, io.EOF
	}
	return n, err
}

// startCluster starts a Redis Cluster of one server and returns its address.
func startCluster(t *testing.T) string {
	t.Helper()
	port, bus := freePort(t), freePort(t) // by default the bus is at port + 10000, which may be none
	addr := net.JoinHostPort("127.0.0.1", port)
	cmd := exec.Command("redis-server", "--port", port, "--bind", "127.0.0.1", "--save", "", "--dir", t.TempDir(),
		"--cluster-enabled", "yes", "--cluster-port", bus, "--loglevel", "warning")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // reports the kill
	})
	c := redis.NewClient(&redis.Options{Addr: addr})
	defer func() { _ = c.Close() }()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		_ = c.ClusterAddSlotsRange(ctx, 0, 16383).Err() // once it answers; then it has them already
		if info, err := c.ClusterInfo(ctx).Result(); err == nil && strings.Contains(info, "cluster_state:ok") {
			return addr
		}
		select {
		case <-ctx.Done():
			t.Fatalf("the cluster on %s does not start", addr)
		case <-tick.C:
		}
	}
}

func freePort(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	_, port, err := net.SplitHostPort(l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	return port
}
