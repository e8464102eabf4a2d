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
	out := &chunkWriter{w: w, r: r, media: media, limiter: limiter, buf: (*b)[:0], pooled: b}
	if s, ok := limiter.(*slowLimit); ok {
		s.started = &out.started
	}
	return out
}

// flushChunk sends the buffer if it has at least chunkSize bytes or all is set. It returns false if
// the response is abandoned.
func (out *chunkWriter) flushChunk(all bool) bool {
	if len(out.buf) < chunkSize && !all {
		return true
	}
	// 1. Write the buffer without holding the limiter, and measure how long the client blocks.
	out.sendHeaders()
	out.audited.Write(out.buf)
	if !out.abandoned && out.r.Method != http.MethodHead {
		out.releaseLimiter()
		start := time.Now()
		_, err := out.w.Write(out.buf)
		out.waited += time.Since(start)
		isLate := !all && out.extendedContext().Err() != nil // the last chunk is complete anyway
		if err != nil || isLate {
			out.markAbandoned()
		}
	}
	// 2. Encode the next chunk with the limiter.
	out.buf = out.buf[:0]
	if !all {
		out.acquireLimiter()
	}
	return !out.abandoned
}

// extendedContext returns the context of the request. The time that the response has waited for its
// client is added to the deadline: a client may read slowly.
func (out *chunkWriter) extendedContext() context.Context {
	ctx := out.r.Context()
	deadline, _ := ctx.Deadline()
	if errors.Is(ctx.Err(), context.DeadlineExceeded) && time.Since(deadline) < out.waited {
		return context.WithoutCancel(ctx)
	}
	return ctx
}

// acquireLimiter waits for the limiter to encode the next chunk. The first chunk needs it only if
// slow is set.
func (out *chunkWriter) acquireLimiter() {
	if out.limiter == nil || out.acquired || out.abandoned {
		return
	}
	err := out.limiter.Acquire(out.extendedContext())
	out.acquired = err == nil
	if !out.acquired {
		out.markAbandoned()
		out.limitErr = err
	}
}

// markAbandoned marks the response as abandoned.
func (out *chunkWriter) markAbandoned() {
	out.abandoned = true
	out.deadlinePassed = errors.Is(out.r.Context().Err(), context.DeadlineExceeded)
}

// releaseLimiter releases the limiter.
func (out *chunkWriter) releaseLimiter() {
	if out.acquired {
		out.acquired = false
		out.limiter.Release()
	}
}

// yieldLimiter releases the limiter and acquires it again. Callers use it after reading many
// objects, even if none of them is written. It returns false if the response is abandoned.
func (out *chunkWriter) yieldLimiter() bool {
	out.releaseLimiter()
	out.acquireLimiter()
	return !out.abandoned
}

// writeShared writes b, which other responses may use at the same time. It copies b into the
// buffer if b has fewer than largeItem bytes. Otherwise it sends the buffer and then b itself.
func (out *chunkWriter) writeShared(b []byte) error {
	if len(b) < largeItem {
		out.buf = append(out.buf, b...)
		return out.flushItem(nil)
	}
	if !out.flushChunk(true) {
		return errAbandoned
	}
	buf := out.buf
	out.buf = b
	defer func() { out.buf = buf }()
	if out.flushChunk(true) {
		out.acquireLimiter()
	}
	if out.abandoned {
		return errAbandoned
	}
	return nil
}

// Write implements io.Writer for the compressor.
func (out *chunkWriter) Write(b []byte) (int, error) {
	out.buf = append(out.buf, b...)
	out.flushChunk(false)
	return len(b), nil
}

// sendHeaders sends the headers before the first chunk.
func (out *chunkWriter) sendHeaders() {
	if out.started {
		return
	}
	out.started = true
	header := out.w.Header()
	header.Set("Content-Type", out.media)
	header.Set("Cache-Control", "no-cache, private")
	SendWarnings(out.w, out.r)
	out.w.WriteHeader(http.StatusOK)
}

// finish sends the rest of the response and releases the buffer. If the response is abandoned, it
// calls fail.
func (out *chunkWriter) finish() error {
	if out.abandoned {
		return out.fail(errAbandoned)
	}
	out.flushChunk(true)
	out.audited.Close()
	out.releaseBuffer()
	return nil
}

// errAbandoned means that the rest of the response is not needed.
var errAbandoned = errors.New("response abandoned")

// flushItem flushes the buffer after an item was appended. err is the error of appending it. It
// returns errAbandoned if the response is abandoned.
func (out *chunkWriter) flushItem(err error) error {
	if err == nil && !out.flushChunk(false) {
		return errAbandoned
	}
	return err
}

// fail releases the buffer and terminates the response with an error. If nothing has been sent, it
// returns the error for the client. Otherwise it panics with http.ErrAbortHandler, which closes the
// connection, so that the client does not take a partial response for a complete one. It returns
// nil if the client has disconnected.
func (out *chunkWriter) fail(err error) error {
	out.releaseBuffer()
	switch {
	case !errors.Is(err, errAbandoned): // return err itself
	case out.deadlinePassed:
		err = asTimeout(out.r.Context().Err())
	case out.limitErr != nil && out.r.Context().Err() == nil:
		err = out.limitErr
	default:
		return nil
	}
	if out.started {
		panic(http.ErrAbortHandler)
	}
	out.w.Header().Del("Content-Encoding")
	return err
}

// releaseBuffer returns the buffer to the pool and drops the copy for the audit log unless it was
// closed.
func (out *chunkWriter) releaseBuffer() {
	out.audited.Drop()
	if cap(out.buf) <= maxPooledBytes {
		*out.pooled = out.buf[:0]
		chunkBuffers.Put(out.pooled)
	}
	out.buf = nil
	out.pooled = nil
}

// chunkSize is the approximate size in bytes of the chunks of a response.
const chunkSize = 128 << 10

const (
	// largeItem is the size in bytes from which an object is not copied into a chunk.
	largeItem = 64 << 10
	// maxPooledBytes is the maximum size in bytes of buffers that are returned to the pool.
	maxPooledBytes = 256 << 10
)
