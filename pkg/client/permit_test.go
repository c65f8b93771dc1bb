package client

import (
	"context"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"
)

// answering is a transport that gives every sync the same decision about dependency "a".
type answering string

func (a answering) RoundTrip(req *http.Request) (*http.Response, error) {
	_, _ = io.Copy(io.Discard, req.Body)
	body := `{"seq":1,"next_sync_ms":1000,"dependencies":[{"name":"a","epoch":"e","generation":7,` + string(a) + `}]}`
	return &http.Response{StatusCode: http.StatusOK, Body: io.NopCloser(strings.NewReader(body)), Request: req}, nil
}

const (
	closed = answering(`"state":"closed"`)
	open   = answering(`"state":"open","remaining_ms":600000`)
)

// settledOn returns a handle that has been told.
func settledOn(tb testing.TB, a answering) *Dependency {
	tb.Helper()
	c, err := New("http://plane", WithHTTPClient(&http.Client{Transport: a}))
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = c.Close(context.Background()) })
	d := c.Dependency("a")
	p, err := d.Acquire(context.Background())
	if err != nil {
		tb.Fatal(err)
	}
	p.Done(Success)
	for end := time.Now().Add(5 * time.Second); !d.State().Known; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			tb.Fatal("not told within 5 s")
		}
	}
	return d
}

func TestCallsAllocateNothing(t *testing.T) {
	ctx := context.Background()
	for name, a := range map[string]answering{"closed": closed, "open": open} {
		t.Run(name, func(t *testing.T) {
			d := settledOn(t, a)
			got := testing.AllocsPerRun(1000, func() {
				p, _ := d.Acquire(ctx)
				p.Done(Success)
			})
			if got != 0 {
				t.Errorf("%v allocations per call", got)
			}
		})
	}
}

// TestPermitTwice: the second Done through one variable counts nothing, and neither does one on no permit.
func TestPermitTwice(t *testing.T) {
	d := settledOn(t, closed)
	before := d.stats()
	p, err := d.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	p.Done(Success)
	p.Done(Failure)
	var none Permit
	none.Done(Failure)
	got := d.stats()
	if got.Success != before.Success+1 || got.Failure != before.Failure {
		t.Errorf("%d successes and %d failures more, want 1 and 0", got.Success-before.Success, got.Failure-before.Failure)
	}
}

func BenchmarkClosed(b *testing.B) {
	d, ctx := settledOn(b, closed), context.Background()
	b.ReportAllocs()
	for b.Loop() {
		p, err := d.Acquire(ctx)
		if err != nil {
			b.Fatal(err)
		}
		p.Done(Success)
	}
}

func BenchmarkClosedParallel(b *testing.B) {
	d, ctx := settledOn(b, closed), context.Background()
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			p, err := d.Acquire(ctx)
			if err != nil {
				b.Fatal(err)
			}
			p.Done(Success)
		}
	})
}

func BenchmarkRejected(b *testing.B) {
	d, ctx := settledOn(b, open), context.Background()
	b.ReportAllocs()
	for b.Loop() {
		if _, err := d.Acquire(ctx); err == nil {
			b.Fatal("passed an open breaker")
		}
	}
}

func BenchmarkFailure(b *testing.B) {
	d, ctx := settledOn(b, closed), context.Background()
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		p, err := d.Acquire(ctx)
		if err != nil {
			b.Fatal(err)
		}
		if i%2 == 0 { // a run of one
			p.Done(Failure)
		} else {
			p.Done(Success)
		}
	}
}
