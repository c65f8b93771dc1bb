package web_test

import (
	"context"
	_ "embed"
	"fmt"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"
)

//go:embed testdata/witness.js
var witness string

//go:embed testdata/axe/axe.min.js
var axe string

// newBrowser starts Debian's chromium, for all the tabs of a test. An absent chromium fails the test.
func newBrowser(t *testing.T) context.Context {
	t.Helper()
	path, err := exec.LookPath("chromium")
	if err != nil {
		t.Fatalf("the browser test needs chromium (make deps installs it): %v", err)
	}
	options := append(chromedp.DefaultExecAllocatorOptions[:],
		chromedp.ExecPath(path), chromedp.NoSandbox, chromedp.UserDataDir(t.TempDir()), chromedp.WindowSize(1280, 800),
		chromedp.Flag("disable-quic", true), chromedp.Flag("disable-component-update", true), chromedp.Flag("disable-gpu", true),
	)
	allocator, stop := chromedp.NewExecAllocator(context.Background(), options...)
	t.Cleanup(stop)
	ctx, end := chromedp.NewContext(allocator)
	t.Cleanup(end)
	if err := chromedp.Do(ctx); err != nil { // starts it under a context without a deadline
		t.Fatalf("start chromium: %v", err)
	}
	return ctx
}

// tab is one tab, with a witness in every page that it shows.
type tab struct {
	t   *testing.T
	ctx context.Context
}

// newTab opens a tab that is closed with the test. When the test ends, the page must not have met an error nor have
// broken its content policy.
func newTab(t *testing.T, browser context.Context) *tab {
	t.Helper()
	ctx, end := chromedp.NewContext(browser)
	t.Cleanup(end)
	b := &tab{t, ctx}
	if _, err := chromedp.Call(ctx, page.AddScriptToEvaluateOnNewDocument, page.AddScriptToEvaluateOnNewDocumentParams{Source: witness}); err != nil {
		t.Fatal(err)
	}
	b.scheme("light")
	t.Cleanup(func() {
		for _, list := range []string{"breaches", "errors"} {
			if found := eval[[]string](b, "witness."+list); len(found) > 0 {
				t.Errorf("the page's %s: %q", list, found)
			}
		}
	})
	return b
}

func (b *tab) within(d time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeout(b.ctx, d)
}

func (b *tab) do(steps ...chromedp.Action[chromedp.Void]) {
	b.t.Helper()
	ctx, cancel := b.within(20 * time.Second)
	defer cancel()
	if err := chromedp.Do(ctx, steps...); err != nil {
		b.t.Fatal(err)
	}
}

func (b *tab) open(address string) {
	b.t.Helper()
	b.do(chromedp.Navigate(address))
}

// run carries out a script.
func (b *tab) run(script string) {
	b.t.Helper()
	b.do(chromedp.Evaluate[chromedp.Void](script))
}

// keys types, as a keyboard does.
func (b *tab) keys(text string) {
	b.t.Helper()
	b.do(chromedp.KeyEvent(text))
}

// press presses a key that the page may take for itself: then it types nothing.
func (b *tab) press(key string) {
	b.t.Helper()
	for _, kind := range []input.DispatchKeyEventType{input.DispatchKeyEventTypeKeyDown, input.DispatchKeyEventTypeKeyUp} {
		if _, err := chromedp.Call(b.ctx, input.DispatchKeyEvent, input.DispatchKeyEventParams{Type: kind, Key: key, Text: key}); err != nil {
			b.t.Fatal(err)
		}
	}
}

// scheme sets the colour scheme that the user prefers.
func (b *tab) scheme(name string) {
	b.t.Helper()
	_, err := chromedp.Call(b.ctx, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
		Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: name}},
	})
	if err != nil {
		b.t.Fatal(err)
	}
}

// eval returns the value of an expression, or of the promise that it is.
func eval[T any](b *tab, expression string) T {
	b.t.Helper()
	ctx, cancel := b.within(20 * time.Second)
	defer cancel()
	v, err := chromedp.Run(ctx, chromedp.Evaluate[T](expression, chromedp.EvalAwaitPromise))
	if err != nil {
		b.t.Fatalf("%s: %v", expression, err)
	}
	return v
}

// await waits until an expression is true.
func (b *tab) await(what, expression string) {
	b.t.Helper()
	limit := time.Now().Add(20 * time.Second)
	for !eval[bool](b, "!!("+expression+")") {
		if time.Now().After(limit) {
			b.t.Fatalf("never happened: %s\nfocus: %.200s\n%.1000s", what,
				eval[string](b, "document.activeElement.outerHTML"), eval[string](b, "document.body.innerText"))
		}
		time.Sleep(20 * time.Millisecond) // between two looks at another process
	}
}

// hasNoBarrier runs axe-core on the page as it is, in both colour schemes.
func (b *tab) hasNoBarrier(what string) {
	b.t.Helper()
	b.run(axe)
	for _, scheme := range []string{"light", "dark"} {
		b.scheme(scheme)
		found := eval[[]string](b, `axe.run({resultTypes: ["violations"]}).then((r) => r.violations.map((v) =>
			v.id + ": " + v.nodes.map((n) => n.target.join(" ") + " " + n.failureSummary).join(" | ")))`)
		if len(found) > 0 {
			b.t.Errorf("%s, %s: axe found %d violations:\n%s", what, scheme, len(found), strings.Join(found, "\n"))
		}
	}
	b.scheme("light")
}

// row is the CSS selector of a dependency's row.
func row(name string) string { return fmt.Sprintf(`tr[data-name=%q]`, name) }
