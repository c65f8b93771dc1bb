package policy

import (
	"net/http"
	"strconv"
	"strings"
	"time"
)

// The headers by which layers that retry tell each other: Retry-Context travels with a request, Retry-Status with the
// answer. Both are structured fields (RFC 8941).
const (
	RetryContextHeader = "Retry-Context"
	RetryStatusHeader  = "Retry-Status"
)

// Limits of a Retry-Context. What is beyond them is malformed.
const (
	MaxRetryLayers  = 8
	MaxRetryContext = 512 // bytes of all its lines
	maxLayerText    = 64  // bytes of a layer's name, and of its id
)

// RetryLayer is one layer that may retry, as its attempts tell the layers below.
type RetryLayer struct {
	Name      string        // of the program; printable ASCII, at most 64 bytes
	ID        string        // of the call, the same for all its attempts; printable ASCII, at most 64 bytes; "" = not told
	Attempt   int           // 1 = first attempt
	Most      int           // most attempts that the layer makes
	Remaining time.Duration // before the layer's deadline; 0 = not told
}

// RetryContext is the layers above, the outermost first. nil = none is known.
//
//	Retry-Context: "shop";id="k3j9";a=2;m=3;d=1500, "checkout";a=1;m=3
type RetryContext []RetryLayer

// Retrying reports whether the request is a retry of any layer. Then this layer makes one attempt only: a retry of a
// retry is how three layers of three attempts make 27 sends of one request.
func (c RetryContext) Retrying() bool {
	for _, l := range c {
		if l.Attempt > 1 {
			return true
		}
	}
	return false
}

// With returns the context for what own sends. Where there is no room for it, own takes the place of the last layer, and
// the higher attempt of the two. c is not changed.
func (c RetryContext) With(own RetryLayer) RetryContext {
	out := append(make(RetryContext, 0, len(c)+1), c...)
	own.Name, own.ID = headerText(own.Name), headerText(own.ID)
	out = append(out, own)
	for len(out) > 1 && (len(out) > MaxRetryLayers || len(out.String()) > MaxRetryContext) {
		last := len(out) - 1
		own.Attempt = max(own.Attempt, out[last-1].Attempt)
		out[last-1] = own
		out = out[:last]
	}
	return out
}

// String is the header's value; "" for none.
func (c RetryContext) String() string {
	var b []byte
	for i, l := range c {
		if i > 0 {
			b = append(b, ", "...)
		}
		b = appendText(b, l.Name)
		if l.ID != "" {
			b = appendText(append(b, ";id="...), l.ID)
		}
		b = strconv.AppendInt(append(b, ";a="...), int64(l.Attempt), 10)
		b = strconv.AppendInt(append(b, ";m="...), int64(l.Most), 10)
		if l.Remaining > 0 {
			b = strconv.AppendInt(append(b, ";d="...), l.Remaining.Milliseconds(), 10)
		}
	}
	return string(b)
}

// ParseRetryContext reads what the layers above say about a request: Retry-Context, and the counters of others, of which
// each is one more layer: x-envoy-attempt-count, and grpc-previous-rpc-attempts, which does not count the attempt itself.
// ok is false if a header is there and malformed; it is ignored as a whole then. A forged header can only reduce retries.
func ParseRetryContext(h http.Header) (c RetryContext, ok bool) {
	ok = true
	if lines := h[RetryContextHeader]; len(lines) > 0 {
		c, ok = parseLayers(strings.Join(lines, ","))
	}
	for _, other := range [...]struct {
		name string
		plus int // to make it the attempt's number
	}{{"X-Envoy-Attempt-Count", 0}, {"Grpc-Previous-Rpc-Attempts", 1}} {
		lines := h[other.name]
		if len(lines) == 0 {
			continue
		}
		n, good := count(trimBlanks(lines[0]))
		if !good {
			ok = false
			continue
		}
		if n += other.plus; n > 1 && len(c) < MaxRetryLayers {
			c = append(c, RetryLayer{Name: strings.ToLower(other.name), Attempt: n, Most: n})
		}
	}
	return c, ok
}

func parseLayers(s string) (RetryContext, bool) {
	if len(s) > MaxRetryContext {
		return nil, false
	}
	var c RetryContext
	p := fieldParser{s}
	for {
		l, ok := p.layer()
		if !ok || len(c) == MaxRetryLayers {
			return nil, false
		}
		c = append(c, l)
		p.blanks()
		if p.rest == "" {
			return c, true
		}
		if !p.eat(',') {
			return nil, false
		}
	}
}

// layer reads one member of the list.
func (p *fieldParser) layer() (l RetryLayer, ok bool) {
	p.blanks()
	if l.Name, ok = p.text(); !ok || len(l.Name) > maxLayerText {
		return l, false
	}
	for p.eat(';') {
		p.blanks()
		key := p.key()
		if key == "" {
			return l, false
		}
		value, ok, text := "", true, false // without a value it is a flag
		if p.eat('=') {
			if text = strings.HasPrefix(p.rest, `"`); text || p.token() {
				value, ok = p.text()
			} else {
				value, ok = p.other()
			}
		}
		if !ok {
			return l, false
		}
		number, numeric := count(value)
		switch key { // others are not ours to judge
		case "id":
			l.ID = value
			ok = value != "" && len(value) <= maxLayerText
		case "a":
			l.Attempt, ok = number, numeric && !text
		case "m":
			l.Most, ok = number, numeric && !text
		case "d":
			l.Remaining, ok = time.Duration(number)*time.Millisecond, numeric && !text
		}
		if !ok {
			return l, false
		}
	}
	return l, l.Attempt >= 1 && l.Most >= 1
}

// RetryStatus says of an answer that the layer which gives it has retried for its caller, and gave up: the caller need
// not try again.
type RetryStatus struct {
	Dependency string     // which failed it
	Attempts   int        // sent to it
	Reason     StopReason // why no further one followed
}

// String is the header's value.
func (s RetryStatus) String() string {
	b := appendText([]byte("exhausted;dependency="), headerText(s.Dependency))
	b = strconv.AppendInt(append(b, ";attempts="...), int64(s.Attempts), 10)
	return string(appendText(append(b, ";reason="...), headerText(string(s.Reason))))
}
