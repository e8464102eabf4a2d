package responsewriters

import (
	"context"
	"fmt"
	"sync"

	"binnacle/libs/limit"
	"binnacle/services/apiserver/internal/cache/watchcache"
	"binnacle/services/apiserver/internal/request"
)

// ConversionBounds bounds the memory of conversions by webhooks, in bytes. Zero means no limit.
type ConversionBounds struct {
	// Stored bounds the objects that are converted at a time.
	Stored int
	// Converted bounds the converted documents that responses hold. A webhook may return far more than it
	// gets.
	Converted int
}

// Conversions holds the running conversions of objects by webhooks. An entry is converted once for
// all concurrent requests, and the result is kept on it like an encoding.
type Conversions struct {
	// stored and converted limit bytes by the principal of the request.
	stored, converted *limit.Queue[string]

	mu      sync.Mutex // leaf lock
	running map[conversion]*flight
}

// conversion identifies the conversion of an entry to a version.
type conversion struct {
	entry *watchcache.Entry
	form  watchcache.EncodingID
}

// flight is the conversion of an entry in a batch. doc and err are valid once the batch is done.
type flight struct {
	batch *batch
	doc   []byte
	err   error
}

// batch is a running conversion of entries. It is canceled when no request waits for it any more, so that
// the conversions in progress have the limits of the requests that wait for them.
type batch struct {
	entries []*watchcache.Entry
	form    watchcache.EncodingID
	flights map[*watchcache.Entry]*flight
	cancel  context.CancelFunc
	done    chan struct{}
	waiters int // guarded by Conversions.mu
}

// NewConversions returns Conversions for all responses of a server.
func NewConversions(b ConversionBounds) *Conversions {
	bytes := func(size int) *limit.Queue[string] { return limit.New[string](limit.Options{Size: size, Share: true}) }
	return &Conversions{stored: bytes(b.Stored), converted: bytes(b.Converted), running: map[conversion]*flight{}}
}

// claimOf returns a claim of a request for bytes. It is at most what one principal may hold.
func claimOf(ctx context.Context, q *limit.Queue[string], size int) limit.Claim[string] {
	return limit.Claim[string]{Key: request.Principal(ctx), Cost: min(size, q.Size()/2)}
}

// minClaimed is the size in bytes below which documents are not counted.
const minClaimed = request.LargeBody

// leave records that a request no longer waits for batches.
func (c *Conversions) leave(joined map[*batch]struct{}) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for b := range joined {
		if b.waiters--; b.waiters == 0 {
			b.cancel()
			c.forget(b)
		}
	}
}

// forget removes the flights of a batch, so that later requests begin another one. The caller holds mu.
func (c *Conversions) forget(b *batch) {
	for e, f := range b.flights {
		if at := (conversion{e, b.form}); c.running[at] == f {
			delete(c.running, at)
		}
	}
}

// convert converts the entries of a batch and completes its flights.
func (c *Conversions) convert(ctx context.Context, serve func(context.Context, [][]byte) ([][]byte, error), b *batch) {
	out, err := c.served(ctx, serve, b.entries)
	for i, e := range b.entries {
		f := b.flights[e]
		if f.err = err; err == nil {
			f.doc, f.err = e.Encoding(b.form, func(*watchcache.Entry) ([]byte, error) { return out[i], nil })
		}
	}
	c.mu.Lock()
	c.forget(b)
	c.mu.Unlock()
	close(b.done)
}

// served returns the served documents of entries.
func (c *Conversions) served(ctx context.Context, serve func(context.Context, [][]byte) ([][]byte, error), entries []*watchcache.Entry) ([][]byte, error) {
	size := 0
	for _, e := range entries {
		size += e.Size()
	}
	claim := claimOf(ctx, c.stored, size)
	if err := c.stored.Acquire(ctx, claim); err != nil {
		return nil, err
	}
	defer c.stored.Release(claim)
	stored := make([][]byte, len(entries))
	for i, e := range entries {
		stored[i] = e.Stored()
	}
	out, err := recoverPanics(ctx, serve, stored)
	if err == nil && len(out) != len(entries) {
		err = fmt.Errorf("%d of %d objects were converted", len(out), len(entries))
	}
	return out, err
}

// recoverPanics calls serve and returns a panic as an error. No request handler is there to recover it.
func recoverPanics(ctx context.Context, serve func(context.Context, [][]byte) ([][]byte, error), stored [][]byte) (out [][]byte, err error) {
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("panic: %v", v)
		}
	}()
	return serve(ctx, stored)
}
