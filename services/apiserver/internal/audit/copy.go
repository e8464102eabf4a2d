package audit

// Copy is what has been written of an answer, as long as there is room for it. A nil Copy
// takes everything and tells nothing.
type Copy struct {
	record *Record
	text   []byte
	over   bool
}

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
	if int64(len(c.text)+len(p)) > r.trail.MaxObject || !r.trail.room.take(r.user, int64(len(p))) {
		r.trail.room.give(r.user, int64(len(c.text)))
		c.text, c.over = nil, true
		return
	}
	c.text = append(c.text, p...)
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
		c.Drop() // Shown takes what it keeps
		c.record.Shown(c.text)
	}
}

// Drop gives back the room of an answer that has not become whole.
func (c *Copy) Drop() {
	if c != nil && !c.over {
		c.over = true
		c.record.trail.room.give(c.record.user, int64(len(c.text)))
	}
}
