package responsewriters

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"time"

	"binnacle/services/apiserver/internal/security/audit"
)

// chunkWriter writes a long response in chunks through a pooled buffer. Its methods must not be
// called concurrently. A response is abandoned if the client has disconnected, or if the deadline
// or the limiter stops it: markAbandoned only marks it, and later writes are dropped. The caller
// ends every response with either finish, which sends the rest, or fail, which reports an error to
// the client. Both return the buffer to the pool.
type chunkWriter struct {
	w              http.ResponseWriter
	r              *http.Request
	media          string        // Content-Type
	buf            []byte        // what is not sent yet
	pooled         *[]byte       // the pool's buffer, which buf uses
	started        bool          // the headers have been sent
	waited         time.Duration // time of waits for the client
	abandoned      bool          // the rest of the response is not needed
	deadlinePassed bool          // abandoned because the deadline has passed
	limitErr       error         // the error of the limiter that abandoned the response
	audited        *audit.Copy   // for the audit log
	limiter        Limiter
	acquired       bool // holds the limiter
	slow           bool // the first chunk needs the limiter too
}

var chunkBuffers = sync.Pool{New: func() any { b := make([]byte, 0, chunkSize+16<<10); return &b }}

// newChunkWriter returns a writer. The caller calls releaseLimiter at the end in every case.
func newChunkWriter(w http.ResponseWriter, r *http.Request, media string, limiter Limiter) *chunkWriter {
	b := chunkBuffers.Get().(*[]byte)
	p := &chunkWriter{w: w, r: r, media: media, limiter: limiter, buf: (*b)[:0], pooled: b}
	if s, ok := limiter.(*slowLimit); ok {
		s.started = &p.started
	}
	return p
}

// flushChunk sends the buffer if it has at least chunkSize bytes or all is set. It returns false if
// the response is abandoned.
func (p *chunkWriter) flushChunk(all bool) bool {
	if len(p.buf) < chunkSize && !all {
		return true
	}
	// 1. Write the buffer without holding the limiter, and measure how long the client blocks.
	p.sendHeaders()
	p.audited.Write(p.buf)
	if !p.abandoned && p.r.Method != http.MethodHead {
		p.releaseLimiter()
		start := time.Now()
		_, err := p.w.Write(p.buf)
		p.waited += time.Since(start)
		isLate := !all && p.extendedContext().Err() != nil // the last chunk is complete anyway
		if err != nil || isLate {
			p.markAbandoned()
		}
	}
	// 2. Encode the next chunk with the limiter.
	p.buf = p.buf[:0]
	if !all {
		p.acquireLimiter()
	}
	return !p.abandoned
}

// extendedContext returns the context of the request. The time that the response has waited for its
// client is added to the deadline: a client may read slowly.
func (p *chunkWriter) extendedContext() context.Context {
	ctx := p.r.Context()
	deadline, _ := ctx.Deadline()
	if errors.Is(ctx.Err(), context.DeadlineExceeded) && time.Since(deadline) < p.waited {
		return context.WithoutCancel(ctx)
	}
	return ctx
}

// acquireLimiter waits for the limiter to encode the next chunk. The first chunk needs it only if
// slow is set.
func (p *chunkWriter) acquireLimiter() {
	if p.limiter == nil || p.acquired || p.abandoned {
		return
	}
	err := p.limiter.Acquire(p.extendedContext())
	p.acquired = err == nil
	if !p.acquired {
		p.markAbandoned()
		p.limitErr = err
	}
}

// markAbandoned marks the response as abandoned.
func (p *chunkWriter) markAbandoned() {
	p.abandoned = true
	p.deadlinePassed = errors.Is(p.r.Context().Err(), context.DeadlineExceeded)
}

// releaseLimiter releases the limiter.
func (p *chunkWriter) releaseLimiter() {
	if p.acquired {
		p.acquired = false
		p.limiter.Release()
	}
}

// yieldLimiter releases the limiter and acquires it again. Callers use it after reading many
// objects, even if none of them is written. It returns false if the response is abandoned.
func (p *chunkWriter) yieldLimiter() bool {
	p.releaseLimiter()
	p.acquireLimiter()
	return !p.abandoned
}

// writeShared writes b, which other responses may use at the same time. It copies b into the
// buffer if b has fewer than largeItem bytes. Otherwise it sends the buffer and then b itself.
func (p *chunkWriter) writeShared(b []byte) error {
	if len(b) < largeItem {
		p.buf = append(p.buf, b...)
		return p.flushItem(nil)
	}
	if !p.flushChunk(true) {
		return errAbandoned
	}
	buf := p.buf
	p.buf = b
	defer func() { p.buf = buf }()
	if p.flushChunk(true) {
		p.acquireLimiter()
	}
	if p.abandoned {
		return errAbandoned
	}
	return nil
}

// Write implements io.Writer for the compressor.
func (p *chunkWriter) Write(b []byte) (int, error) {
	p.buf = append(p.buf, b...)
	p.flushChunk(false)
	return len(b), nil
}

// sendHeaders sends the headers before the first chunk.
func (p *chunkWriter) sendHeaders() {
	if p.started {
		return
	}
	p.started = true
	h := p.w.Header()
	h.Set("Content-Type", p.media)
	h.Set("Cache-Control", "no-cache, private")
	SendWarnings(p.w, p.r)
	p.w.WriteHeader(http.StatusOK)
}

// finish sends the rest of the response and releases the buffer. If the response is abandoned, it
// calls fail.
func (p *chunkWriter) finish() error {
	if p.abandoned {
		return p.fail(errAbandoned)
	}
	p.flushChunk(true)
	p.audited.Close()
	p.releaseBuffer()
	return nil
}

// errAbandoned means that the rest of the response is not needed.
var errAbandoned = errors.New("response abandoned")

// flushItem flushes the buffer after an item was appended. err is the error of appending it. It
// returns errAbandoned if the response is abandoned.
func (p *chunkWriter) flushItem(err error) error {
	if err == nil && !p.flushChunk(false) {
		return errAbandoned
	}
	return err
}

// fail releases the buffer and terminates the response with an error. If nothing has been sent, it
// returns the error for the client. Otherwise it panics with http.ErrAbortHandler, which closes the
// connection, so that the client does not take a partial response for a complete one. It returns
// nil if the client has disconnected.
func (p *chunkWriter) fail(err error) error {
	p.releaseBuffer()
	switch {
	case !errors.Is(err, errAbandoned): // return err itself
	case p.deadlinePassed:
		err = asTimeout(p.r.Context().Err())
	case p.limitErr != nil && p.r.Context().Err() == nil:
		err = p.limitErr
	default:
		return nil
	}
	if p.started {
		panic(http.ErrAbortHandler)
	}
	p.w.Header().Del("Content-Encoding")
	return err
}

// releaseBuffer returns the buffer to the pool and drops the copy for the audit log unless it was
// closed.
func (p *chunkWriter) releaseBuffer() {
	p.audited.Drop()
	if cap(p.buf) <= maxPooledBytes {
		*p.pooled = p.buf[:0]
		chunkBuffers.Put(p.pooled)
	}
	p.buf = nil
	p.pooled = nil
}

// chunkSize is the approximate size in bytes of the chunks of a response.
const chunkSize = 128 << 10

const (
	// largeItem is the size in bytes from which an object is not copied into a chunk.
	largeItem = 64 << 10
	// maxPooledBytes is the maximum size in bytes of buffers that are returned to the pool.
	maxPooledBytes = 256 << 10
)
