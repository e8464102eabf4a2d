package audit

import "slices"

// Copy is what has been written of an answer, as long as there is room for it. A nil Copy
// takes everything and tells nothing.
type Copy struct {
	record *Record
	tidy   tidy
	part   []byte   // of the answer, when it is tidy
	parts  [][]byte // all but the last are full
	size   int64    // of all parts
	over   bool
}

// mostPart is how many bytes more a copy has memory for than it needs, at most.
const mostPart = 256 << 10

// Copy takes a long answer as it is written; nil when that is not told. Close tells it.
func (r *Record) Copy() *Copy {
	if !r.Wants(RequestResponse) {
		return nil
	}
	return &Copy{record: r}
}

// Write takes a part of the answer.
func (c *Copy) Write(p []byte) {
	if c == nil || c.over {
		return
	}
	r := c.record
	c.part = c.tidy.append(c.part[:0], p)
	more := int64(len(c.part))
	if c.size+more > r.trail.MaxObject || !r.trail.room.take(r.principal, more) {
		r.trail.room.give(r.principal, c.size)
		c.part, c.parts, c.over = nil, nil, true
		return
	}
	for b := c.part; len(b) > 0; {
		last := len(c.parts) - 1
		if last < 0 || len(c.parts[last]) == cap(c.parts[last]) {
			c.parts = append(c.parts, make([]byte, 0, max(len(b), min(int(c.size), mostPart))))
			last++
		}
		part := c.parts[last]
		n := min(len(b), cap(part)-len(part))
		c.parts[last] = append(part, b[:n]...)
		b = b[n:]
	}
	c.size += more
}

// Full tells that there is no use in writing more.
func (c *Copy) Full() bool { return c == nil || c.over }

// Close tells the answer.
func (c *Copy) Close() {
	switch {
	case c == nil:
	case c.over:
		c.record.Annotate(Truncated, "true")
	default:
		c.over = true
		c.record.copied(c)
	}
}

// copied is Shown for what has come by a copy, whose room is the record's then.
func (r *Record) copied(c *Copy) {
	InTurn(r.trail.Turns, int(c.size), func() {
		var text []byte
		if len(c.parts) == 1 {
			text = c.parts[0]
		} else {
			text = slices.Concat(c.parts...)
		}
		c.part, c.parts = nil, nil
		if r.unowned {
			text = withoutManagedFields(text)
		}
		p := r.lock()
		if p == nil || p.over {
			r.trail.room.give(r.principal, c.size)
		} else {
			p.event.ResponseObject = text
			p.held += c.size
		}
		if p != nil {
			p.mu.Unlock()
		}
	})
}

// Drop gives back the room of an answer that has not become whole.
func (c *Copy) Drop() {
	if c != nil && !c.over {
		c.over = true
		c.record.trail.room.give(c.record.principal, c.size)
	}
}
