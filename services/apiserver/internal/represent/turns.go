package represent

// Turns let only so many long answers be made at a time, a piece of 64 KiB each. Short
// ones need no turn, so that they do not wait behind the long ones for a processor.
// None is held while a client reads, or the store
// is read. Nil lets all be made.
type Turns chan struct{}

// NewTurns is for a server with so many processors: one of them is for short answers.
func NewTurns(processors int) Turns { return make(Turns, max(1, processors-1)) }
