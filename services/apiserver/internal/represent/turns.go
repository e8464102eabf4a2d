package represent

import "context"

// Turns let only so many long answers be made at a time, a piece of 128 KiB each. Short
// ones need no turn, so that they do not wait behind the long ones for a processor.
// None is held while a piece is written, or the store is read. Nil lets all be made.
type Turns interface {
	// Enter waits for a turn, which Leave ends; without one it fails when ctx ends.
	Enter(ctx context.Context) error
	Leave()
}
