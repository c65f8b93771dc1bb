package api

import (
	"errors"
	"runtime"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/retryplane/retryplane/internal/exchange"
)

// registerMetrics registers everything that /metrics shows of a replica. It panics if something of the same name is
// there; the collectors of Go and the process may be.
func registerMetrics(reg *prometheus.Registry, x *exchange.Exchange, h *hub, version string) {
	reg.MustRegister(newCollector(x, h), prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "retryplane_build_info", Help: "Always 1; the labels tell what runs.",
		ConstLabels: prometheus.Labels{"version": version, "goversion": runtime.Version()},
	}, func() float64 { return 1 }))
	for _, c := range []prometheus.Collector{
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
	} {
		if err := reg.Register(c); err != nil {
			if _, ok := errors.AsType[prometheus.AlreadyRegisteredError](err); !ok {
				panic(err)
			}
		}
	}
}

// StoreTimings is the histogram of the calls to the store. Whoever owns the store's client feeds it.
type StoreTimings struct{ seconds *prometheus.HistogramVec }

// NewStoreTimings registers the histogram. It panics if it is registered already.
func NewStoreTimings(reg prometheus.Registerer) *StoreTimings {
	t := &StoreTimings{prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name:    "retryplane_store_operation_duration_seconds",
		Help:    "Calls to the store, by Redis command, failed ones included.",
		Buckets: []float64{0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1},
	}, []string{"op"})}
	reg.MustRegister(t.seconds)
	t.seconds.WithLabelValues("evalsha") // what nearly all calls are; born at 0
	return t
}

// Observe counts one call. op is the name of a Redis command in lower case, of which there are few; "pipeline" for
// several.
func (t *StoreTimings) Observe(op string, took time.Duration) {
	t.seconds.WithLabelValues(op).Observe(took.Seconds())
}
