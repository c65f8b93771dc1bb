package api_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/retryplane/retryplane/internal/api"
	"github.com/retryplane/retryplane/pkg/wire"
)

// scrape reads /metrics: series to value.
func (r *rig) scrape() map[string]string {
	r.t.Helper()
	got := r.do("GET", "/metrics", nil)
	if got.status != 200 {
		r.t.Fatalf("got %d %s", got.status, got.body)
	}
	out := make(map[string]string)
	for line := range strings.Lines(string(got.body)) {
		if line = strings.TrimSpace(line); !strings.HasPrefix(line, "#") {
			at := strings.LastIndex(line, " ")
			out[line[:at]] = line[at+1:]
		}
	}
	return out
}

func (r *rig) series(got map[string]string, want map[string]string) {
	r.t.Helper()
	for series, value := range want {
		if v, ok := got[series]; !ok || v != value {
			r.t.Errorf("%s: got %q, want %q", series, v, value)
		}
	}
}

// TestMetrics: the names of the contract, with every series of a dependency there from its first scrape on, so that
// an alert on increase() sees the first trip (argoproj/argo-events#3905 was born at 1).
func TestMetrics(t *testing.T) {
	t.Parallel()
	r := setup(t)
	r.report("payments")
	r.series(r.scrape(), map[string]string{
		`retryplane_breaker_state{dependency="payments",state="closed"}`:                            "1",
		`retryplane_breaker_state{dependency="payments",state="open"}`:                              "0",
		`retryplane_breaker_override{dependency="payments",mode="force_open"}`:                      "0",
		`retryplane_breaker_transitions_total{cause="trip",dependency="payments",to="open"}`:        "0",
		`retryplane_breaker_transitions_total{cause="recovered",dependency="payments",to="closed"}`: "0",
		`retryplane_breaker_transitions_total{cause="operator",dependency="payments",to="open"}`:    "0",
		`retryplane_breaker_transitions_total{cause="probe",dependency="payments",to="half_open"}`:  "0",
		`retryplane_requests_total{dependency="payments"}`:                                          "10",
		`retryplane_attempts_total{dependency="payments",kind="first"}`:                             "10",
		`retryplane_attempts_total{dependency="payments",kind="retry"}`:                             "2",
		`retryplane_outcomes_total{dependency="payments",outcome="success"}`:                        "12",
		`retryplane_outcomes_total{dependency="payments",outcome="throttled"}`:                      "0",
		`retryplane_request_attempts_bucket{dependency="payments",le="1"}`:                          "8",
		`retryplane_request_attempts_bucket{dependency="payments",le="8"}`:                          "10",
		`retryplane_request_attempts_sum{dependency="payments"}`:                                    "12",
		`retryplane_request_attempts_count{dependency="payments"}`:                                  "10",
		`retryplane_rejected_total{by="breaker",dependency="payments"}`:                             "0",
		`retryplane_rejected_total{by="budget",dependency="payments"}`:                              "0",
		`retryplane_syncs_total{result="ok"}`:                                                       "1",
		`retryplane_syncs_total{result="busy"}`:                                                     "0",
		`retryplane_instances`:                                                                      "1",
		`retryplane_stream_clients`:                                                                 "0",
		`retryplane_store_up`:                                                                       "1",
		`retryplane_label_overflow_total`:                                                           "0",
	})
	want[wire.Dependency](r, 200, "PUT", wire.PathDependencies+"/payments/override", order)
	got := r.scrape()
	r.series(got, map[string]string{
		`retryplane_breaker_state{dependency="payments",state="open"}`:                           "1",
		`retryplane_breaker_override{dependency="payments",mode="force_open"}`:                   "1",
		`retryplane_breaker_transitions_total{cause="operator",dependency="payments",to="open"}`: "1",
	})
	var build, runtime, process, remaining bool
	for series := range got {
		build = build || strings.HasPrefix(series, "retryplane_build_info{") && strings.Contains(series, `version="v-test"`)
		runtime = runtime || series == "go_goroutines"
		process = process || series == "process_start_time_seconds"
		remaining = remaining || series == `retryplane_budget_remaining{dependency="payments"}`
	}
	if !build || !runtime || !process || !remaining {
		t.Errorf("build_info %v, Go %v, process %v, budget %v", build, runtime, process, remaining)
	}
}

// TestMetricsBounded: names beyond 200 share one label. Their sum never falls, also when one of them is forgotten:
// that would look like a restart.
func TestMetricsBounded(t *testing.T) {
	t.Parallel()
	r := setup(t)
	var names []string
	for i := range 230 {
		names = append(names, fmt.Sprintf("dep-%03d", i))
	}
	r.report(names...)
	got := r.scrape()
	named := 0
	for series := range got {
		if strings.HasPrefix(series, "retryplane_requests_total{") {
			named++
		}
	}
	if named != 201 {
		t.Errorf("got %d labels", named)
	}
	r.series(got, map[string]string{
		`retryplane_requests_total{dependency="__other__"}`:               "300",
		`retryplane_breaker_state{dependency="__other__",state="closed"}`: "30",
		`retryplane_label_overflow_total`:                                 "30",
	})
	for _, name := range []string{"dep-229", "dep-000"} {
		if got := r.do("DELETE", wire.PathDependencies+"/"+name, nil); got.status != 204 {
			t.Fatalf("forget %s: %d %s", name, got.status, got.body)
		}
	}
	r.report("new")
	got = r.scrape()
	r.series(got, map[string]string{
		`retryplane_requests_total{dependency="__other__"}`: "300",
		`retryplane_requests_total{dependency="new"}`:       "10",
		`retryplane_label_overflow_total`:                   "30",
	})
	if _, there := got[`retryplane_requests_total{dependency="dep-000"}`]; there {
		t.Error("a forgotten dependency still has series")
	}
}

func TestStoreTimings(t *testing.T) {
	t.Parallel()
	reg := prometheus.NewRegistry()
	timings := api.NewStoreTimings(reg)
	timings.Observe("evalsha", 3*time.Millisecond)
	families, err := reg.Gather()
	if err != nil || len(families) != 1 || families[0].GetName() != "retryplane_store_operation_duration_seconds" ||
		families[0].GetMetric()[0].GetHistogram().GetSampleCount() != 1 {
		t.Errorf("got %v, %v", families, err)
	}
}
