package client

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"

	"github.com/retryplane/retryplane/pkg/policy"
)

// requestBody sends the body of one request as often as it takes. The transport closes what open returns, as it does
// with every body, possibly after RoundTrip returned: a response can come while the request is still being sent.
type requestBody interface {
	open() (io.ReadCloser, error) // from its beginning; what was opened before gets nothing more
	usable() error                // nil if it can be opened again; errBodyLost, or why reading the caller's body failed
	finish()                      // no further open follows

	// interrupt frees a transport that waits in Read for a caller's body that does not come. Without it, net/http
	// does not return before Read does, whatever the context says.
	interrupt()
}

var (
	errBodyLost        = errors.New("request body cannot be sent again: it is larger than the replay buffer")
	errBodyInterrupted = errors.New("request body did not come in time")
)

// newRequestBody returns nil for a request without a body. Without retries nothing is kept. A body that the request can
// copy is put into copied.
func newRequestBody(req *http.Request, set *policy.RetryPolicy, copied *copiedBody) requestBody {
	switch {
	case req.Body == nil || req.Body == http.NoBody:
		return nil
	case req.GetBody != nil:
		copied.src, copied.getBody = req.Body, req.GetBody
		return copied
	case set.Attempts <= 1 || req.ContentLength > set.ReplayBuffer:
		return &keptBody{src: req.Body}
	}
	return &keptBody{src: req.Body, limit: set.ReplayBuffer}
}

// copiedBody is a body that the request can copy.
type copiedBody struct {
	src     io.ReadCloser // the first copy
	getBody func() (io.ReadCloser, error)

	mu      sync.Mutex // guards what follows and the readers, not held while one reads
	current *copyReader
	failed  error

	first copyReader
}

func (b *copiedBody) open() (io.ReadCloser, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.current == nil {
		b.first = copyReader{ReadCloser: b.src, b: b}
		b.current = &b.first
		return b.current, nil
	}
	body, err := b.getBody()
	if err != nil {
		b.failed = fmt.Errorf("copy the request body: %w", err)
		return nil, b.failed
	}
	b.current = &copyReader{ReadCloser: body, b: b}
	return b.current, nil
}

func (b *copiedBody) usable() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.failed
}

func (b *copiedBody) finish() {
	b.mu.Lock()
	unused := b.current == nil
	b.mu.Unlock()
	if unused {
		b.src.Close()
	}
}

func (b *copiedBody) interrupt() {
	b.mu.Lock()
	r := b.current
	stuck := r != nil && r.reading
	b.mu.Unlock()
	if stuck {
		r.Close()
	}
}

// copyReader is one copy being sent.
type copyReader struct {
	io.ReadCloser
	b       *copiedBody
	reading bool
	closed  bool
}

func (r *copyReader) Read(p []byte) (int, error) {
	r.b.mu.Lock()
	r.reading = true
	r.b.mu.Unlock()
	n, err := r.ReadCloser.Read(p)
	r.b.mu.Lock()
	defer r.b.mu.Unlock()
	r.reading = false
	if err != nil && err != io.EOF && !r.closed { // a read that Close cut off did not fail
		r.b.failed = err
	}
	return n, err
}

func (r *copyReader) Close() error {
	r.b.mu.Lock()
	r.closed = true
	r.b.mu.Unlock()
	return r.ReadCloser.Close()
}

// keptBody is a body that can be read once. What is read of it is kept, up to limit bytes; a body that is larger can
// be sent again only as long as nothing was read of it.
type keptBody struct {
	src   io.ReadCloser
	limit int64 // 0 = nothing is kept

	turn sync.Mutex // held while src is read: a new attempt waits for what an old one is just getting

	mu      sync.Mutex // guards what follows and the readers, not held while src is read
	kept    []byte     // all of it, unless lost
	read    int64      // of src
	lost    bool       // more was read than may be kept
	srcErr  error      // how src ended
	failed  error
	reading bool
	current *keptReader // nil before the first
	over    bool        // no further open
	closed  bool        // src is
}

func (b *keptBody) open() (io.ReadCloser, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if err := b.unusable(); err != nil {
		return nil, err
	}
	b.current = &keptReader{b: b}
	return b.current, nil
}

func (b *keptBody) usable() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.unusable()
}

func (b *keptBody) unusable() error {
	if b.failed == nil && b.lost {
		return errBodyLost
	}
	return b.failed
}

func (b *keptBody) finish() {
	b.mu.Lock()
	b.over = true
	idle := b.current == nil || b.current.closed
	b.mu.Unlock()
	if idle {
		b.closeSource()
	}
}

func (b *keptBody) interrupt() {
	b.mu.Lock()
	stuck := b.reading
	if stuck && b.failed == nil {
		b.failed = errBodyInterrupted
	}
	b.mu.Unlock()
	if stuck {
		b.closeSource()
	}
}

func (b *keptBody) closeSource() {
	b.mu.Lock()
	closed := b.closed
	b.closed, b.kept = true, nil
	b.mu.Unlock()
	if !closed {
		b.src.Close()
	}
}

// keptReader is the body being sent by one attempt.
type keptReader struct {
	b      *keptBody
	off    int64 // bytes it has given out
	closed bool
}

func (r *keptReader) Read(p []byte) (int, error) {
	b := r.b
	b.turn.Lock()
	defer b.turn.Unlock()
	if n, err, done := r.again(p); done {
		return n, err
	}

	n, err := b.src.Read(p)

	b.mu.Lock()
	defer b.mu.Unlock()
	b.reading = false
	b.read += int64(n)
	r.off += int64(n)
	if b.read <= b.limit {
		b.kept = append(b.kept, p[:n]...)
	} else {
		b.kept, b.lost = nil, true
	}
	if err != nil {
		b.srcErr = err
		if err != io.EOF && b.failed == nil {
			b.failed = err
		}
	}
	return n, err
}

// again reads what was kept. Where nothing more was, done is false, and src is to be read next.
func (r *keptReader) again(p []byte) (n int, err error, done bool) {
	b := r.b
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case r.closed || r != b.current:
		return 0, http.ErrBodyReadAfterClose, true
	case r.off < int64(len(b.kept)):
		n = copy(p, b.kept[r.off:])
		r.off += int64(n)
		return n, nil, true
	case r.off < b.read:
		// An earlier attempt, which was just reading when this one began, got more than may be kept.
		b.failed = errBodyLost
		return 0, errBodyLost, true
	case b.srcErr != nil:
		return 0, b.srcErr, true
	}
	b.reading = true
	return 0, nil, false
}

func (r *keptReader) Close() error {
	b := r.b
	b.mu.Lock()
	r.closed = true
	last := b.over && r == b.current
	b.mu.Unlock()
	if last {
		b.closeSource()
	}
	return nil
}
