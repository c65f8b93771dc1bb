package policy_test

import (
	"net/http"
	"reflect"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/retryplane/retryplane/pkg/policy"
)

func TestParseRetryContext(t *testing.T) {
	t.Parallel()
	shop := policy.RetryLayer{Name: "shop", ID: "k3j9", Attempt: 2, Most: 3, Remaining: 1500 * time.Millisecond}
	cart := policy.RetryLayer{Name: "cart", Attempt: 1, Most: 3}
	envoy := policy.RetryLayer{Name: "x-envoy-attempt-count", Attempt: 2, Most: 2}
	grpc := policy.RetryLayer{Name: "grpc-previous-rpc-attempts", Attempt: 2, Most: 2}
	for name, tc := range map[string]struct {
		header   http.Header
		want     policy.RetryContext
		bad      bool
		retrying bool
	}{
		"none":                    {header: http.Header{}},
		"one":                     {header: lines(`"shop";id="k3j9";a=2;m=3;d=1500`), want: policy.RetryContext{shop}, retrying: true},
		"two":                     {header: lines(`"shop";id="k3j9";a=2;m=3;d=1500, "cart";a=1;m=3`), want: policy.RetryContext{shop, cart}, retrying: true},
		"two lines":               {header: lines(`cart;a=1;m=3`, ` "cart" ;a=1;m=3`), bad: true}, // a blank before ';'
		"two good lines":          {header: lines(`cart;a=1;m=3`, `"cart"; a=1; m=3`), want: policy.RetryContext{cart, cart}},
		"unknown parameters":      {header: lines(`cart;x;y=?1;z=-1.5;w=:aGk=:;v="a\"b";u=t/k;a=1;m=3`), want: policy.RetryContext{cart}},
		"no attempt":              {header: lines(`cart;m=3`), bad: true},
		"attempt of zero":         {header: lines(`cart;a=0;m=3`), bad: true},
		"negative":                {header: lines(`cart;a=-1;m=3`), bad: true},
		"a fraction":              {header: lines(`cart;a=1.5;m=3`), bad: true},
		"a number as a string":    {header: lines(`cart;a="2";m=3`), bad: true},
		"a huge number":           {header: lines(`cart;a=9999999999;m=3`), bad: true},
		"not closed":              {header: lines(`"cart;a=1;m=3`), bad: true},
		"trailing comma":          {header: lines(`cart;a=1;m=3,`), bad: true},
		"an inner list":           {header: lines(`(cart);a=1;m=3`), bad: true},
		"not ASCII":               {header: lines("\"c\u00e4rt\";a=1;m=3"), bad: true},
		"nine layers":             {header: lines(strings.Repeat(`c;a=1;m=3,`, 8) + `c;a=1;m=3`), bad: true},
		"too long":                {header: lines(`cart;a=1;m=3;x="` + strings.Repeat("x", 512) + `"`), bad: true},
		"a name too long":         {header: lines(strings.Repeat("c", 65) + `;a=1;m=3`), bad: true},
		"envoy's first":           {header: http.Header{"X-Envoy-Attempt-Count": {"1"}}},
		"envoy's second":          {header: http.Header{"X-Envoy-Attempt-Count": {"2"}}, want: policy.RetryContext{envoy}, retrying: true},
		"gRPC's first":            {header: http.Header{"Grpc-Previous-Rpc-Attempts": {"0"}}},
		"gRPC's second":           {header: http.Header{"Grpc-Previous-Rpc-Attempts": {"1"}}, want: policy.RetryContext{grpc}, retrying: true},
		"envoy's nonsense":        {header: http.Header{"X-Envoy-Attempt-Count": {"0x2"}}, bad: true},
		"nonsense beside a layer": {header: http.Header{"Retry-Context": {"?"}, "X-Envoy-Attempt-Count": {"2"}}, want: policy.RetryContext{envoy}, bad: true, retrying: true},
	} {
		got, ok := policy.ParseRetryContext(tc.header)
		if !reflect.DeepEqual(got, tc.want) || ok == tc.bad || got.Retrying() != tc.retrying {
			t.Errorf("%s: got %+v, well-formed %v, retrying %v", name, got, ok, got.Retrying())
		}
	}
}

