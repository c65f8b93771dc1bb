package web_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp/kb"

	"github.com/retryplane/retryplane/internal/api"
	"github.com/retryplane/retryplane/pkg/wire"
)

// TestDashboard looks at the dashboard through a real browser, on a real control plane. Its parts share the browser and
// run one after the other, because some of them measure.
func TestDashboard(t *testing.T) {
	browser := newBrowser(t)
	for _, part := range []struct {
		name string
		run  func(*testing.T, context.Context)
	}{
		{"WatchesABreakerOpen", watchesABreakerOpen},
		{"ForcesOpenByKeyboard", forcesOpenByKeyboard},
		{"KeepsWhatWasTyped", keepsWhatWasTyped},
		{"PaintsManyDependencies", paintsManyDependencies},
		{"AsksForAToken", asksForAToken},
		{"SaysWhenItIsStale", saysWhenItIsStale},
	} {
		t.Run(part.name, func(t *testing.T) { part.run(t, browser) })
	}
}

// sight is what the witness saw of a dependency.
type sight struct {
	Generation int64   `json:"generation"`
	State      string  `json:"state"`
	At         float64 `json:"at"` // ms since 1970
}

func watchesABreakerOpen(t *testing.T, browser context.Context) {
	const name = "payments/charge"
	p := newPlane(t, nil)
	// Many short episodes, so that there are many transitions to measure.
	p.ask(t, http.MethodPut, "/v1/dependencies/payments%2Fcharge/policy", map[string]any{
		"breaker": map[string]any{"open_for_ms": 300, "open_max_ms": 600, "open_jitter_ppm": 0, "local_failures": 0, "ramp_ppm": []int{}},
	}, nil)
	f := newFleet(t, p, name, 6, 30)
	b := newTab(t, browser)
	b.open(p.url)
	b.await("the row is there, and closed", fmt.Sprintf(`document.querySelector('%s')?.dataset.state === "closed"`, row(name)))

	f.down.Store(true)
	b.await("the row says open", fmt.Sprintf(`document.querySelector('%s .word').textContent === "Open"`, row(name)))
	b.hasNoBarrier("the fleet with an open breaker")
	if got := eval[string](b, "document.title"); !strings.HasPrefix(got, "(1)") {
		t.Errorf("got the title %q, want it to count the open breaker", got)
	}

	const least = 24
	var log []wire.Transition
	limit := time.Now().Add(90 * time.Second)
	for down := true; len(log) < least; log = p.transitions(t, name) {
		if time.Now().After(limit) {
			t.Fatalf("got %d transitions, want %d", len(log), least)
		}
		time.Sleep(1200 * time.Millisecond) // the length of an outage, and of the calm between two
		down = !down
		f.down.Store(down)
	}
	b.await("the page has what the log has", fmt.Sprintf(`witness.seen[%q].at(-1).generation >= %d && witness.seen[%q].at(-1).at > 0`,
		name, log[len(log)-1].Generation, name))
	seen := eval[[]sight](b, fmt.Sprintf(`witness.seen[%q]`, name))
	latencies := make([]time.Duration, 0, len(log))
	for _, tr := range log {
		// A later generation shows this one too: two changes within one frame are painted as one.
		i := slices.IndexFunc(seen, func(s sight) bool { return s.Generation >= tr.Generation })
		if i < 0 {
			t.Fatalf("generation %d was never seen", tr.Generation)
		}
		latencies = append(latencies, time.UnixMicro(int64(seen[i].At*1000)).Sub(tr.At).Round(time.Millisecond))
	}
	slices.Sort(latencies)
	p95 := latencies[(len(latencies)*95+99)/100-1]
	t.Logf("from commit to page, %d transitions: median %v, p95 %v, longest %v", len(latencies), latencies[len(latencies)/2], p95, latencies[len(latencies)-1])
	if p95 > 500*time.Millisecond {
		t.Errorf("p95 from commit to page: got %v, want at most 500ms: %v", p95, latencies)
	}

	b.run(fmt.Sprintf(`document.querySelector('%s a').click()`, row(name)))
	b.await("the dependency's page lists the transitions", `document.querySelectorAll(".transitions li").length > 0`)
	b.await("and the attempts per request", `document.querySelectorAll(".histogram tbody tr").length === 5`)
	b.await("and the history, or that there is none", `document.querySelector(".history canvas, .history .hollow b")`)
	b.hasNoBarrier("a dependency")
}

