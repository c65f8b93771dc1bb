// Command screenshot writes what chromium shows of a page, once a text is on it, to a PNG file. It is how the pictures
// in docs/ are taken from a running demo.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"
)

func main() {
	width := flag.Int("width", 1280, "of the window, in pixels")
	height := flag.Int("height", 800, "of the window, in pixels")
	settle := flag.Duration("settle", 2*time.Second, "how long to wait once the page is there: charts draw late")
	dark := flag.Bool("dark", false, "prefer dark colours")
	flag.Usage = func() {
		fmt.Fprintln(flag.CommandLine.Output(), "usage: screenshot [flags] URL CSS-SELECTOR FILE")
		flag.PrintDefaults()
	}
	flag.Parse()
	if flag.NArg() != 3 {
		flag.Usage()
		os.Exit(2)
	}
	if err := take(flag.Arg(0), flag.Arg(1), flag.Arg(2), *width, *height, *settle, *dark); err != nil {
		fmt.Fprintln(os.Stderr, "screenshot:", err)
		os.Exit(1)
	}
}

// take waits until selector is visible at url, at most half a minute.
func take(url, selector, file string, width, height int, settle time.Duration, dark bool) error {
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.NoSandbox, chromedp.WindowSize(width, height))
	ctx, stop := chromedp.NewExecAllocator(context.Background(), options...)
	defer stop()
	ctx, end := chromedp.NewContext(ctx)
	defer end()
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second+settle)
	defer cancel()
	scheme := "light"
	if dark {
		scheme = "dark"
	}
	if err := chromedp.Do(ctx); err != nil {
		return err
	}
	_, err := chromedp.Call(ctx, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
		Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}},
	})
	if err != nil {
		return err
	}
	script := fmt.Sprintf(`new Promise((done) => { const look = () => document.querySelector(%q) ? done() : setTimeout(look, 50); look(); })`, selector)
	err = chromedp.Do(ctx, chromedp.Navigate(url),
		chromedp.Evaluate[chromedp.Void](script, chromedp.EvalAwaitPromise), chromedp.Sleep(settle))
	if err != nil {
		return err
	}
	shot, err := chromedp.Call(ctx, page.CaptureScreenshot, page.CaptureScreenshotParams{})
	if err != nil {
		return err
	}
	return os.WriteFile(file, shot.Data, 0o644)
}
