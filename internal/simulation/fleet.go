package simulation

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"
)

// Caller makes one request of an instance with whatever retries its policy has. rejected says that no attempt was
// sent.
type Caller func(ctx context.Context) (rejected bool, err error)

// Drive lets a fleet send requests as a Poisson stream of rate requests a second, spread over the callers at random,
// until ctx ends; then it waits for the requests under way.
func Drive(ctx context.Context, meter *Meter, callers []Caller, rate float64, seed uint64) {
	random := rand.New(rand.NewPCG(seed, 2))
	var wg sync.WaitGroup
	defer wg.Wait()
	// By the time at which each is due, so that timers that are late on a busy machine do not thin out the stream.
	next := time.Now()
	for {
		next = next.Add(time.Duration(random.ExpFloat64() / rate * float64(time.Second)))
		if Wait(ctx, time.Until(next)) != nil {
			return
		}
		call := callers[random.IntN(len(callers))]
		end := meter.Begin()
		wg.Go(func() {
			rejected, err := call(context.WithoutCancel(ctx))
			end(err, rejected)
		})
	}
}

// FullJitter is the rival without a budget and without a breaker: 3 attempts of 1 s within 10 s, full jitter on
// 100 ms doubling up to 3 s.
func FullJitter(attempt func(ctx context.Context) error, seed uint64) Caller {
	const attempts = 3
	var mu sync.Mutex
	random := rand.New(rand.NewPCG(seed, 3))
	return func(ctx context.Context) (bool, error) {
		ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
		defer cancel()
		ceiling := 100 * time.Millisecond
		for n := 1; ; n++ {
			try, done := context.WithTimeout(ctx, time.Second)
			err := attempt(try)
			done()
			if err == nil || n == attempts {
				return false, err
			}
			mu.Lock()
			pause := time.Duration(random.Float64() * float64(ceiling))
			mu.Unlock()
			if Wait(ctx, pause) != nil {
				return false, err
			}
			ceiling = min(2*ceiling, 3*time.Second)
		}
	}
}
