package responsewriters

import (
	"context"
	"net/http"
)

// Limiter limits the number of long responses that are encoded at a time. A response holds the
// limiter for each piece of 128 KiB. Short responses are not limited, so that they do not wait
// behind long ones. The limiter is not held while a piece is written or the store is read. Nil
// disables the limit.
type Limiter interface {
	// Acquire acquires the limiter, which Release releases. It fails when ctx ends.
	Acquire(ctx context.Context) error
	Release()
}

// SlowLimiter limits the number of requests that encode slow forms, fairly between client
// addresses. Human-readable forms acquire it for some objects at a time, because each object takes
// longer than a piece of a list in other forms. Nil disables the limit.
type SlowLimiter interface {
	// Acquire acquires the limiter, which Release releases. It fails when the request ends. It fails
	// immediately if too many requests wait and the response has not begun.
	Acquire(r *http.Request, started bool) error
	Release()
}

// slowLimit implements Limiter for one request with SlowLimiter.
type slowLimit struct {
	SlowLimiter
	request *http.Request
	begun   *bool // whether the response has begun; may be nil
}
