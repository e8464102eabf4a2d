package server

import (
	"sync"

	"binnacle/libs/limit"
)

// levelBudgets is the memory of bodies by priority level. Each level has size bytes, so that
// the bodies of one level never delay those of another.
type levelBudgets struct {
	size int
	// waiting is the maximum number of bodies of one principal that wait; 0 means no limit.
	waiting int

	levels sync.Map // *bodyBudget by name
}

// of returns the memory of a level. Requests without flow control share the level "".
func (l *levelBudgets) of(level string) *bodyBudget {
	b, ok := l.levels.Load(level)
	if !ok {
		b, _ = l.levels.LoadOrStore(level, &bodyBudget{
			Queue: limit.New[string](limit.Options{Size: l.size, Share: true, MaxWaiting: l.waiting}),
		})
	}
	return b.(*bodyBudget)
}
