// Package walls_test holds the floor plan: which room may use which. The same walls stand in .golangci.yml, where they
// show in the editor; here they stand for everybody who runs the tests.
package walls_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
)

const module = "github.com/retryplane/retryplane"

// floorPlan names every room and the rooms that it may import. Arrows only go down. A new room needs a line here.
var floorPlan = map[string][]string{
	"pkg/policy": {},
	"pkg/wire":   {"pkg/policy"},
	"pkg/client": {"pkg/policy", "pkg/wire"},

	"pkg/client/grpcretry":  {"pkg/client", "pkg/policy"},
	"pkg/client/otel":       {"pkg/client"},
	"pkg/client/prometheus": {"pkg/client", "pkg/policy"},

	"internal/keyspace":      {},
	"internal/script":        {},
	"internal/simulation":    {},
	"internal/sharedbreaker": {"internal/keyspace", "internal/script", "pkg/policy"},
	"internal/sharedbudget":  {"internal/keyspace", "internal/script", "pkg/policy"},
	"internal/exchange":      {"internal/sharedbreaker", "internal/sharedbudget", "internal/keyspace", "pkg/policy", "pkg/wire"},
	"internal/api":           {"internal/exchange", "pkg/policy", "pkg/wire"},

	"web":              {},
	"cmd/controlplane": {"internal/api", "internal/exchange", "internal/sharedbreaker", "internal/sharedbudget", "web", "pkg/policy", "pkg/wire"},
	"cmd/agent":        {"pkg/client", "pkg/policy", "pkg/wire"},
	"cmd/demo":         {"internal/simulation", "pkg/client", "pkg/policy"},
}

// workshops are packages that only tests need. No room imports them.
var workshops = []string{"internal/redistest", "internal/storm", "internal/walls", "charts"}

// keepers says which rooms may import a module directly. Modules that are not named here belong to tests.
var keepers = map[string][]string{
	"github.com/gin-gonic/gin":            {"internal/api"},
	"github.com/redis/go-redis/v9":        {"internal/script", "internal/script", "internal/sharedbreaker", "internal/sharedbudget", "cmd/controlplane"},
	"github.com/alicebob/miniredis/v2":    {"cmd/controlplane"},
	"github.com/prometheus/client_golang": {"internal/api", "cmd/controlplane", "pkg/client/prometheus"},
	"go.opentelemetry.io/otel/attribute":  {"pkg/client/otel"},
	"google.golang.org/grpc":              {"pkg/client/grpcretry"},
	"google.golang.org/genproto":          {"pkg/client/grpcretry"},
	"google.golang.org/protobuf":          {"pkg/client/grpcretry"},
	"github.com/hashicorp/golang-lru/v2":  {"pkg/client", "internal/exchange"},
	"github.com/mattn/go-isatty":          {"cmd/demo"},
	"github.com/alecthomas/kong":          {"cmd/controlplane", "cmd/agent", "cmd/demo"},
	"go.yaml.in/yaml/v3":                  {"cmd/controlplane"},
}

// pkg is what go list says of a package.
type pkg struct {
	ImportPath                               string
	Standard                                 bool
	Imports, TestImports, XTestImports, Deps []string
}

// room is the path inside the module.
func (p *pkg) room() string { return room(p.ImportPath) }

func room(path string) string { return strings.TrimPrefix(path, module+"/") }

func own(path string) bool { return strings.HasPrefix(path, module+"/") }

// standard reports whether path belongs to the standard library: its first element has no dot, or it is vendored there.
func standard(path string) bool {
	first, _, _ := strings.Cut(path, "/")
	return !strings.Contains(first, ".")
}

// packages lists the module's packages, once for all tests.
var packages = sync.OnceValues(func() (map[string]*pkg, error) {
	cmd := exec.Command("go", "list", "-json=ImportPath,Standard,Imports,TestImports,XTestImports,Deps", module+"/...")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, errors.New("go list: " + err.Error() + ": " + stderr.String())
	}
	all := map[string]*pkg{}
	for d := json.NewDecoder(bytes.NewReader(out)); ; {
		p := &pkg{}
		if err := d.Decode(p); errors.Is(err, io.EOF) {
			return all, nil
		} else if err != nil {
			return nil, err
		}
		all[p.room()] = p
	}
})

