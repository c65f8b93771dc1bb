package client

import (
	"time"

	"github.com/retryplane/retryplane/pkg/policy"
	"github.com/retryplane/retryplane/pkg/wire"
)

// A dependency that asks to be left alone for longer than a call can wait asks all of the fleet. Whoever is told gives its
// caller the answer and reports the demand; the control plane tells everybody else. First attempts go on: they show that
// the dependency is back.

// demandSlack is by how much a retry that waited for the end of a demand may be early: each answer rounds it anew.
const demandSlack = 100 * time.Millisecond

// notBefore is how long the dependency wants nobody to retry, as this instance or any other was told; 0 = no such wish.
func (d *Dependency) notBefore() time.Duration {
	d.mu.Lock()
	defer d.mu.Unlock()
	now := d.client.now()
	return max(left(now, d.told.notBefore), left(now, d.demand))
}

// leftAlone takes a demand of the dependency's own, to be reported at once.
func (d *Dependency) leftAlone(wait time.Duration) {
	now := d.client.now()
	until := now.Add(min(wait, wire.MaxNotBeforeMS*time.Millisecond))
	d.mu.Lock()
	defer d.mu.Unlock()
	if !until.After(later(d.demand, d.told.notBefore).Add(time.Second)) {
		return // old news, or as good as
	}
	d.demand = until
	d.client.syncer.demand(d, askRun)
}

// tellFleet reports what the server demanded after an attempt, if that is more than this call can wait for: above the
// policy's cap, or past its deadline. reason is why the call ended.
func (c *request) tellFleet(v policy.Verdict, reason policy.StopReason) {
	if v.Action != policy.Stop && v.After > 0 && (v.After > c.policy.Retry.RetryAfterCap || reason == policy.StopRetryAfter) {
		c.dep.leftAlone(v.After)
	}
}
