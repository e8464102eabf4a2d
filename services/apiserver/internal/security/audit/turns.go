package audit

import (
	"context"
	"time"
)

// Turns let a few of those go on at a time who do what is long.
type Turns interface {
	Enter(ctx context.Context) error
	Leave()
}

const (
	// long is the size in bytes from which objects and events are made in turns.
	long = 64 << 10
	// turnTime is how long a turn is waited for: what has to be told is told without, too,
	// whatever becomes of its request.
	turnTime = 10 * time.Second
)

// InTurn does what has to be done for so many bytes, in a turn where these are many. Nil turns
// let everybody go on.
func InTurn(t Turns, size int, work func()) {
	if t == nil || size < long {
		work()
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), turnTime)
	defer cancel()
	if t.Enter(ctx) == nil {
		defer t.Leave()
	}
	work()
}
