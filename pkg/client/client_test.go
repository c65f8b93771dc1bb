package client

import (
	"testing"
	"testing/synctest"
	"time"
)

// call makes one call and ends it.
func call(t *testing.T, d *Dependency, o Outcome) error {
	t.Helper()
	p, err := d.Acquire(t.Context())
	if err != nil {
		return err
	}
	p.Done(o)
	return nil
}

func TestReports(t *testing.T) {
	bubble(t, func(t *testing.T, p *plane, c *Client) {
		d := c.Dependency("a")
		for range 100 {
			if err := call(t, d, Success); err != nil {
				t.Fatal(err)
			}
			time.Sleep(50 * time.Millisecond)
		}
		time.Sleep(3 * time.Second)
		synctest.Wait()
		syncs := p.seen()
		got := sum(syncs, "a")
		if got.Requests != 100 || got.Attempts != 100 || got.Success != 100 || got.AttemptsPerRequest[0] != 100 {
			t.Errorf("reported %+v", got)
		}
		if n := len(syncs); n < 5 || n > 9 {
			t.Errorf("%d syncs in 5 s", n)
		}
		for _, s := range syncs {
			t.Logf("%v %+v", s.at, s.req)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		if n := len(p.seen()); n != 0 {
			t.Errorf("%d syncs while idle", n)
		}
	})
}
