package policy_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/retryplane/retryplane/pkg/policy"
	"pgregory.net/rapid"
)

// noon is when responses come in these tests.
var noon = time.Date(2026, 5, 4, 12, 0, 0, 0, time.UTC)

// conditions maps every condition's word to the condition.
func conditions() map[string]policy.Condition {
	all := map[string]policy.Condition{}
	for c := policy.Answered; c <= policy.FuncIgnored; c++ {
		all[c.String()] = c
	}
	return all
}

func TestDecisionVectors(t *testing.T) {
	t.Parallel()
	type vector struct {
		Name            string
		Method          string
		Status          int
		Error           string
		Attempt         int
		RequestHeaders  map[string]string `json:"request_headers"`
		ResponseHeaders map[string]string `json:"response_headers"`
		Options         struct {
			Retry500               bool `json:"retry_500"`
			RetryThrottledWrites   bool `json:"retry_throttled_writes"`
			RetryUnavailableWrites bool `json:"retry_unavailable_writes"`
		}
		Want struct{ Action, Breaker string }
	}
	header := func(m map[string]string) http.Header {
		h := http.Header{}
		for name, value := range m {
			h.Set(name, value)
		}
		return h
	}
	known := conditions()
	for _, v := range readVectors[vector](t, "decisions.json") {
		t.Run(v.Name, func(t *testing.T) {
			t.Parallel()
			r := policy.Interactive()
			r.Retry500 = v.Options.Retry500
			r.RetryThrottledWrites = v.Options.RetryThrottledWrites
			r.RetryUnavailableWrites = v.Options.RetryUnavailableWrites
			request := header(v.RequestHeaders)
			a := policy.Attempt{
				Method: v.Method, Idempotent: policy.Idempotent(v.Method, request), Number: max(v.Attempt, 1),
				Status: v.Status, Header: header(v.ResponseHeaders), Expect: request.Get("Expect") != "",
			}
			if v.Error != "" {
				condition, ok := known[v.Error]
				if !ok {
					t.Fatalf("no condition %q", v.Error)
				}
				a.Condition = condition
			}
			got := r.Decide(a, noon)
			if got.Action.String() != v.Want.Action || got.Outcome.String() != v.Want.Breaker {
				t.Errorf("got %v, %v, want %s, %s", got.Action, got.Outcome, v.Want.Action, v.Want.Breaker)
			}
			if (got.Action == policy.Stop) != (got.Reason != "") {
				t.Errorf("action %v with reason %q", got.Action, got.Reason)
			}
		})
	}
}

func TestConditionWords(t *testing.T) {
	t.Parallel()
	if got, want := len(conditions()), int(policy.FuncIgnored)+1; got != want {
		t.Errorf("%d words for %d conditions", got, want)
	}
	for word := range conditions() {
		if word == "" {
			t.Error("a condition has no word")
		}
	}
	if got := policy.Condition(255).String(); got != "other_error" {
		t.Errorf("unknown condition reads as %q, want other_error", got)
	}
}

