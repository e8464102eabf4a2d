package server

import (
	"maps"
	"net/http"
	"strings"
	"sync"
	"time"

	"binnacle/libs/api"
	"binnacle/libs/node"
	"binnacle/services/apiserver/internal/api/requestinfo"
	"binnacle/services/apiserver/internal/request"
)

// reservedShare of the slots, one in so many, is not for everybody: half of it is
// for nodes, half for the suite's own services alone.
const reservedShare = 10

// slots bound what is taken at a time, as the requests of one kind that are worked
// on, fairly among users: a user may hold as many as are free. So one gets half of
// them at most, a second one a quarter, and there is mostly room for one more. A nil
// *slots bounds nothing.
type slots struct {
	size int
	// reserved for nodes and services, and of these for services.
	reserved, suite int
	// strict: administrators do not go on without.
	strict bool

	mu   sync.Mutex // leaf
	used int
	held map[string]int // by principal; 0 is not there
}

func newSlots(size int) *slots {
	if size <= 0 {
		return nil
	}
	reserved := size / reservedShare
	return &slots{size: size, reserved: reserved, suite: (reserved + 1) / 2, held: map[string]int{}}
}

// enter takes n slots for a user. Administrators go on without them when there are
// too few, unless that is forbidden.
func (s *slots) enter(u client, n int) (held, ok bool) { return s.enterFor(u, n, true) }

// enterFor is enter. What has not begun may have half as many as are free, so that what has begun
// finds some.
func (s *slots) enterFor(u client, n int, begun bool) (held, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	free := s.size - s.used
	switch {
	case u.InGroup(api.GroupMasters) && !s.strict:
		if free < n {
			return false, true
		}
	case suiteService(u.User):
		if free < n {
			return false, false
		}
	default:
		if u.InGroup(node.Group) {
			free -= s.suite
		} else {
			free -= s.reserved
		}
		if !begun {
			free /= 2
		}
		if s.held[u.principal]+n > free {
			return false, false
		}
	}
	s.used += n
	s.held[u.principal] += n
	return true, true
}

// lacking returns how many slots more have to be free for a user to take n, and a copy of what
// each principal holds.
func (s *slots) lacking(u client, n int) (lacking int, held map[string]int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.held[u.principal] + n - (s.size - s.used - s.reserved), maps.Clone(s.held)
}

// holds tells whether a user has any.
func (s *slots) holds(u client) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.held[u.principal] > 0
}

func (s *slots) leave(u client, n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.used -= n
	if s.held[u.principal] -= n; s.held[u.principal] == 0 {
		delete(s.held, u.principal)
	}
}

// suiteService tells the users that the suite's own services are.
func suiteService(u *request.User) bool {
	return strings.HasPrefix(u.Name, api.UserSuitePrefix) && u.InGroup(api.GroupSuite)
}

// limit bounds what is worked on at a time. Watches are not counted, what else lasts as long as
// its client likes until it is carried on, and health passes: whoever restarts a server that does
// not answer must not do so because it is busy.
func (c *Config) limit(next http.Handler) http.Handler {
	reads, writes := newSlots(c.MaxInFlight), newSlots(c.MaxMutatingInFlight)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		op := requestinfo.From(r.Context())
		long := op.LongRunning()
		if long && op.Verb == "watch" || !op.IsResource && isHealth(op.Path) {
			next.ServeHTTP(w, r)
			return
		}
		begin, pool := time.Now(), reads
		if op.Writes() {
			pool = writes
		}
		if pool != nil {
			u := clientOf(r.Context())
			held, ok := pool.enter(u, 1)
			if !ok {
				tooMany(w, 1)
				return
			}
			if held {
				leave := func() { pool.leave(u, 1) }
				if long {
					leave = sync.OnceFunc(leave)
					if !request.SetBegun(r.Context(), leave) {
						r = r.WithContext(request.WithBegun(r.Context(), leave))
					}
				}
				defer leave()
			}
		}
		noted(c.Metrics.filters.inflight, begin)
		if !long {
			g := c.Metrics.inflight.of(op)
			g.Inc()
			defer g.Dec()
		}
		next.ServeHTTP(w, r)
	})
}
