package sharedbreaker

import (
	"context"
	"fmt"
	"net"
	"os/exec"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/retryplane/retryplane/internal/keyspace"
	"github.com/retryplane/retryplane/internal/redistest"
	"github.com/retryplane/retryplane/pkg/policy"
)

func TestTransitionsAreReadInPages(t *testing.T) {
	each(t, func(t *testing.T, r *rig) {
		s := r.started(t)
		var err error
		for range 5 {
			if s, err = r.Reset(t.Context(), dep, "alice"); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := r.Transitions(t.Context(), group, "no id", 10, ""); !isNotFound(err) {
			t.Errorf("before nonsense: %v", err)
		}
		all, err := r.Transitions(t.Context(), group, "", 100, "")
		if err != nil || len(all) != 5 || all[0] != s.Transitions[0] {
			t.Fatalf("got %+v, %v", all, err)
		}
		for i, before := 0, ""; i < 5; i += 2 {
			page, err := r.Transitions(t.Context(), group, before, 2, dep)
			if err != nil {
				t.Fatal(err)
			}
			equal(t, page, all[i:min(i+2, 5)])
			before = page[len(page)-1].ID
		}
		if none, err := r.Transitions(t.Context(), group, "", 100, "another"); err != nil || len(none) != 0 {
			t.Errorf("of another dependency: %+v, %v", none, err)
		}
		if none, err := r.Transitions(t.Context(), group, all[4].ID, 100, ""); err != nil || len(none) != 0 {
			t.Errorf("before the first: %+v, %v", none, err)
		}
	})
}

func TestNotices(t *testing.T) {
	each(t, func(t *testing.T, r *rig) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		notices := r.Notices(ctx)
		await := func(what string) {
			t.Helper()
			// Nobody tells when the subscription is there, so say it until it is heard.
			tick := time.NewTicker(20 * time.Millisecond)
			defer tick.Stop()
			limit := time.After(10 * time.Second)
			for {
				select {
				case got, ok := <-notices:
					if !ok || got != group {
						t.Fatalf("%s: %d, %v", what, got, ok)
					}
					return
				case <-tick.C:
					r.force(t, maintenance, time.Hour)
				case <-limit:
					t.Fatalf("%s: none", what)
				}
			}
		}
		await("first")
		// A receiver that does not receive holds nobody up, and hears once of a group.
		for range 200 {
			r.force(t, maintenance, time.Hour)
			r.rdb.Publish(t.Context(), keyspace.Notice, "nonsense")
			r.rdb.Publish(t.Context(), keyspace.Notice, "64")
		}
		await("after a pause")
		if r.Embedded == nil {
			r.rdb.ClientKillByFilter(t.Context(), "TYPE", "pubsub")
			await("after a broken connection")
		}
		cancel()
		for range notices { // closes
		}
	})
}

func TestTransitionsAreNoticed(t *testing.T) {
	each(t, func(t *testing.T, r *rig) {
		sub := r.rdb.Subscribe(t.Context(), keyspace.Notice)
		defer func() { _ = sub.Close() }()
		if _, err := sub.Receive(t.Context()); err != nil {
			t.Fatal(err)
		}
		heard := func(what string) {
			t.Helper()
			m, err := sub.ReceiveTimeout(t.Context(), 5*time.Second)
			if err != nil {
				t.Fatalf("%s: %v", what, err)
			}
			if got, ok := m.(*redis.Message); !ok || got.Payload != fmt.Sprint(group) {
				t.Errorf("%s: %v", what, m)
			}
		}
		s := r.started(t)
		heard("new epoch")
		s = r.tripped(t, s)
		heard("trip")
		r.probing(t, s, "a")
		heard("probe")
		r.force(t, maintenance, time.Hour)
		heard("override")
		if _, err := r.PutPolicy(t.Context(), dep, `{}`, 0); err != nil {
			t.Fatal(err)
		}
		heard("policy")
	})
}

func TestScriptsFlushedUnderLoad(t *testing.T) {
	each(t, func(t *testing.T, r *rig) {
		s := r.started(t)
		ctx, stop := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		wg.Go(func() {
			flusher := r.Client(t)
			for ctx.Err() == nil {
				flusher.ScriptFlush(ctx)
			}
		})
		var calls sync.WaitGroup
		for i := range 4 {
			calls.Go(func() {
				for range 25 {
					_, err := r.Observe(t.Context(), group, []Report{report(s, 1, 0, fmt.Sprint("i-", i))})
					if err == nil {
						_, err = r.Read(t.Context(), group)
					}
					if err != nil {
						t.Error(err)
					}
				}
			})
		}
		calls.Wait()
		stop()
		wg.Wait()
		if read, _ := r.read(t); read.Window.Success != 100 {
			t.Errorf("counted %d, want 100", read.Window.Success)
		}
	})
}

