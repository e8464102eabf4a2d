package server

import "sync"

// levelBodies is the memory of bodies by priority level. Each level has size bytes, so that
// the bodies of one level never delay those of another. A level without bodies has no entry.
type levelBodies struct {
	size int

	mu     sync.Mutex // leaf
	levels map[string]*levelBody
}

// levelBody is the memory of one level and the number of requests that use it.
type levelBody struct {
	*bodies
	requests int
}

func newLevelBodies(size int) *levelBodies {
	return &levelBodies{size: size, levels: map[string]*levelBody{}}
}

// acquire returns the memory of a level, for one request, until release. Requests without
// flow control share the level "".
func (l *levelBodies) acquire(level string) *bodies {
	l.mu.Lock()
	defer l.mu.Unlock()
	b := l.levels[level]
	if b == nil {
		b = &levelBody{bodies: newBodies(l.size)}
		l.levels[level] = b
	}
	b.requests++
	return b.bodies
}

// release ends the use by one request, which occupies nothing any more.
func (l *levelBodies) release(level string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	b := l.levels[level]
	if b.requests--; b.requests == 0 {
		delete(l.levels, level)
	}
}