func TestDecide(t *testing.T) {
	t.Parallel()
	writes := policy.Interactive()
	writes.RetryThrottledWrites, writes.RetryUnavailableWrites = true, true
	for _, c := range []struct {
		name string
		r    policy.RetryPolicy
		a    policy.Attempt
		want policy.Verdict
	}{
		{"zero attempt", policy.Interactive(), policy.Attempt{},
			policy.Verdict{Outcome: policy.Failure, Reason: policy.StopNotRetryable}},
		{"success", policy.Interactive(), policy.Attempt{Idempotent: true, Status: 200},
			policy.Verdict{Outcome: policy.Success, Reason: policy.StopDone}},
		{"a refusal is an answer", policy.Interactive(), policy.Attempt{Idempotent: true, Status: 404},
			policy.Verdict{Outcome: policy.Success, Reason: policy.StopDone}},
		{"a veto on success is no reason to stop", policy.Interactive(), policy.Attempt{Status: 200, Header: headerOf("x-should-retry", "false")},
			policy.Verdict{Outcome: policy.Success, Reason: policy.StopDone}},
		{"veto comes before not retryable", policy.Interactive(), policy.Attempt{Status: 503, Header: headerOf("x-should-retry", " False ")},
			policy.Verdict{Outcome: policy.Failure, Reason: policy.StopVeto}},
		{"veto on 421", policy.Interactive(), policy.Attempt{Status: 421, Header: headerOf("Retry-Status", "exhausted")},
			policy.Verdict{Outcome: policy.Ignored, Reason: policy.StopVeto}},
		{"permission to retry permits nothing", policy.Interactive(), policy.Attempt{Status: 503, Header: headerOf("x-should-retry", "true")},
			policy.Verdict{Outcome: policy.Failure, Reason: policy.StopNotRetryable}},

		{"demand", policy.Interactive(), policy.Attempt{Idempotent: true, Status: 429, Header: headerOf("Retry-After", "7")},
			policy.Verdict{Action: policy.Retry, Outcome: policy.Throttled, After: 7 * time.Second, Hint: policy.HintValid}},
		{"unreadable demand", policy.Interactive(), policy.Attempt{Idempotent: true, Status: 502, Header: headerOf("Retry-After", "soon")},
			policy.Verdict{Action: policy.Retry, Outcome: policy.Failure, Hint: policy.HintInvalid}},
		{"a demand makes nothing retryable", writes, policy.Attempt{Idempotent: true, Status: 500, Header: headerOf("Retry-After", "7")},
			policy.Verdict{Outcome: policy.Failure, Reason: policy.StopNotRetryable}},
		{"413 with a demand", policy.Interactive(), policy.Attempt{Idempotent: true, Status: 413, Header: headerOf("Retry-After", "7")},
			policy.Verdict{Outcome: policy.Success, Reason: policy.StopDone}},
		{"unavailable write, demand for now", writes, policy.Attempt{Status: 503, Header: headerOf("Retry-After", "0")},
			policy.Verdict{Action: policy.Retry, Outcome: policy.Failure, Hint: policy.HintValid}},
		{"unavailable write, unreadable demand", writes, policy.Attempt{Status: 503, Header: headerOf("Retry-After", "soon")},
			policy.Verdict{Outcome: policy.Failure, Reason: policy.StopNotRetryable}},
		{"unavailable write, only a rate limit", writes, policy.Attempt{Status: 503, Header: headerOf("RateLimit", `"a";r=0;t=5`)},
			policy.Verdict{Outcome: policy.Failure, Reason: policy.StopNotRetryable}},
		{"write, 502 stays unknown", writes, policy.Attempt{Status: 502, Header: headerOf("Retry-After", "1")},
			policy.Verdict{Outcome: policy.Failure, Reason: policy.StopNotRetryable}},

		{"421 again", policy.Interactive(), policy.Attempt{Idempotent: true, Number: 2, Status: 421, NewConnection: true},
			policy.Verdict{Outcome: policy.Ignored, Reason: policy.StopNotRetryable}},
		{"421 after another failure", policy.Interactive(), policy.Attempt{Number: 2, Status: 421},
			policy.Verdict{Action: policy.RetryNewConnection, Outcome: policy.Ignored}},
		{"417 without our Expect", policy.Interactive(), policy.Attempt{Idempotent: true, Status: 417},
			policy.Verdict{Outcome: policy.Success, Reason: policy.StopDone}},
		{"600", policy.Interactive(), policy.Attempt{Idempotent: true, Status: 600},
			policy.Verdict{Outcome: policy.Failure, Reason: policy.StopNotRetryable}},

		{"101", policy.Interactive(), policy.Attempt{Idempotent: true, Status: 101},
			policy.Verdict{Outcome: policy.Success, Reason: policy.StopDone}},
		{"refused tunnel", policy.Interactive(), policy.Attempt{Method: "CONNECT", Idempotent: true, Status: 503},
			policy.Verdict{Outcome: policy.Failure, Reason: policy.StopNotRetryable}},
		{"tunnel that could not be dialled", policy.Interactive(), policy.Attempt{Method: "CONNECT", Condition: policy.DialRefused},
			policy.Verdict{Action: policy.Retry, Outcome: policy.Failure}},
		{"event stream", policy.Interactive(), policy.Attempt{Idempotent: true, Status: 503, Header: headerOf("Content-Type", "Text/Event-Stream; charset=utf-8")},
			policy.Verdict{Outcome: policy.Failure, Reason: policy.StopNotRetryable}},

		{"caller cancelled", policy.Interactive(), policy.Attempt{Idempotent: true, Condition: policy.CallerCancelled},
			policy.Verdict{Outcome: policy.Ignored, Reason: policy.StopCancelled}},
		{"deadline cut the attempt short", policy.Interactive(), policy.Attempt{Idempotent: true, Condition: policy.OverallDeadline},
			policy.Verdict{Outcome: policy.Ignored, Reason: policy.StopDeadline}},
		{"deadline after the attempt's full time", policy.Interactive(), policy.Attempt{Idempotent: true, Condition: policy.OverallDeadline, FullTime: true},
			policy.Verdict{Outcome: policy.Failure, Reason: policy.StopDeadline}},
		{"body broke", policy.Interactive(), policy.Attempt{Idempotent: true, Condition: policy.BodyBroken, Status: 200},
			policy.Verdict{Outcome: policy.Failure, Reason: policy.StopNotRetryable}},
		{"write, timed out before it was sent", policy.Interactive(), policy.Attempt{Condition: policy.TimeoutBeforeHeaders},
			policy.Verdict{Action: policy.Retry, Outcome: policy.Failure}},
		{"write, refused stream", policy.Interactive(), policy.Attempt{Condition: policy.RefusedStream},
			policy.Verdict{Action: policy.Retry, Outcome: policy.Ignored}},
		{"write, stream error", policy.Interactive(), policy.Attempt{Condition: policy.StreamError},
			policy.Verdict{Outcome: policy.Failure, Reason: policy.StopNotRetryable}},
		{"function that must not be repeated", policy.Interactive(), policy.Attempt{Condition: policy.FuncFailed},
			policy.Verdict{Outcome: policy.Failure, Reason: policy.StopNotRetryable}},
		{"unknown condition", policy.Interactive(), policy.Attempt{Condition: 255},
			policy.Verdict{Outcome: policy.Failure, Reason: policy.StopNotRetryable}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			if got := c.r.Decide(c.a, noon); got != c.want {
				t.Errorf("got %+v, want %+v", got, c.want)
			}
		})
	}
}