// everything calls every method, to look at the keys that are used.
func (r *rig) everything(t *testing.T) {
	t.Helper()
	s := r.tripped(t, r.started(t))
	half := r.probing(t, s, "a", "b")
	for _, p := range granted(half) {
		r.observe(t, result(half, p, policy.Success).with(steep()))
	}
	r.force(t, maintenance, 5*time.Millisecond)
	r.elapse(310 * time.Millisecond)
	if made := r.advance(t); len(made) != 2 {
		t.Errorf("Advance made %+v", made)
	}
	for _, do := range []func() error{
		func() error { _, err := r.PutPolicy(t.Context(), dep, `{}`, 0); return err },
		func() error { return r.Restore(t.Context(), group, r.saved(t)) },
		func() error { _, err := r.Reset(t.Context(), dep, "alice"); return err },
		func() error { return r.DeletePolicy(t.Context(), dep, AnyRevision) },
		func() error { return r.Forget(t.Context(), dep) },
		func() error { _, err := r.NewEpoch(t.Context(), group); return err },
	} {
		if err := do(); err != nil {
			t.Error(err)
		}
	}
	r.log(t)
	r.started(t)
	r.force(t, maintenance, time.Hour)
}

func TestKeysOfACallShareASlot(t *testing.T) {
	each(t, func(t *testing.T, r *rig) {
		spy := &slots{t: t}
		r.Board.rdb.AddHook(spy)
		r.everything(t)
		if spy.calls < 20 {
			t.Errorf("only %d script calls seen", spy.calls)
		}
		keys, err := r.rdb.Keys(t.Context(), "*").Result()
		if err != nil || len(keys) < 8 {
			t.Fatalf("keys %v, %v", keys, err)
		}
		for _, k := range keys {
			if want := fmt.Sprintf("rp:{g%d}:", group); !strings.HasPrefix(k, want) {
				t.Errorf("key %q", k)
			}
			// Overrides and policies live for ever, everything else ends.
			ttl := r.rdb.TTL(t.Context(), k).Val()
			kept := strings.HasSuffix(k, ":ovr") || strings.HasSuffix(k, ":pol")
			if kept != (ttl < 0) {
				t.Errorf("%q lives for %v", k, ttl)
			}
		}
	})
}

type slots struct {
	interference
	t     *testing.T
	calls int
}

var hashTag = regexp.MustCompile(`^rp:\{g\d+\}:`)

func (s *slots) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if args := cmd.Args(); strings.HasPrefix(cmd.Name(), "eval") {
			s.calls++
			for _, k := range args[3 : 3+args[2].(int)] {
				if tag := hashTag.FindString(k.(string)); tag != hashTag.FindString(args[3].(string)) || tag == "" {
					s.t.Errorf("%v uses %q beside %q", cmd.Name(), k, args[3])
				}
			}
		}
		return next(ctx, cmd)
	}
}

// A real cluster refuses what a single Redis lets pass.
func TestCluster(t *testing.T) {
	t.Parallel()
	port := freePort(t)
	cmd := exec.Command("redis-server", "--port", port, "--bind", "127.0.0.1", "--save", "", "--cluster-enabled", "yes",
		"--cluster-port", freePort(t), "--dir", t.TempDir(), "--loglevel", "warning")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	node := redis.NewClient(&redis.Options{Addr: "127.0.0.1:" + port, MaxRetries: -1})
	defer func() { _ = node.Close() }()
	until(t, func() bool { return node.Ping(t.Context()).Err() == nil })
	if err := node.ClusterAddSlotsRange(t.Context(), 0, 16383).Err(); err != nil {
		t.Fatal(err)
	}
	until(t, func() bool { return strings.Contains(node.ClusterInfo(t.Context()).Val(), "cluster_state:ok") })

	cluster := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{"127.0.0.1:" + port}, MaxRedirects: -1})
	defer func() { _ = cluster.Close() }()
	r := &rig{Server: &redistest.Server{Elapse: time.Sleep}, Board: New(cluster), rdb: node}
	r.draw = func() float64 { return 0.5 }
	r.everything(t)
	notices := r.Notices(t.Context())
	until(t, func() bool {
		r.force(t, maintenance, time.Hour)
		select {
		case <-notices:
			return true
		default:
			return false
		}
	})
}

func freePort(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	_, port, _ := net.SplitHostPort(l.Addr().String()) // it just came from there
	return port
}

func until(t *testing.T, fn func() bool) {
	t.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	limit := time.After(15 * time.Second)
	for !fn() {
		select {
		case <-tick.C:
		case <-limit:
			t.Fatal("in vain")
		}
	}
}
