package audit

import (
	"sync"

	"binnacle/services/apiserver/internal/request"
)

// room is how many bytes of objects are held for requests under way. A user may hold as
// many as are free: who does not read its answers cannot keep those of others from being
// told.
type room struct {
	mu   sync.Mutex // leaf
	free int64
	held map[string]int64 // by principal
}

func newRoom(size int64) *room { return &room{free: size, held: map[string]int64{}} }

func (r *room) take(u *request.User, n int64) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	name := request.PrincipalOf(u, "")
	if r.held[name]+n > r.free {
		return false
	}
	r.free -= n
	r.held[name] += n
	return true
}

func (r *room) give(u *request.User, n int64) {
	if n == 0 {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	name := request.PrincipalOf(u, "")
	r.free += n
	if r.held[name] -= n; r.held[name] <= 0 {
		delete(r.held, name)
	}
}
