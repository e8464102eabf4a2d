package server

import (
	"net/http"
	"time"

	"binnacle/libs/serving"
	"binnacle/services/apiserver/internal/request"
	"binnacle/services/apiserver/internal/status"
)

// SuspendingLimiter limits concurrent work on large responses. A request that waits for a permit
// releases its seats, as a request with a large body does.
type SuspendingLimiter struct{ serving.LargeRequests }

// Enter waits for a permit, which Leave releases. After an error the request has no permit and must
// end. If too many requests have released their seats, a request whose response has begun keeps its
// seats while it waits, because only few such requests exist. Any other request is rejected.
func (t SuspendingLimiter) Enter(r *http.Request, begun bool) error {
	if t.EnterNow() {
		return nil
	}
	resume, ok := request.ReleaseSeats(r.Context(), begun)
	switch {
	case !ok && begun:
		return t.EnterFirst(r)
	case !ok:
		return status.ManyWait()
	}
	if err := t.LargeRequests.Enter(r); err != nil {
		return err
	}
	// If the seats take longer than maxSeatWait, another request gets the permit. This request then
	// waits for a permit again while it holds its seats, ahead of requests without seats.
	timer := time.AfterFunc(maxSeatWait, t.Leave)
	err := resume()
	kept := timer.Stop()
	switch {
	case err != nil && kept:
		t.Leave()
	case err == nil && !kept:
		return t.EnterFirst(r)
	}
	return err
}
