package api_test

import (
	"net/http"
	"testing"

	"github.com/retryplane/retryplane/pkg/wire"
)

// TestSeries: the history has what was just reported in its last steps; a window out of bounds is named.
func TestSeries(t *testing.T) {
	t.Parallel()
	r := setup(t)
	r.report("payments/eu")
	got := want[wire.Series](r, http.StatusOK, http.MethodGet, "/v1/dependencies/payments%2Feu/series?window=15m", nil)
	var sum int64
	for _, n := range got.Requests {
		sum += n
	}
	if got.Name != "payments/eu" || got.StepMS != 15_000 || len(got.Requests) != 60 || sum == 0 {
		t.Errorf("got %d requests in %d steps: %+v", sum, len(got.Requests), got)
	}
	for _, window := range []string{"59s", "61m", "soon", "-5m"} {
		p := r.refused(http.StatusUnprocessableEntity, wire.CodeInvalid, http.MethodGet, "/v1/dependencies/payments%2Feu/series?window="+window, nil)
		if !hasFields(p, "window") {
			t.Errorf("%s: %+v", window, p)
		}
	}
	r.refused(http.StatusNotFound, wire.CodeNotFound, http.MethodGet, "/v1/dependencies/unknown/series", nil)
}