func list(t *testing.T) map[string]*pkg {
	t.Helper()
	all, err := packages()
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func TestRoomsAreThoseOfTheFloorPlan(t *testing.T) {
	t.Parallel()
	all := list(t)
	for name := range floorPlan {
		if all[name] == nil {
			t.Errorf("the floor plan has the room %s, the module has not", name)
		}
	}
	for name := range all {
		if _, ok := floorPlan[name]; !ok && !slices.Contains(workshops, name) {
			t.Errorf("%s is in no floor plan: give it a line", name)
		}
	}
}

func TestArrowsGoDown(t *testing.T) {
	t.Parallel()
	for name, p := range list(t) {
		allowed, ok := floorPlan[name]
		if !ok {
			continue
		}
		for _, i := range p.Imports {
			if own(i) && !slices.Contains(allowed, room(i)) {
				t.Errorf("%s must not import %s", name, room(i))
			}
		}
	}
}

// TestStoresDoNotKnowEachOther: not even in their tests.
func TestStoresDoNotKnowEachOther(t *testing.T) {
	t.Parallel()
	all := list(t)
	for a, b := range map[string]string{"internal/sharedbreaker": "internal/sharedbudget", "internal/sharedbudget": "internal/sharedbreaker"} {
		if p := all[a]; p != nil && slices.Contains(slices.Concat(p.Deps, p.TestImports, p.XTestImports), module+"/"+b) {
			t.Errorf("%s must not know %s", a, b)
		}
	}
}

// TestPublicPackagesStandAlone: whoever imports pkg/* gets nothing of the server, however deep.
func TestPublicPackagesStandAlone(t *testing.T) {
	t.Parallel()
	for name, p := range list(t) {
		if !strings.HasPrefix(name, "pkg/") {
			continue
		}
		for _, d := range p.Deps {
			if strings.HasPrefix(d, module+"/internal/") {
				t.Errorf("%s must not depend on %s", name, room(d))
			}
		}
	}
}

func TestModulesHaveKeepers(t *testing.T) {
	t.Parallel()
	for name, p := range list(t) {
		if slices.Contains(workshops, name) {
			continue
		}
		for _, i := range p.Imports {
			if own(i) || standard(i) {
				continue
			}
			kept := false
			for m, rooms := range keepers {
				if i == m || strings.HasPrefix(i, m+"/") {
					kept = slices.Contains(rooms, name)
				}
			}
			if !kept {
				t.Errorf("%s must not import %s", name, i)
			}
		}
	}
}

// TestClientIsThin: what it brings into other people's programs, however deep.
func TestClientIsThin(t *testing.T) {
	t.Parallel()
	p := list(t)["pkg/client"]
	if p == nil {
		t.Fatal("pkg/client is missing")
	}
	for _, d := range p.Deps {
		switch {
		case standard(d), strings.HasPrefix(d, "github.com/hashicorp/golang-lru/v2"):
		case d == module+"/pkg/policy", d == module+"/pkg/wire":
		default:
			t.Errorf("pkg/client must not depend on %s", d)
		}
	}
}

// TestAttributesAreSmall: whoever wants attributes gets no SDK, no tracer and no exporter with them.
func TestAttributesAreSmall(t *testing.T) {
	t.Parallel()
	p := list(t)["pkg/client/otel"]
	if p == nil {
		t.Fatal("pkg/client/otel is missing")
	}
	thin := list(t)["pkg/client"]
	for _, d := range p.Deps {
		switch {
		case standard(d), own(d), slices.Contains(thin.Deps, d):
		case strings.HasPrefix(d, "go.opentelemetry.io/otel/attribute"), d == "github.com/cespare/xxhash/v2": // its hash
		default:
			t.Errorf("pkg/client/otel must not depend on %s", d)
		}
	}
}

// TestPolicyIsPure: it gets its time and its dice as arguments and touches nothing. net/http is there for Header.
func TestPolicyIsPure(t *testing.T) {
	t.Parallel()
	p := list(t)["pkg/policy"]
	if p == nil {
		t.Fatal("pkg/policy is missing")
	}
	banned := []string{"bufio", "context", "crypto/rand", "database/sql", "io", "log", "math/rand", "net", "os", "plugin", "sync", "syscall", "testing"}
	for _, i := range p.Imports {
		if i == "net/http" || i == "net/url" || i == "net/netip" || i == "net/textproto" {
			continue
		}
		for _, b := range banned {
			if i == b || strings.HasPrefix(i, b+"/") {
				t.Errorf("pkg/policy must not import %s", i)
			}
		}
		if !standard(i) {
			t.Errorf("pkg/policy must not import %s", i)
		}
	}
}
