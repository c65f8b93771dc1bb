package sharedbreaker

import (
	"context"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/retryplane/retryplane/internal/keyspace"
	"github.com/retryplane/retryplane/internal/redistest"
	"github.com/retryplane/retryplane/internal/script"
	"github.com/retryplane/retryplane/pkg/policy"
)

const dep = "payments"

var group = keyspace.Group(dep)

// rig is a store with Boards on it.
type rig struct {
	*redistest.Server
	*Board
	rdb *redis.Client

	mu      sync.Mutex
	elapsed time.Duration // only of a store whose clock stands still
}

func each(t *testing.T, fn func(t *testing.T, r *rig)) {
	t.Helper()
	t.Parallel()
	redistest.Each(t, func(t *testing.T, srv *redistest.Server) { fn(t, newRig(t, srv)) })
}

// embedded is for what takes more time than a test may wait.
func embedded(t *testing.T) *rig {
	t.Helper()
	t.Parallel()
	return newRig(t, redistest.Embedded(t))
}

func newRig(t testing.TB, srv *redistest.Server) *rig {
	t.Helper()
	r := &rig{Server: srv, rdb: srv.Client(t)}
	r.Board = r.board(t)
	return r
}

// board returns another replica's Board on the same store.
func (r *rig) board(t testing.TB) *Board {
	b := New(r.Client(t))
	b.draw = func() float64 { return 0.5 }
	b.now = r.clock
	return b
}

// clock runs as the store's does.
func (r *rig) clock() time.Time {
	r.mu.Lock()
	defer r.mu.Unlock()
	return time.Now().Add(r.elapsed)
}

func (r *rig) elapse(d time.Duration) {
	r.mu.Lock()
	if r.Embedded != nil {
		r.elapsed += d
	}
	r.mu.Unlock()
	r.Elapse(d)
}

func (r *rig) observe(t testing.TB, reports ...Report) Standing {
	t.Helper()
	s, err := r.Observe(t.Context(), group, reports)
	if err != nil {
		t.Fatalf("Observe: %v", err)
	}
	if len(s) != len(reports) {
		t.Fatalf("Observe returned %d standings for %d reports", len(s), len(reports))
	}
	return s[0]
}

// read returns dep as everybody reads it.
func (r *rig) read(t testing.TB) (Standing, bool) {
	t.Helper()
	g, err := r.Read(t.Context(), group)
	if err != nil {
		t.Fatalf("Read: %v", err)
	}
	for _, s := range g.Standings {
		if s.Name == dep {
			return s, true
		}
	}
	return Standing{}, false
}

func (r *rig) advance(t testing.TB) []Transition {
	t.Helper()
	made, err := r.Advance(t.Context(), group, func(string) policy.BreakerPolicy { return quick() })
	if err != nil {
		t.Fatalf("Advance: %v", err)
	}
	return made
}

func (r *rig) log(t testing.TB) []Transition {
	t.Helper()
	all, err := r.Transitions(t.Context(), group, "", 1000, dep)
	if err != nil {
		t.Fatalf("Transitions: %v", err)
	}
	return all
}

// causes are the causes in the log, oldest first.
func causes(log []Transition) string {
	var words []string
	for i := range log {
		words = append(words, string(log[len(log)-1-i].Cause))
	}
	return strings.Join(words, " ")
}

// quick is the default policy at the pace of tests.
func quick() policy.BreakerPolicy {
	set := policy.Default().Breaker
	set.OpenFor, set.OpenJitter, set.RampStep = 100*time.Millisecond, 0, 100*time.Millisecond
	return set
}

// report is what a replica tells of instances that called dep under s, each with this share in the outcomes.
func report(s Standing, success, failure int64, instances ...string) Report {
	r := Report{Name: dep, Policy: quick(), ProbeLease: 30 * time.Second}
	if success+failure > 0 {
		r.Counts = []Counts{{Epoch: s.Epoch, Generation: s.Breaker.Generation, Success: success, Failure: failure}}
		r.Display = Display{Requests: success + failure, Attempts: success + failure, Success: success, Failure: failure}
	}
	for _, id := range instances {
		in := Instance{ID: id, Epoch: s.Epoch, Generation: s.Breaker.Generation}
		switch {
		case success+failure == 0:
		case 2*failure >= success+failure:
			in.Verdict = VerdictFailing
		default:
			in.Verdict = VerdictHealthy
		}
		r.Instances = append(r.Instances, in)
	}
	return r
}

func (r Report) with(set policy.BreakerPolicy) Report {
	r.Policy = set
	return r
}

func asking(r Report, ids ...string) Report {
	r.Asks = ids
	return r
}

func result(s Standing, p Permit, o policy.Outcome) Report {
	r := report(s, 0, 0)
	r.Probes = []Probe{{Token: p.Token, Instance: p.Instance, Epoch: s.Epoch, Generation: s.Breaker.Generation, Outcome: o}}
	return r
}

// granted are the permits among the answers.
func granted(s Standing) []Permit {
	var out []Permit
	for _, p := range s.Permits {
		if p.Token != "" {
			out = append(out, p)
		}
	}
	return out
}

// started registers dep and returns where it stands.
func (r *rig) started(t testing.TB) Standing {
	t.Helper()
	s := r.observe(t, report(Standing{}, 0, 0, "a", "b", "c", "d"))
	wantState(t, s, policy.Closed, 1)
	return s
}

// tripped opens the breaker: four instances out of four fail.
func (r *rig) tripped(t testing.TB, s Standing) Standing {
	t.Helper()
	opened := r.observe(t, report(s, 0, 40, "a", "b", "c", "d"))
	wantState(t, opened, policy.Open, s.Breaker.Generation+1)
	return opened
}

// probing lets the open time pass and the instances ask.
func (r *rig) probing(t testing.TB, s Standing, ids ...string) Standing {
	t.Helper()
	r.elapse(s.Breaker.Until.Sub(s.Now) + time.Millisecond)
	half := r.observe(t, asking(report(s, 0, 0), ids...))
	wantState(t, half, policy.HalfOpen, s.Breaker.Generation+1)
	return half
}

func wantState(t testing.TB, s Standing, state policy.State, generation int64) {
	t.Helper()
	if s.Breaker.State != state || s.Breaker.Generation != generation {
		t.Fatalf("breaker is %v, generation %d; want %v, generation %d",
			s.Breaker.State, s.Breaker.Generation, state, generation)
	}
}

// interfere calls fn once, before the next call of a script leaves the Board.
func interfere(b *Board, s script.Script, fn func()) {
	hook := &interference{hash: s.Hash(), fn: fn}
	b.rdb.AddHook(hook)
}

type interference struct {
	hash string
	once sync.Once
	fn   func()
}

func (i *interference) DialHook(next redis.DialHook) redis.DialHook {
	return func(ctx context.Context, network, addr string) (net.Conn, error) { return next(ctx, network, addr) }
}

func (i *interference) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if args := cmd.Args(); len(args) > 1 && args[1] == i.hash {
			i.once.Do(i.fn)
		}
		return next(ctx, cmd)
	}
}

func (i *interference) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}