func TestIdempotent(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		method string
		h      http.Header
		want   bool
	}{
		{"", nil, true}, // net/http's GET
		{"GET", nil, true}, {"HEAD", nil, true}, {"OPTIONS", nil, true}, {"PUT", nil, true}, {"DELETE", nil, true},
		{"POST", nil, false}, {"PATCH", nil, false}, {"CONNECT", nil, false}, {"get", nil, false},
		{"POST", headerOf("idempotency-key", "k"), true},
		{"POST", headerOf("Idempotency-Key", " "), false},
		{"POST", headerOf("Idempotency-Key", `""`), false},
		{"POST", headerOf("Idempotency-Key", "", "Idempotency-Key", "k"), true},
		{"POST", headerOf("X-Request-Token", "k"), true},
		{"POST", headerOf("X-Other", "k"), false},
	} {
		if got := policy.Idempotent(c.method, c.h, "x-request-token"); got != c.want {
			t.Errorf("Idempotent(%q, %v) = %v, want %v", c.method, c.h, got, c.want)
		}
	}
}

func TestVetoed(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		h    http.Header
		want bool
	}{
		{nil, false},
		{headerOf("X-Should-Retry", "false"), true},
		{headerOf("X-Should-Retry", "no"), false},
		{headerOf("X-Should-Retry", "true", "X-Should-Retry", "false"), true},
		{headerOf("Retry-Status", "exhausted"), true},
		{headerOf("Retry-Status", `exhausted; dependency="a"; attempts=3; reason=attempts`), true},
		{headerOf("Retry-Status", `active; reason="x, exhausted"`), false},
		{headerOf("Retry-Status", `active; reason=x, exhausted;attempts=2`), true},
		{headerOf("Retry-Status", "exhausted2"), false},
		{headerOf("Retry-Status", ""), false},
	} {
		if got := policy.Vetoed(c.h); got != c.want {
			t.Errorf("Vetoed(%v) = %v, want %v", c.h, got, c.want)
		}
	}
}

// TestWritesAreRepeatedOnlyWhenSafe states the promise behind the whole table once more, from the other side: without
// an opt-in, a request that is not idempotent is sent again only where the dependency cannot have acted on it.
func TestWritesAreRepeatedOnlyWhenSafe(t *testing.T) {
	t.Parallel()
	neverSeen := map[policy.Condition]bool{
		policy.DialRefused: true, policy.DialUnreachable: true, policy.DialTimeout: true, policy.DNSTemporary: true,
		policy.TLSTimeout: true, policy.EOFBeforeHeaders: true, policy.ResetBeforeHeaders: true,
		policy.TimeoutBeforeHeaders: true, policy.RefusedStream: true, policy.GoAway: true,
	}
	rapid.Check(t, func(t *rapid.T) {
		a := policy.Attempt{
			Condition: policy.Condition(rapid.Uint8().Draw(t, "condition")),
			Status:    rapid.IntRange(-1, 700).Draw(t, "status"),
			Number:    rapid.IntRange(0, 20).Draw(t, "number"),
			Expect:    rapid.Bool().Draw(t, "expect"),
		}
		if got := policy.Interactive().Decide(a, noon); got.Action != policy.Stop && !neverSeen[a.Condition] {
			refused := a.Condition == policy.Answered && (a.Status == 421 || a.Status == 417 && a.Expect)
			if !refused {
				t.Fatalf("%+v is retried: %+v", a, got)
			}
		}
	})
}

