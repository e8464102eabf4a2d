package audit

import (
	"bytes"
	"slices"
)

// Copy collects a response object that is written in parts. It drops the object if the limits are
// exceeded. A nil Copy ignores all calls.
type Copy struct {
	record *Record
	parts  [][]byte // all but the last are full
	size   int64    // the maximum size of the object in the form of encoding/json
	// the object was recorded or dropped
	done bool
}

// maxPart is the maximum size in bytes of a part that is allocated ahead.
const maxPart = 256 << 10

// Copy returns a Copy for a response that is written in parts. Copy.Close records the object. Below
// level RequestResponse, Copy returns nil.
func (r *Record) Copy() *Copy {
	if !r.Enabled(RequestResponse) {
		return nil
	}
	return &Copy{record: r}
}

// Write adds a part of the response. It fills the last part up before it allocates another one.
func (c *Copy) Write(data []byte) {
	if c == nil || c.done {
		return
	}
	r := c.record
	growth := int64(len(data) + escapeGrowth(data))
	if c.size+growth > r.auditor.MaxObject || !r.auditor.budget.tryAcquire(r.principal, growth) {
		r.auditor.budget.release(r.principal, c.size)
		c.parts = nil
		c.done = true
		return
	}
	for b := data; len(b) > 0; {
		last := len(c.parts) - 1
		if last < 0 || len(c.parts[last]) == cap(c.parts[last]) {
			c.parts = append(c.parts, make([]byte, 0, max(len(b), min(int(c.size), maxPart))))
			last++
		}
		part := c.parts[last]
		n := min(len(b), cap(part)-len(part))
		c.parts[last] = append(part, b[:n]...)
		b = b[n:]
	}
	c.size += growth
}

// Full reports whether further writes have no effect.
func (c *Copy) Full() bool { return c == nil || c.done }

// Close records the response object.
func (c *Copy) Close() {
	switch {
	case c == nil:
	case c.done:
		c.record.Annotate(Truncated, "true")
	default:
		c.done = true
		c.record.finishCopy(c)
	}
}

// finishCopy records the object of a copy. The record takes over the copy's bytes of the budget.
func (r *Record) finishCopy(held *Copy) {
	WithPermit(r.auditor.Limiter, int(held.size), func() {
		text := compactJSON(bytes.TrimSpace(slices.Concat(held.parts...)))
		held.parts = nil
		if r.omitManagedFields {
			text = withoutManagedFields(text)
		}
		state := r.lockState()
		if state == nil || state.closing {
			r.auditor.budget.release(r.principal, held.size)
		} else {
			state.event.ResponseObject = text
			state.heldBytes += held.size
		}
		if state != nil {
			state.mu.Unlock()
		}
	})
}

// Drop releases the bytes of an incomplete response.
func (c *Copy) Drop() {
	if c != nil && !c.done {
		c.done = true
		c.record.auditor.budget.release(c.record.principal, c.size)
	}
}
