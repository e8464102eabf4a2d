package represent

import (
	"context"
	"net/http"
)

// Turns let only so many long answers be made at a time, a piece of 128 KiB each. Short
// ones need no turn, so that they do not wait behind the long ones for a processor.
// None is held while a piece is written, or the store is read. Nil lets all be made.
type Turns interface {
	// Enter waits for a turn, which Leave ends; without one it fails when ctx ends.
	Enter(ctx context.Context) error
	Leave()
}

// SlowTurns let only so many requests work at what takes long; their addresses take turns. Forms that
// people read take them, objects at a time, as each takes longer than a piece of a list does. Nil lets
// all work.
type SlowTurns interface {
	// Enter waits for a turn, which Leave ends; without one it fails when the request ends, or
	// at once, unless the answer has begun, when too many wait.
	Enter(r *http.Request, begun bool) error
	Leave()
}

// slowly are the turns of one request.
type slowly struct {
	SlowTurns
	request *http.Request
	begun   *bool // tells that its answer has; may be nil
}

// Enter implements Turns.
func (s *slowly) Enter(context.Context) error {
	return s.SlowTurns.Enter(s.request, s.begun != nil && *s.begun)
}
