package overload

import (
	"net/http"
	"strings"
	"sync"
	"time"

	"binnacle/libs/api"
	"binnacle/services/apiserver/internal/api/requestinfo"
	"binnacle/services/apiserver/internal/request"
	"binnacle/services/apiserver/internal/server/routing"
	"binnacle/services/apiserver/internal/server/telemetry"
)

// isSuiteService reports whether a user is one of the suite's own services.
func isSuiteService(user *request.User) bool {
	return strings.HasPrefix(user.Name, api.UserSuitePrefix) && user.InGroup(api.GroupSuite)
}

// withInFlightLimit limits concurrent reads and writes. It does not count watches. Other long-running
// requests count until their connection is proxied. Health checks pass, because a busy server must
// not be restarted.
func (f *Filters) withInFlightLimit(next http.Handler) http.Handler {
	reads := newSharedLimit(f.options.MaxInFlight)
	writes := newSharedLimit(f.options.MaxMutatingInFlight)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		info := requestinfo.FromContext(r.Context())
		longRunning := info.LongRunning()
		if longRunning && info.Verb == "watch" || !info.IsResource && routing.IsHealth(info.Path) {
			next.ServeHTTP(w, r)
			return
		}
		start := time.Now()
		pool := reads
		if info.IsWrite() {
			pool = writes
		}
		claim, held, ok := clientFrom(r.Context()).tryAcquire(pool, 1, 0)
		if !ok {
			TooManyRequests(w, 1)
			return
		}
		release := func() {}
		if held {
			release = sync.OnceFunc(func() { pool.Release(claim) })
			defer release()
		}
		var onStarted func()
		if longRunning {
			onStarted = release
		}
		workFrom(r.Context()).attachSeats(nil, onStarted)
		telemetry.ObserveSince(f.telemetry.Metrics.Filters.InFlight, start)
		if !longRunning {
			inFlight := f.telemetry.Metrics.InFlight(info)
			inFlight.Inc()
			defer inFlight.Dec()
		}
		next.ServeHTTP(w, r)
	})
}
