package responsewriters

import (
	"context"
	"fmt"
	"sync"

	"binnacle/libs/limit"
	"binnacle/services/apiserver/internal/cache/encodings"
	"binnacle/services/apiserver/internal/cache/objects"
	"binnacle/services/apiserver/internal/request"
)

// ConversionBounds bounds the memory of conversions by webhooks, in bytes. Zero means no limit.
type ConversionBounds struct {
	// Stored bounds the objects that are converted at a time.
	Stored int
	// MaxDocuments bounds the converted documents that responses hold. A webhook may return far
	// more than it gets.
	MaxDocuments int
}

// Conversions holds the running conversions of objects by webhooks. An entry is converted once for
// all concurrent requests of a principal, and the result is kept on it like an encoding.
type Conversions struct {
	// stored limits the stored bytes that are converted at a time, converted the bytes of the
	// documents that responses hold. Both share their limit fairly between principals.
	stored, converted *limit.Queue[string]

	mu      sync.Mutex // leaf lock
	running map[conversionKey]*pendingConversion
}

// conversionKey identifies the conversion of an entry to a version for a principal. Principals share
// no conversion, because a conversion waits for the share of the principal that started it.
type conversionKey struct {
	entry     *objects.Entry
	form      encodings.ID
	principal string
}

// pendingConversion is the conversion of an entry in a batch. doc and err are valid once the batch
// is done.
type pendingConversion struct {
	batch *batch
	doc   []byte
	err   error
}

// batch is a running conversion of entries. It is canceled when no request waits for it any more,
// so that the conversions in progress have the limits of the requests that wait for them.
type batch struct {
	entries   []*objects.Entry
	form      encodings.ID
	principal string
	pending   map[*objects.Entry]*pendingConversion
	cancel    context.CancelFunc
	done      chan struct{}
	waiters   int // guarded by Conversions.mu
}

// NewConversions returns Conversions for all responses of a server.
func NewConversions(b ConversionBounds) *Conversions {
	newQueue := func(size int) *limit.Queue[string] {
		return limit.New[string](limit.Options{Size: size, FairShare: true})
	}
	return &Conversions{
		stored:    newQueue(b.Stored),
		converted: newQueue(b.MaxDocuments),
		running:   map[conversionKey]*pendingConversion{},
	}
}

const (
	// storedShare is the divisor of the limit that bounds the claim of one conversion. A principal may
	// hold half of the limit.
	storedShare = 2
	// convertedShare is the divisor of the limit that bounds the claim of one response. A slow client
	// may hold the claim for long. A larger response claims no more than this share, so that a few of
	// them leave room for other principals.
	convertedShare = 8
)

// newClaim returns a claim of a request for size bytes of q, but at most for its size divided by share.
func newClaim(ctx context.Context, queue *limit.Queue[string], size, share int) limit.Claim[string] {
	return limit.Claim[string]{Key: request.Principal(ctx), Cost: min(size, queue.Size()/share)}
}

// minClaimedBytes is the size in bytes below which documents are not counted.
const minClaimedBytes = request.LargeBody

// newBatch returns an empty batch of a request.
func newBatch(ctx context.Context, form encodings.ID) *batch {
	return &batch{
		form: form, principal: request.Principal(ctx),
		pending: map[*objects.Entry]*pendingConversion{}, done: make(chan struct{}),
	}
}

// addEntry adds an entry and returns its conversion.
func (b *batch) addEntry(entry *objects.Entry) *pendingConversion {
	pending := &pendingConversion{batch: b}
	b.entries = append(b.entries, entry)
	b.pending[entry] = pending
	return pending
}

// startBatch starts the conversion of a batch. Several requests may wait for it, so it does not end
// with the request that started it, and does not use that request's seats. The time of the webhook
// is bounded. The caller holds mu.
func (c *Conversions) startBatch(ctx context.Context, toServed func(context.Context, [][]byte) ([][]byte, error), b *batch) {
	var detached context.Context
	detached, b.cancel = context.WithCancel(request.Detach(ctx))
	go c.runBatch(detached, toServed, b)
}

// leaveBatches records that a request no longer waits for batches.
func (c *Conversions) leaveBatches(joined map[*batch]struct{}) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for b := range joined {
		if b.waiters--; b.waiters == 0 {
			b.cancel()
			c.forgetBatch(b)
		}
	}
}

// forgetBatch removes the conversions of a batch, so that later requests start another one. The
// caller holds mu.
func (c *Conversions) forgetBatch(b *batch) {
	for e, pending := range b.pending {
		if key := (conversionKey{e, b.form, b.principal}); c.running[key] == pending {
			delete(c.running, key)
		}
	}
}

// runBatch converts the entries of a batch and completes its conversions.
func (c *Conversions) runBatch(ctx context.Context, toServed func(context.Context, [][]byte) ([][]byte, error), b *batch) {
	out, err := c.convertWithinLimit(ctx, toServed, b.entries)
	for i, e := range b.entries {
		pending := b.pending[e]
		pending.err = err
		if err == nil {
			pending.doc, pending.err = e.Encoding(b.form, func(*objects.Entry) ([]byte, error) { return out[i], nil })
		}
	}
	c.mu.Lock()
	c.forgetBatch(b)
	c.mu.Unlock()
	close(b.done)
}

// convertWithinLimit returns the served documents of entries. It acquires the memory of the stored
// values first.
func (c *Conversions) convertWithinLimit(
	ctx context.Context,
	toServed func(context.Context, [][]byte) ([][]byte, error),
	entries []*objects.Entry,
) ([][]byte, error) {
	size := 0
	for _, entry := range entries {
		size += entry.Size()
	}
	claim := newClaim(ctx, c.stored, size, storedShare)
	if err := c.stored.Acquire(ctx, claim); err != nil {
		return nil, err
	}
	defer c.stored.Release(claim)
	stored := make([][]byte, len(entries))
	for i, entry := range entries {
		stored[i] = entry.Stored()
	}
	out, err := recoverPanics(ctx, toServed, stored)
	if err == nil && len(out) != len(entries) {
		err = fmt.Errorf("%d of %d objects were converted", len(out), len(entries))
	}
	return out, err
}

// recoverPanics calls toServed and returns a panic as an error. It runs in a separate goroutine, where no
// request handler recovers the panic.
func recoverPanics(
	ctx context.Context,
	toServed func(context.Context, [][]byte) ([][]byte, error),
	stored [][]byte,
) (out [][]byte, err error) {
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("panic: %v", v)
		}
	}()
	return toServed(ctx, stored)
}