// FuzzDecision: no attempt, however odd, gets a verdict that contradicts itself, a retry against a veto, or a wait
// outside its bounds.
func FuzzDecision(f *testing.F) {
	f.Add("GET", uint8(0), 503, 1, uint8(0b1), "7", "", "", "")
	f.Add("POST", uint8(0), 503, 1, uint8(0b1110), "0", "false", "exhausted", "text/event-stream")
	f.Add("CONNECT", uint8(24), 421, -1, uint8(0xff), "Mon, 04 May 2026 12:00:30 GMT", "true", `a;b="exhausted,"`, "text/html")
	f.Add("", uint8(255), 0, 1_000_000, uint8(0b100000), "99999999999999999999", "", ", exhausted", "")
	f.Fuzz(func(t *testing.T, method string, condition uint8, status, number int, flags uint8, after, veto, layers, media string) {
		bit := func(n int) bool { return flags>>n&1 == 1 }
		r := policy.Interactive()
		r.Retry500, r.RetryThrottledWrites, r.RetryUnavailableWrites = bit(1), bit(2), bit(3)
		r.Jitter = policy.Jitter(flags % 6)
		a := policy.Attempt{
			Method: method, Idempotent: bit(0), Number: number, Condition: policy.Condition(condition), Status: status,
			Header: headerOf("Retry-After", after, "X-Should-Retry", veto, "Retry-Status", layers, "Content-Type", media),
			Expect: bit(4), NewConnection: bit(5), FullTime: bit(6),
		}
		v := r.Decide(a, noon)
		if (v.Action == policy.Stop) != (v.Reason != "") {
			t.Fatalf("%+v: action %v with reason %q", a, v.Action, v.Reason)
		}
		if (v.Reason == policy.StopDone) != (v.Outcome == policy.Success) {
			t.Fatalf("%+v: outcome %v with reason %q", a, v.Outcome, v.Reason)
		}
		if v.Action != policy.Stop && strings.EqualFold(veto, "false") {
			t.Fatalf("%+v: retried against a veto", a)
		}
		if v.After < 0 || v.After > 0 && (v.Action == policy.Stop || v.Hint != policy.HintValid) {
			t.Fatalf("%+v: demand of %v in %+v", a, v.After, v)
		}
		if wait := r.Backoff(number, v.After, 0.7); wait < 0 || wait > r.Cap {
			t.Fatalf("backoff %v, want within [0, %v]", wait, r.Cap)
		}
		wait, stop := r.Next(policy.Call{
			Now: noon, Deadline: noon.Add(r.Deadline), Attempts: number, Verdict: v, Draw: 0.7, Replayable: true, BreakerClosed: true,
		})
		if stop != "" && wait != 0 || wait < 0 || wait < v.After && stop == "" || wait >= r.Deadline {
			t.Fatalf("%+v: wait %v, stop %q", v, wait, stop)
		}
	})
}

// TestDecideAllocatesNothing: it runs after every attempt, and nearly all of them succeed.
//
//nolint:paralleltest // AllocsPerRun counts the whole process
func TestDecideAllocatesNothing(t *testing.T) {
	r, h := policy.Interactive(), headerOf("Content-Type", "application/json")
	for _, status := range []int{200, 404, 500} {
		a := policy.Attempt{Method: "GET", Idempotent: true, Number: 1, Status: status, Header: h}
		if got := testing.AllocsPerRun(100, func() { _ = r.Decide(a, noon) }); got != 0 {
			t.Errorf("status %d: %v allocations, want none", status, got)
		}
	}
}

func BenchmarkDecide(b *testing.B) {
	r := policy.Interactive()
	a := policy.Attempt{Method: "GET", Idempotent: true, Number: 1, Status: 200, Header: headerOf("Content-Type", "application/json")}
	b.ReportAllocs()
	for b.Loop() {
		_ = r.Decide(a, noon)
	}
}
