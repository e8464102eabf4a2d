package sharedreads

import (
	"context"
	"sync"

	"go.opentelemetry.io/otel/trace"
)

// Newest shares reads of the newest revision of the store.
type Newest struct {
	// read reads the revision. It bounds its own duration.
	read func(context.Context) (int64, error)

	mu      sync.Mutex // leaf lock
	running bool
	next    *newestRead // the read that callers may join; it has not started
}

// newestRead is one read of the newest revision, shared by its callers. The results are valid once
// done is closed.
type newestRead struct {
	// span is the span of the first traced request that needs the read.
	span     trace.Span
	done     chan struct{}
	revision int64
	err      error
}

// NewNewest returns shared calls of read.
func NewNewest(read func(context.Context) (int64, error)) *Newest { return &Newest{read: read} }

// Get reads the newest revision. All callers that arrive during a read share the next one: a read
// that started before a call may miss writes made in between.
func (n *Newest) Get(ctx context.Context) (int64, error) {
	if err := ctx.Err(); err != nil { // otherwise a result may arrive at the same time
		return 0, err
	}
	n.mu.Lock()
	read := n.next
	if read == nil {
		read = &newestRead{done: make(chan struct{})}
		n.next = read
	}
	if span := trace.SpanFromContext(ctx); read.span == nil && span.IsRecording() {
		read.span = span
	}
	if !n.running {
		n.running = true
		go n.readWhileNeeded()
	}
	n.mu.Unlock()
	select {
	case <-read.done:
		return read.revision, read.err
	case <-ctx.Done():
		return 0, ctx.Err()
	}
}

// readWhileNeeded reads as long as callers need a read.
func (n *Newest) readWhileNeeded() {
	for {
		n.mu.Lock()
		read := n.next
		n.next = nil
		n.running = read != nil
		n.mu.Unlock()
		if read == nil {
			return
		}
		ctx := context.Background()
		if read.span != nil {
			ctx = trace.ContextWithSpan(ctx, read.span)
		}
		read.revision, read.err = n.read(ctx)
		close(read.done)
	}
}
