package server

import "sync"

// levelBudgets is the memory of bodies by priority level. Each level has size bytes, so that
// the bodies of one level never delay those of another. A level without bodies has no entry.
type levelBudgets struct {
	size int

	mu     sync.Mutex // leaf
	levels map[string]*levelBudget
}

// levelBudget is the memory of one level and the number of requests that use it.
type levelBudget struct {
	*byteBudget
	requests int
}

func newLevelBudgets(size int) *levelBudgets {
	return &levelBudgets{size: size, levels: map[string]*levelBudget{}}
}

// acquire returns the memory of a level, for one request, until release. Requests without
// flow control share the level "".
func (l *levelBudgets) acquire(level string) *byteBudget {
	l.mu.Lock()
	defer l.mu.Unlock()
	b := l.levels[level]
	if b == nil {
		b = &levelBudget{byteBudget: newByteBudget(l.size)}
		l.levels[level] = b
	}
	b.requests++
	return b.byteBudget
}

// release ends the use by one request, which must have released all its bytes.
func (l *levelBudgets) release(level string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	b := l.levels[level]
	if b.requests--; b.requests == 0 {
		delete(l.levels, level)
	}
}