func forcesOpenByKeyboard(t *testing.T, browser context.Context) {
	const name = "billing/invoices"
	p := newPlane(t, nil)
	f := newFleet(t, p, name, 3, 10)
	p.populate(t, 30)
	b := newTab(t, browser)
	b.open(p.url)
	b.await("the rows are there", `document.querySelectorAll("tr[data-name]").length > 10`)

	b.press("/")
	b.keys("invoices")
	b.await("only one row is left", `document.querySelectorAll("tr[data-name]").length === 1`)
	if got := eval[string](b, "location.hash"); got != "#/?q=invoices" {
		t.Errorf("got the address %q, want the search in it", got)
	}
	b.tabTo(`document.activeElement.closest("tr")?.dataset.name === "` + name + `"`)
	b.keys(kb.Enter)
	b.await("its page is open", `document.querySelector("h1")?.textContent === "`+name+`"`)
	b.await("the levers can be used", `document.querySelector(".levers button:not(:disabled)")`)
	b.tabTo(`document.activeElement.textContent === "Force open"`)
	b.keys(kb.Enter)
	b.await("the dialog asks for a reason", `document.activeElement.id === "reason"`)
	b.hasNoBarrier("the dialog")
	before := p.orders.Load()
	b.keys("provider maintenance")
	b.keys(kb.Enter + kb.Enter) // twice is once
	b.await("the page shows the order", `document.querySelector(".override")?.textContent.includes("provider maintenance")`)
	b.await("the dialog is gone", `!document.querySelector("dialog")`)
	if got := p.orders.Load() - before; got != 1 {
		t.Errorf("got %d orders for a double Enter, want 1", got)
	}
	if got := eval[string](b, `document.activeElement.textContent`); got != "Force open" {
		t.Errorf("the focus went to %q, want it back on the lever", got)
	}
	o := p.override(t, name)
	if o == nil || o.Mode != "force_open" || o.Reason != "provider maintenance" || o.ExpiresAt.Sub(o.CreatedAt) != time.Hour {
		t.Fatalf("got the override %+v, want force_open for an hour", o)
	}
	await(t, "calls are rejected", func() bool { return f.open.Load() > 0 })
	b.await("all instances act on it", `/applied by 3 of 3 instances/.test(document.querySelector(".override").textContent)`)
	b.hasNoBarrier("a dependency under an order")

	b.tabTo(`document.activeElement.textContent === "Back to automatic"`)
	b.keys(kb.Enter)
	b.await("the dialog is open", `document.activeElement.type === "submit"`)
	b.keys(kb.Enter)
	b.await("the order is gone, and the focus where it was", `document.activeElement.textContent === "Back to automatic" && !document.querySelector(".override") && !document.querySelector("dialog")`)
	if o := p.override(t, name); o != nil {
		t.Errorf("got the override %+v, want none", o)
	}
	b.await("it is closed again", `document.querySelector(".head").dataset.state === "closed"`)
	b.run("history.back()")
	b.await("the search is still there, and so is the focus", `document.activeElement.closest("tr")?.dataset.name === "`+name+`"`)
}

// keepsWhatWasTyped: a refused order leaves the dialog as it was and says what is wrong.
func keepsWhatWasTyped(t *testing.T, browser context.Context) {
	const name = "crm"
	p := newPlane(t, nil)
	newFleet(t, p, name, 1, 10)
	b := newTab(t, browser)
	b.open(p.url + "/#/dependencies/" + name)
	b.await("the levers can be used", `document.querySelector(".levers button:not(:disabled)")`)
	b.run(`[...document.querySelectorAll(".levers button")].find((e) => e.textContent === "No retries").click()`)
	b.await("the dialog is open", `document.activeElement.id === "reason"`)
	b.keys("short" + kb.Enter)
	b.await("it wants a longer reason", `document.querySelector("#reason-wrong")?.textContent.includes("8 characters")`)
	b.hasNoBarrier("the dialog with a mistake")
	b.keys(" but now long enough")

	// Somebody else gives an order meanwhile.
	p.ask(t, http.MethodPut, "/v1/dependencies/"+name+"/override", wire.OverrideRequest{Mode: "force_closed", Reason: "somebody else", ExpiresInMS: 60_000}, nil)
	b.keys(kb.Enter)
	b.await("it tells of the other order", `document.querySelector("dialog .error")?.textContent.includes("Somebody else")`)
	if got := eval[string](b, `document.querySelector("#reason").value`); got != "short but now long enough" {
		t.Errorf("got the reason %q, want what was typed", got)
	}
	if o := p.override(t, name); o == nil || o.Mode != "force_closed" {
		t.Fatalf("got the override %+v, want the other operator's", o)
	}
	b.await("the page shows the other order", `document.querySelector(".override")?.textContent.includes("somebody else")`)
	b.keys(kb.Enter)
	b.await("the second try replaces it", `document.querySelector(".override")?.textContent.includes("long enough")`)
	if o := p.override(t, name); o == nil || o.Mode != "no_retries" {
		t.Fatalf("got the override %+v, want no_retries", o)
	}
}

