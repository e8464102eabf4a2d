package responsewriters

import (
	"context"
	"net/http"
	"sync"

	"binnacle/services/apiserver/internal/cache/watchcache"
)

// Conversions holds the running conversions of objects by webhooks. An entry is converted once for
// all concurrent requests, and the result is kept on it like an encoding.
type Conversions struct {
	mu      sync.Mutex // leaf lock
	running map[conversion]*flight
}

// conversion identifies the conversion of an entry to a version.
type conversion struct {
	entry *watchcache.Entry
	form  watchcache.Form
}

// flight is a running conversion. doc and err are valid once done is closed.
type flight struct {
	done chan struct{}
	doc  []byte
	err  error
}

// NewConversions returns Conversions for all responses of a server.
func NewConversions() *Conversions { return &Conversions{running: map[conversion]*flight{}} }

// Limiter limits the number of long responses that are encoded at a time. A response holds the
// limiter for each chunk of 128 KiB. Short responses are not limited, so that they do not wait
// behind long ones. The limiter is not held while a chunk is written or the store is read. Nil
// disables the limit.
type Limiter interface {
	// Acquire acquires the limiter, which Release releases. It fails when ctx ends.
	Acquire(ctx context.Context) error
	Release()
}

// SlowLimiter limits the number of requests that encode slow forms, fairly between client
// addresses. Human-readable forms acquire it for some objects at a time, because each object takes
// longer than a chunk of a list in other forms. Nil disables the limit.
type SlowLimiter interface {
	// Acquire acquires the limiter, which Release releases. It fails when the request ends. It fails
	// immediately if too many requests wait and the response has not begun.
	Acquire(r *http.Request, begun bool) error
	Release()
}

// slowLimit implements Limiter for one request with SlowLimiter.
type slowLimit struct {
	SlowLimiter
	request *http.Request
	begun   *bool // whether the response has begun; may be nil
}