func lines(of ...string) http.Header { return http.Header{policy.RetryContextHeader: of} }

func layers() *rapid.Generator[policy.RetryContext] {
	text := rapid.StringMatching(`[ -~]{1,64}`)
	layer := rapid.Custom(func(t *rapid.T) policy.RetryLayer {
		return policy.RetryLayer{
			Name: text.Draw(t, "name"), ID: text.Draw(t, "id"), Attempt: rapid.IntRange(1, 20).Draw(t, "a"), Most: rapid.IntRange(1, 20).Draw(t, "m"),
			Remaining: time.Duration(rapid.IntRange(0, 3_600_000).Draw(t, "d")) * time.Millisecond,
		}
	})
	return rapid.Custom(func(t *rapid.T) policy.RetryContext {
		var c policy.RetryContext
		for range rapid.IntRange(1, 20).Draw(t, "layers") {
			c = c.With(layer.Draw(t, "layer"))
		}
		return c
	})
}

// TestRetryContextComesBack: what a layer writes, the next one reads, however many there are; and none of them loses
// that somebody is retrying.
func TestRetryContextComesBack(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		c := layers().Draw(t, "context")
		value := c.String()
		got, ok := policy.ParseRetryContext(lines(value))
		if !ok || !reflect.DeepEqual(got, c) {
			t.Fatalf("%q came back as %+v", value, got)
		}
		own := policy.RetryLayer{Name: "own\u00fc", Attempt: rapid.IntRange(1, 3).Draw(t, "own"), Most: 3}
		next := c.With(own)
		if next.Retrying() != (c.Retrying() || own.Attempt > 1) || next[len(next)-1].Name != "own?" {
			t.Fatalf("%+v became %+v", c, next)
		}
		if len(next) > policy.MaxRetryLayers || len(next.String()) > policy.MaxRetryContext {
			t.Fatalf("over the limits: %q", next)
		}
	})
}

// FuzzRetryContext: no header harms, and none makes more than one retry of it where there was none to begin with.
func FuzzRetryContext(f *testing.F) {
	for _, seed := range []string{`"shop";id="k3j9";a=2;m=3;d=1500, cart;a=1;m=3`, `c;a=1;m=1;x=?0;y=:aa:`, `"a\"b";a=2;m=3`, `,`, `;`} {
		f.Add(seed, "2", "1")
	}
	f.Fuzz(func(t *testing.T, value, envoy, grpc string) {
		h := http.Header{"Retry-Context": {value}, "X-Envoy-Attempt-Count": {envoy}, "Grpc-Previous-Rpc-Attempts": {grpc}}
		c, _ := policy.ParseRetryContext(h)
		if len(c) > policy.MaxRetryLayers {
			t.Fatalf("%d layers", len(c))
		}
		for _, l := range c {
			if l.Attempt < 1 || l.Most < 1 || l.Remaining < 0 || len(l.Name) > 64 || len(l.ID) > 64 {
				t.Fatalf("a layer out of bounds: %+v", l)
			}
		}
		p := policy.Default().Retry
		call := policy.Call{Attempts: 1, Verdict: policy.Verdict{Action: policy.Retry, Outcome: policy.Failure}, Replayable: true, BreakerClosed: true}
		call.OuterRetrying = c.Retrying()
		if _, reason := p.Next(call); c.Retrying() && reason != policy.StopLayer {
			t.Fatalf("a retry of a retry: %q", reason)
		}
		if again, ok := policy.ParseRetryContext(lines(c.With(policy.RetryLayer{Name: "own", Attempt: 1, Most: 3}).String())); !ok || again.Retrying() != c.Retrying() {
			t.Fatalf("%+v does not come back: %+v", c, again)
		}
	})
}

// TestRetryStatus: what we say is what we heed.
func TestRetryStatus(t *testing.T) {
	t.Parallel()
	s := policy.RetryStatus{Dependency: "billing/invoices", Attempts: 3, Reason: policy.StopAttempts}
	if want := `exhausted;dependency="billing/invoices";attempts=3;reason="attempts"`; s.String() != want {
		t.Errorf("got %s, want %s", s, want)
	}
	if !policy.Vetoed(http.Header{policy.RetryStatusHeader: {s.String()}}) {
		t.Error("not heeded")
	}
}
