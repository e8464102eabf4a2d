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

// reservedShare is the divisor of the size that gives the reserve. Nodes and the suite's own services may
// use half of the reserve, only the services the other half.
const reservedShare = 10

// fairBudget limits units in use, such as concurrent requests or bytes, fairly among principals. A
// principal may hold as many units as are free. So the first one gets at most half of them, the second
// one a quarter, and another principal mostly finds some. A nil *fairBudget means no limit.
type fairBudget struct {
	size int
	// reserved is the number of units for nodes and services, suite the part of it for services only.
	reserved, suite int
	// strict makes the limit apply to administrators too.
	strict bool

	mu   sync.Mutex // leaf
	used int
	held map[string]int // by principal; without zero values
}

func newFairBudget(size int) *fairBudget {
	if size <= 0 {
		return nil
	}
	reserved := size / reservedShare
	return &fairBudget{size: size, reserved: reserved, suite: (reserved + 1) / 2, held: map[string]int{}}
}

// tryAcquire acquires n units for a client. If too few are free, an administrator is admitted without
// units, unless the budget is strict: ok is true and held is false.
func (s *fairBudget) tryAcquire(u client, n int) (held, ok bool) { return s.tryAcquireFor(u, n, true) }

// tryAcquireFor is tryAcquire for a request whose response has begun or not. A request that has not begun
// may use only half of the free units, so that requests that have begun find some.
func (s *fairBudget) tryAcquireFor(u client, n int, begun bool) (held, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	free := s.size - s.used
	switch {
	case u.InGroup(api.GroupMasters) && !s.strict:
		if free < n {
			return false, true
		}
	case isSuiteService(u.User):
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

// shortage returns how many more units must become free for a client to acquire n, and a copy of what each
// principal holds.
func (s *fairBudget) shortage(u client, n int) (lacking int, held map[string]int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.held[u.principal] + n - (s.size - s.used - s.reserved), maps.Clone(s.held)
}

// holds reports whether the principal of a client holds any units.
func (s *fairBudget) holds(u client) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.held[u.principal] > 0
}

func (s *fairBudget) release(u client, n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.used -= n
	if s.held[u.principal] -= n; s.held[u.principal] == 0 {
		delete(s.held, u.principal)
	}
}

// isSuiteService reports whether a user is one of the suite's own services.
func isSuiteService(u *request.User) bool {
	return strings.HasPrefix(u.Name, api.UserSuitePrefix) && u.InGroup(api.GroupSuite)
}

// withInFlightLimit limits concurrent reads and writes. It does not count watches. Other long-running
// requests count until their connection is proxied. Health checks pass, because a busy server must not
// be restarted.
func (c *Config) withInFlightLimit(next http.Handler) http.Handler {
	reads, writes := newFairBudget(c.MaxInFlight), newFairBudget(c.MaxMutatingInFlight)
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
			held, ok := pool.tryAcquire(u, 1)
			if !ok {
				tooManyRequests(w, 1)
				return
			}
			if held {
				release := func() { pool.release(u, 1) }
				if long {
					release = sync.OnceFunc(release)
					if !request.SetBegun(r.Context(), release) {
						r = r.WithContext(request.WithBegun(r.Context(), release))
					}
				}
				defer release()
			}
		}
		observeSince(c.Metrics.filters.inflight, begin)
		if !long {
			g := c.Metrics.inflight.gauge(op)
			g.Inc()
			defer g.Dec()
		}
		next.ServeHTTP(w, r)
	})
}
