package server

import "sync"

// levelBudgets is the memory of bodies by priority level. Each level has size bytes, so that
// the bodies of one level never delay those of another.
type levelBudgets struct {
	size int

	levels sync.Map // *bodyBudget by name
}

// of returns the memory of a level. Requests without flow control share the level "".
func (l *levelBudgets) of(level string) *bodyBudget {
	b, ok := l.levels.Load(level)
	if !ok {
		b, _ = l.levels.LoadOrStore(level, &bodyBudget{Queue: newShared(l.size)})
	}
	return b.(*bodyBudget)
}
