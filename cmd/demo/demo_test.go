package main

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/retryplane/retryplane/internal/simulation"
)

// TestWithout: the first phase shows the storm, in virtual time.
func TestWithout(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := flags{Instances: 50, Rate: 700, Phase: 40 * time.Second}
		var out strings.Builder
		m := phase(t.Context(), &out, f, f.Phase, nil, func(d *simulation.Dependency, i int) simulation.Caller {
			return simulation.FullJitter(func(ctx context.Context) error { return d.Call(ctx, i) }, uint64(i))
		})
		got := judge(m, f)
		if !got.stormy() {
			t.Errorf("no storm: %+v", got)
		}
		if lines := strings.Count(out.String(), "\n"); lines < 38 {
			t.Errorf("%d lines in 40 s:\n%s", lines, out.String())
		}
	})
}

func TestCompare(t *testing.T) {
	t.Parallel()
	storm, calm := figures{peak: 3, recovered: -1, lost: 1000}, figures{peak: 1.5, recovered: 3, lost: 10}
	for name, c := range map[string]struct {
		without, with figures
		want          bool
	}{
		"as it should be":     {storm, calm, true},
		"no storm at first":   {calm, calm, false},
		"a storm with it too": {storm, storm, false},
		"the other way round": {calm, storm, false},
	} {
		var out strings.Builder
		if got := compare(&out, c.without, c.with); got != c.want {
			t.Errorf("%s: got %v\n%s", name, got, out.String())
		}
	}
}

func TestWrongFlags(t *testing.T) {
	t.Parallel()
	var out, errs strings.Builder
	if code := run(t.Context(), []string{"--instances", "1", "--phase", "1s"}, nil, &out, &errs); code != 2 {
		t.Errorf("exit code %d, want 2", code)
	}
	for _, want := range []string{"--instances", "--phase"} {
		if !strings.Contains(errs.String(), want) {
			t.Errorf("%q does not name %s", errs.String(), want)
		}
	}
}