func paintsManyDependencies(t *testing.T, browser context.Context) {
	p := newPlane(t, nil)
	p.populate(t, 500)
	await(t, "the plane knows all", func() bool { return len(p.exchange.Dependencies()) == 500 })
	var times []time.Duration
	for range 5 {
		t.Run("", func(t *testing.T) { // its end closes the tab
			b := newTab(t, browser)
			b.open(p.url)
			b.await("rows are painted", "witness.first > 0")
			times = append(times, time.Duration(eval[float64](b, "witness.first")*float64(time.Millisecond)).Round(time.Millisecond))
		})
	}
	slices.Sort(times)
	t.Logf("first paint of 500 dependencies: %v", times)
	if best := times[0]; best >= time.Second { // what is over the best is the machine's doing
		t.Errorf("first paint of 500 dependencies: got %v at best, want below 1s", best)
	}

	p.populate(t, 2000)
	b := newTab(t, browser)
	b.open(p.url)
	b.await("the table has 2,000 rows", `document.querySelector(".table table")?.getAttribute("aria-rowcount") === "2001"`)
	if got := eval[int](b, `document.querySelectorAll("tr[data-name]").length`); got > 100 {
		t.Errorf("got %d rows in the document, want only those in sight", got)
	}
	b.tabTo(`document.activeElement.closest("tr[data-name]")`)
	b.keys(kb.End)
	b.await("End leads to the last row", `document.activeElement.closest("tr")?.getAttribute("aria-rowindex") === "2001"`)
	b.keys(kb.ArrowUp)
	b.await("and up to the one before", `document.activeElement.closest("tr")?.getAttribute("aria-rowindex") === "2000"`)
	b.keys(kb.Home)
	b.await("and Home to the first", `document.activeElement.closest("tr")?.getAttribute("aria-rowindex") === "2"`)
	b.press("/")
	b.keys("no such thing")
	b.await("a search without a match says so", `document.querySelector(".notice h2")?.textContent === "Nothing matches"`)
	b.hasNoBarrier("a search without a match")
}

func asksForAToken(t *testing.T, browser context.Context) {
	hash := func(token string) string {
		sum := sha256.Sum256([]byte(token))
		return hex.EncodeToString(sum[:])
	}
	auth, err := api.NewAuth([]api.Token{
		{Name: "alice", SHA256: hash("alices-token"), Roles: []string{"operate"}},
		{Name: "reader", SHA256: hash("readers-token"), Roles: []string{"read"}},
		{Name: "fleet", SHA256: hash("fleets-token"), Roles: []string{"report"}},
	})
	if err != nil {
		t.Fatal(err)
	}
	p := newPlane(t, auth)
	p.token = "fleets-token"
	newFleet(t, p, "crm", 1, 10)
	b := newTab(t, browser)
	b.open(p.url)
	b.await("it asks for a token", `document.activeElement.id === "token"`)
	b.hasNoBarrier("the question for a token")
	b.keys("wrong" + kb.Enter)
	b.await("a wrong one is refused", `document.querySelector("#refusal")?.textContent.includes("unknown")`)
	b.run(`document.querySelector("#token").select()`)
	b.keys("fleets-token" + kb.Enter)
	b.await("one that only reports has no access", `document.querySelector("h1")?.textContent === "No access"`)
	b.hasNoBarrier("no access")
	b.run(`document.querySelector("main button").click()`)
	b.await("it asks again", `document.activeElement.id === "token"`)
	b.keys("readers-token" + kb.Enter)
	b.await("a reader sees the fleet", fmt.Sprintf(`document.querySelector('%s')`, row("crm")))
	b.open(p.url + "/#/dependencies/crm")
	b.await("but no levers", `document.querySelector(".levers")?.textContent.includes("operate")`)
	b.run(`location.reload()`)
	b.await("the token outlives a reload", `document.querySelector("h1")?.textContent === "crm"`)
	b.run(`[...document.querySelectorAll("header button")].find((e) => e.textContent === "Forget token").click()`)
	b.await("a forgotten token leaves nothing behind", `document.activeElement.id === "token" && !document.body.textContent.includes("crm")`)
	b.keys("alices-token" + kb.Enter)
	b.await("an operator has levers", `document.querySelector(".levers button:not(:disabled)")`)
}

func saysWhenItIsStale(t *testing.T, browser context.Context) {
	p := newPlane(t, nil)
	b := newTab(t, browser)
	b.open(p.url)
	b.await("an empty fleet says how to begin", `document.querySelector(".notice h2")?.textContent === "No dependency yet"`)
	b.hasNoBarrier("an empty fleet")
	p.populate(t, 3)
	b.await("it fills by itself", `document.querySelectorAll("tr[data-name]").length === 3`)
	b.await("it is live", `document.querySelector("[data-freshness]").dataset.freshness === "live"`)
	p.http.CloseClientConnections()
	p.http.Config.SetKeepAlivesEnabled(false)
	_ = p.http.Listener.Close() // nobody answers any more
	b.await("it is stale", `/^Stale \d+ s$/.test(document.querySelector("[data-freshness]").textContent)`)
	b.hasNoBarrier("a stale fleet")
	if got := eval[int](b, `document.querySelectorAll("tr[data-name]").length`); got != 3 {
		t.Errorf("got %d rows while stale, want the 3 last known", got)
	}
}

// tabTo presses Tab until an expression holds.
func (b *tab) tabTo(expression string) {
	b.t.Helper()
	for range 60 {
		b.keys(kb.Tab)
		if eval[bool](b, "!!("+expression+")") {
			return
		}
	}
	b.t.Fatalf("60 times Tab did not lead to %s", expression)
}

func (p *plane) override(t *testing.T, name string) *wire.OverrideStatus {
	t.Helper()
	d, ok := p.exchange.Dependency(name)
	if !ok {
		t.Fatalf("there is no %s", name)
	}
	return d.Breaker.Override
}
