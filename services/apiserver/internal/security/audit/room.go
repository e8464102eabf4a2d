package audit

import "sync"

// room is how many bytes of objects are held for requests under way. A principal may hold as
// many as are free: who does not read its answers cannot keep those of others from being
// told.
type room struct {
	mu   sync.Mutex // leaf
	free int64
	held map[string]int64 // by principal
}

func newRoom(size int64) *room { return &room{free: size, held: map[string]int64{}} }

func (r *room) take(principal string, n int64) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.held[principal]+n > r.free {
		return false
	}
	r.free -= n
	r.held[principal] += n
	return true
}

func (r *room) give(principal string, n int64) {
	if n == 0 {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.free += n
	if r.held[principal] -= n; r.held[principal] <= 0 {
		delete(r.held, principal)
	}
}
