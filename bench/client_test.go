// Package bench measures Retryplane beside its peers, in one run, so that the ratios mean something on a noisy
// machine. It is a module of its own: the product does not depend on its rivals.
package bench

import (
	"context"
	"errors"
	"net/http"
	"testing"
	"time"

	"github.com/failsafe-go/failsafe-go"
	"github.com/failsafe-go/failsafe-go/circuitbreaker"
	"github.com/sony/gobreaker/v2"

	"github.com/retryplane/retryplane/pkg/client"
	"github.com/retryplane/retryplane/pkg/wire"
)

var errTest = errors.New("test")

// BenchmarkGuardedCall is one successful call through a closed breaker.
func BenchmarkGuardedCall(b *testing.B) {
	b.Run("retryplane", func(b *testing.B) {
		d := newDependency(b, "")
		ctx := b.Context()
		b.ReportAllocs()
		for b.Loop() {
			p, err := d.Acquire(ctx)
			if err != nil {
				b.Fatal(err)
			}
			p.Done(client.Success)
		}
	})
	b.Run("gobreaker", func(b *testing.B) {
		cb := gobreaker.NewCircuitBreaker[struct{}](gobreaker.Settings{})
		fn := func() (struct{}, error) { return struct{}{}, nil }
		b.ReportAllocs()
		for b.Loop() {
			if _, err := cb.Execute(fn); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("failsafe", func(b *testing.B) {
		cb := circuitbreaker.NewBuilder[any]().Build()
		executor := failsafe.With(cb)
		fn := func() error { return nil }
		b.ReportAllocs()
		for b.Loop() {
			if err := executor.Run(fn); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// BenchmarkGuardedCallParallel is the same from all processors at once.
func BenchmarkGuardedCallParallel(b *testing.B) {
	b.Run("retryplane", func(b *testing.B) {
		d := newDependency(b, "")
		ctx := b.Context()
		b.RunParallel(func(pb *testing.PB) {
			for pb.Next() {
				if p, err := d.Acquire(ctx); err == nil {
					p.Done(client.Success)
				}
			}
		})
	})
	b.Run("gobreaker", func(b *testing.B) {
		cb := gobreaker.NewCircuitBreaker[struct{}](gobreaker.Settings{})
		fn := func() (struct{}, error) { return struct{}{}, nil }
		b.RunParallel(func(pb *testing.PB) {
			for pb.Next() {
				_, _ = cb.Execute(fn)
			}
		})
	})
}

// BenchmarkRejectedCall is one call that an open breaker rejects.
func BenchmarkRejectedCall(b *testing.B) {
	b.Run("retryplane", func(b *testing.B) {
		d := newDependency(b, "force_open")
		ctx := b.Context()
		b.ReportAllocs()
		for b.Loop() {
			if _, err := d.Acquire(ctx); err == nil {
				b.Fatal("admitted")
			}
		}
	})
	b.Run("gobreaker", func(b *testing.B) {
		cb := gobreaker.NewCircuitBreaker[struct{}](gobreaker.Settings{Timeout: time.Hour})
		fail := func() (struct{}, error) { return struct{}{}, errTest }
		for range 10 {
			_, _ = cb.Execute(fail)
		}
		b.ReportAllocs()
		for b.Loop() {
			if _, err := cb.Execute(fail); !errors.Is(err, gobreaker.ErrOpenState) {
				b.Fatal(err)
			}
		}
	})
	b.Run("failsafe", func(b *testing.B) {
		cb := circuitbreaker.NewBuilder[any]().WithDelay(time.Hour).Build()
		executor := failsafe.With(cb)
		cb.Open()
		fn := func() error { return errTest }
		b.ReportAllocs()
		for b.Loop() {
			if err := executor.Run(fn); !errors.Is(err, circuitbreaker.ErrOpen) {
				b.Fatal(err)
			}
		}
	})
}

// newDependency returns a handle that has heard from a control plane: closed, or under an override.
func newDependency(b *testing.B, mode string) *client.Dependency {
	b.Helper()
	return newPlane(b, mode).Dependency("payments")
}

// newPlane returns a client whose only dependency has heard from a control plane.
func newPlane(b *testing.B, mode string) *client.Client {
	b.Helper()
	c, err := client.New("http://control-plane.invalid", client.WithHTTPClient(&http.Client{Transport: answers{mode}}))
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_ = c.Close(ctx)
	})
	d := c.Dependency("payments")
	if p, err := d.Acquire(b.Context()); err == nil {
		p.Done(client.Success)
	}
	if err := c.Flush(b.Context()); err != nil {
		b.Fatal(err)
	}
	if got := d.State().Override; string(got) != mode {
		b.Fatalf("override: got %q, want %q", got, mode)
	}
	return c
}

// answers is a control plane that always says the same.
type answers struct{ mode string }

func (a answers) RoundTrip(r *http.Request) (*http.Response, error) {
	d := wire.Decision{Name: "payments", Epoch: "e", Generation: 1, State: wire.Closed, Instances: 1}
	if a.mode != "" {
		d.Override = &wire.Override{Mode: a.mode, Revision: 1, RemainingMS: 3_600_000}
	}
	return respond(r, wire.SyncResponse{NextSyncMS: 1000, Dependencies: []wire.Decision{d}})
}
