package client

import (
	"time"

	"github.com/retryplane/retryplane/pkg/policy"
)

// funds is an instance's own retry budget while it is cut off: the ratio of its own requests that were not reported
// yet, and by lot a share of the fleet's floor.
type funds struct {
	budget policy.Budget
	drawn  int64 // the last window in which a retry was paid out of the floor
}

// drawLocal draws r's retry from the instance's own budget. It needs d.mu.
func (d *Dependency) drawLocal(r *reservation, now time.Time) {
	set := d.policy().Budget
	if d.override.at(now) != policy.ModeNoRetries && d.fund(set, now) {
		// It was charged for a window and a grant's time to live, and may be used as long as a grant.
		r.grantOne(grant{expires: r.end.Add(set.GrantTTL), local: true})
		return
	}
	r.refuse(ErrBudget)
}

func (d *Dependency) fund(set policy.BudgetPolicy, now time.Time) bool {
	d.take(now) // the request whose retry this is belongs to what pays for it
	f := d.retries.funds
	if f == nil {
		return false // in reach again, at this very moment
	}
	floor := set.Floor
	set.Floor = 0
	if n, _ := f.budget.Draw(now, set, 1); n > 0 {
		return true
	}
	window := now.UnixMilli() / set.Window.Milliseconds()
	if f.drawn == window || !policy.FloorLottery(d.client.instance, now, set.Window, d.told.instances, floor) {
		return false
	}
	f.drawn = window
	return true
}

// deposit credits the requests of a take to the instance's own budget, where one is kept. held are those that the last reports did not
// bring to the control plane; they are credited when it begins. It needs d.mu.
func (d *Dependency) deposit(taken, held tally, now time.Time) {
	if !d.cutOff(now) {
		d.retries.funds = nil // what is reported to the fleet's budget is no longer this instance's own
		return
	}
	if d.retries.funds == nil {
		d.retries.funds = new(funds)
		if held.requests > 0 {
			d.retries.funds.budget.Deposit(held.oldest, held.requests)
		}
	}
	if taken.requests > 0 {
		d.retries.funds.budget.Deposit(taken.oldest, taken.requests)
	}
}
