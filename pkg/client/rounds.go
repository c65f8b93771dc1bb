package client

import (
	"context"
	"time"

	"github.com/retryplane/retryplane/pkg/wire"
)

// What the syncer carries out, each in the goroutine of its exchange or of who asked for it.

// report sends what deps have to say. With asks it asks for what they want.
func (y *syncer) report(ctx context.Context, number int64, deps []*Dependency, asks bool) error {
	now := y.client.now()
	var parcels []*parcel
	for _, d := range deps {
		p := d.pack(now, number, asks)
		if len(p.reports) > 0 {
			parcels = append(parcels, p)
		} else {
			y.rest(d)
		}
	}
	return y.client.send(ctx, parcels)
}

// rest makes a dependency idle that has nothing to say.
func (y *syncer) rest(d *Dependency) {
	now := y.client.now()
	d.mu.Lock()
	restful := d.restful(now)
	if restful {
		y.remove(d)
		d.active = false
		d.rebuild(now)
	}
	d.mu.Unlock()
	if restful {
		y.client.registry.keep(d)
	}
}

func (y *syncer) remove(d *Dependency) {
	y.mu.Lock()
	defer y.mu.Unlock()
	delete(y.active, d)
	if len(y.active) == 0 {
		y.regular = time.Time{}
	}
}

// knock asks a control plane that was out of reach whether it is back; then everything is reported at once.
func (y *syncer) knock(ctx context.Context, _ int64) {
	var parcels []*parcel
	for _, d := range y.actives() {
		if len(parcels) < wire.MaxReports {
			parcels = append(parcels, d.knock())
		}
	}
	if y.client.deliver(ctx, parcels) == nil {
		y.mu.Lock()
		y.regular = y.client.now()
		y.mu.Unlock()
	}
}

// flush waits until what is under way has landed, and reports everything else.
func (y *syncer) flush(ctx context.Context) error {
	for range lanes {
		y.mu.Lock()
		flying, landed := y.flying[laneUrgent] || y.flying[laneRegular], y.landed
		y.mu.Unlock()
		if !flying {
			break
		}
		select {
		case <-landed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	if y.client.link.now().cutOff {
		y.mu.Lock()
		hold := y.hold
		y.mu.Unlock()
		if y.client.now().Before(hold) {
			return y.client.link.unreachable()
		}
		if err := y.client.deliver(ctx, nil); err != nil {
			return err
		}
		if y.client.link.now().cutOff {
			return ErrUnreachable
		}
	}
	return y.report(ctx, 0, y.actives(), false)
}
