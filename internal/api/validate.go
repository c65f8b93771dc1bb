package api

import (
	"fmt"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/retryplane/retryplane/pkg/policy"
	"github.com/retryplane/retryplane/pkg/wire"
)

// Limits of a sync that pkg/wire does not name.
const (
	mostEpoch   = 64                  // characters
	mostToken   = 128                 // characters of a probe's token
	mostLayer   = 1_000_000_000       // attempts of one retrying layer
	mostNumber  = int64(1) << 53      // generations, revisions, versions: what JSON numbers hold exactly
	mostLatency = wire.MaxCount * 1e3 // ms in one report's sum
	// oldest is what longer ages and waits count as: a frozen instance that thaws after a week is not at fault, and
	// an age of a day is as useless as one of a week.
	oldest = int64(24 * 3600 * 1000)
	// mostFields bounds the wrong fields that one problem names.
	mostFields = 50
)

var outcomeWords = []string{
	policy.Success.String(), policy.Failure.String(), policy.Throttled.String(), policy.Ignored.String(),
}

// checkSync names every wrong field of a sync, up to mostFields. Ages that are merely too great are cut.
func checkSync(r *wire.SyncRequest) []wire.ProblemField {
	c := &check{}
	c.text("instance", r.Instance, 1, wire.MaxInstance)
	c.text("service", r.Service, 0, wire.MaxLabel)
	c.text("version", r.Version, 0, wire.MaxLabel)
	// A sync without a number would get the answer of the first one for ever, and count nothing.
	c.must("seq", r.Seq >= 1 && r.Seq <= mostNumber, fmt.Sprintf("1 to %d", mostNumber))
	if !c.must("dependencies", len(r.Dependencies) <= wire.MaxReports, fmt.Sprintf("at most %d reports", wire.MaxReports)) {
		return c.fields
	}
	for i := range r.Dependencies {
		c.prefix, c.index = "dependencies", i
		c.report(&r.Dependencies[i])
		if len(c.fields) >= mostFields {
			return c.fields[:mostFields]
		}
	}
	return c.fields
}

// check collects wrong fields. Names of fields are put together only for these, because nearly all are right.
type check struct {
	prefix string // "" = none, else the fields are prefix[index].field
	index  int
	fields []wire.ProblemField
}

func (c *check) report(r *wire.Report) {
	c.must("name", policy.ValidName(r.Name), policy.NameLimit)
	c.text("epoch", r.Epoch, 0, mostEpoch)
	c.number("generation", r.Generation, mostNumber)
	r.AgeMS, r.WaitedMS = min(r.AgeMS, oldest), min(r.WaitedMS, oldest)
	c.number("age_ms", r.AgeMS, oldest)
	c.number("waited_ms", r.WaitedMS, oldest)
	c.count("requests", r.Requests)
	c.count("attempts", r.Attempts)
	c.count("success", r.Success)
	c.count("failure", r.Failure)
	c.count("throttled", r.Throttled)
	c.count("ignored", r.Ignored)
	c.count("slow", r.Slow)
	c.count("rejected_breaker", r.RejectedBreaker)
	c.count("rejected_budget", r.RejectedBudget)
	c.must("attempts_per_request", len(r.AttemptsPerRequest) <= 5, "at most 5 counts")
	for _, n := range r.AttemptsPerRequest {
		if !c.count("attempts_per_request", n) {
			break
		}
	}
	c.number("latency_sum_ms", r.LatencySumMS, mostLatency)
	c.count("latency_count", r.LatencyCount)
	c.count("failure_run", r.FailureRun)
	c.count("ungranted", r.Ungranted)
	c.count("want", r.Want)
	r.NotBeforeMS = min(r.NotBeforeMS, wire.MaxNotBeforeMS)
	c.number("not_before_ms", r.NotBeforeMS, wire.MaxNotBeforeMS)
	c.must("probes", len(r.Probes) <= wire.MaxProbesPerReport, fmt.Sprintf("at most %d", wire.MaxProbesPerReport))
	for _, p := range r.Probes {
		if !c.text("probes.token", p.Token, 1, mostToken) {
			break
		}
		if !c.must("probes.outcome", slices.Contains(outcomeWords, p.Outcome), "one of "+strings.Join(outcomeWords, ", ")) {
			break
		}
	}
	c.must("chains", len(r.Chains) <= wire.MaxChainsPerReport, fmt.Sprintf("at most %d", wire.MaxChainsPerReport))
	for _, chain := range r.Chains {
		if !c.chain(chain) {
			break
		}
	}
	c.number("applied.generation", r.Applied.Generation, mostNumber)
	c.number("applied.override_revision", r.Applied.OverrideRevision, mostNumber)
	c.number("applied.policy_version", r.Applied.PolicyVersion, mostNumber)
}

func (c *check) chain(chain wire.Chain) bool {
	n := len(c.fields)
	c.count("chains.requests", chain.Requests)
	c.must("chains.layers", len(chain.Layers) >= 1 && len(chain.Layers) <= wire.MaxChainLayers, fmt.Sprintf("1 to %d", wire.MaxChainLayers))
	for _, l := range chain.Layers {
		if !c.text("chains.layers.name", l.Name, 1, wire.MaxLabel) || !c.must("chains.layers.most", l.Most >= 1 && l.Most <= mostLayer, fmt.Sprintf("1 to %d", mostLayer)) {
			break
		}
	}
	return len(c.fields) == n
}

// must reports ok.
func (c *check) must(field string, ok bool, limit string) bool {
	if !ok {
		if c.prefix != "" {
			field = fmt.Sprintf("%s[%d].%s", c.prefix, c.index, field)
		}
		c.fields = append(c.fields, wire.ProblemField{Field: field, Limit: limit})
	}
	return ok
}

func (c *check) count(field string, n int64) bool { return c.number(field, n, wire.MaxCount) }

func (c *check) number(field string, n, most int64) bool {
	return n >= 0 && n <= most || c.must(field, false, fmt.Sprintf("0 to %d", most))
}

func (c *check) text(field, s string, least, most int) bool {
	return text(s, least, most) || c.must(field, false, fmt.Sprintf("%d to %d printable characters", least, most))
}

// text reports whether s has least to most characters, all printable.
func text(s string, least, most int) bool {
	n := utf8.RuneCountInString(s)
	return n >= least && n <= most && strings.IndexFunc(s, func(r rune) bool { return !unicode.IsPrint(r) }) < 0
}
