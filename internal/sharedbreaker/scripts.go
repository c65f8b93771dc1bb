package sharedbreaker

import (
	_ "embed"
	"errors"
	"fmt"
	"strconv"

	"github.com/redis/go-redis/v9"

	"github.com/retryplane/retryplane/internal/keyspace"
	"github.com/retryplane/retryplane/internal/script"
)

var (
	//go:embed board.lua
	boardLua string
	//go:embed observe.lua
	observeLua string
	//go:embed evidence.lua
	evidenceLua string
	//go:embed commit.lua
	commitLua string
	//go:embed probe.lua
	probeLua string
	//go:embed override.lua
	overrideLua string
	//go:embed policy.lua
	policyLua string
	//go:embed restore.lua
	restoreLua string
	//go:embed read.lua
	readLua string
	//go:embed advance.lua
	advanceLua string
	//go:embed forget.lua
	forgetLua string
	//go:embed epoch.lua
	epochLua string
	//go:embed series.lua
	seriesLua string
	//go:embed chains.lua
	chainsLua string
	//go:embed clock.lua
	clockLua string
)

var (
	observeScript  = onBoard(observeLua)
	evidenceScript = onBoard(evidenceLua)
	commitScript   = onBoard(commitLua)
	probeScript    = onBoard(probeLua)
	overrideScript = onBoard(overrideLua)
	policyScript   = onBoard(policyLua)
	restoreScript  = onBoard(restoreLua)
	readScript     = onBoard(readLua)
	advanceScript  = onBoard(advanceLua)
	forgetScript   = onBoard(forgetLua)
	epochScript    = onBoard(epochLua)
	seriesScript   = onBoard(seriesLua)
	chainsScript   = onBoard(chainsLua)
	clockScript    = onBoard(clockLua)
)

func onBoard(source string) script.Script {
	return script.New("local NOTICE = " + strconv.Quote(keyspace.Notice) + "\n" + boardLua + source)
}

// keys are the names of a group's keys, made once: every call needs them.
type keys struct{ epoch, deps, overrides, policies, log, due string }

var groupKeys = func() (all [keyspace.Groups]keys) {
	for g := range all {
		all[g] = keys{
			epoch: keyspace.Key(g, "epoch"), deps: keyspace.Key(g, "deps"),
			overrides: keyspace.Key(g, "ovr"), policies: keyspace.Key(g, "pol"),
			log: keyspace.Key(g, "log"), due: keyspace.Key(g, "due"),
		}
	}
	return all
}()

func stateKey(name string) string   { return keyspace.DependencyKey("s", name) }
func permitsKey(name string) string { return keyspace.DependencyKey("p", name) }
func sampleKey(name string) string  { return keyspace.DependencyKey("i", name) }
func displayKey(name string) string { return keyspace.DependencyKey("v", name) }
func historyKey(name string) string { return keyspace.DependencyKey("h", name) }

// reply reads what a script returned, value by value. Its first mistake sticks: every later value is zero, and err
// tells of it.
type reply struct {
	values []any
	err    error
}

func newReply(cmd *redis.Cmd) *reply {
	values, err := cmd.Slice()
	return &reply{values, err}
}

func (r *reply) next() any {
	if r.err == nil && len(r.values) == 0 {
		r.err = errors.New("a script returned too little")
	}
	if r.err != nil {
		return nil
	}
	v := r.values[0]
	r.values = r.values[1:]
	return v
}

func (r *reply) text() string {
	switch v := r.next().(type) {
	case string:
		return v
	case int64:
		return strconv.FormatInt(v, 10)
	case nil:
	default:
		r.fail(v)
	}
	return ""
}

// int reads a whole number, 0 for "".
func (r *reply) int() int64 { return integer(r.text()) }

// list reads a list as a reply of its own.
func (r *reply) list() *reply {
	switch v := r.next().(type) {
	case []any:
		return &reply{v, nil}
	case nil:
	default:
		r.fail(v)
	}
	return &reply{}
}

func (r *reply) texts() []string {
	l := r.list()
	out := make([]string, len(l.values))
	for i := range out {
		out[i] = l.text()
	}
	if l.err != nil {
		r.err = l.err
	}
	return out
}

func (r *reply) more() bool { return r.err == nil && len(r.values) > 0 }

func (r *reply) fail(v any) {
	if r.err == nil {
		r.err = fmt.Errorf("a script returned %T where something else was due", v)
	}
}
