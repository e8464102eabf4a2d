package server

import (
	"net/http"
	"time"

	"binnacle/libs/serving"
	"binnacle/services/apiserver/internal/request"
	"binnacle/services/apiserver/internal/status"
)

// Rested are turns for answers: who waits for one has given its seats back meanwhile, as who waits
// for a turn to work on a large body has.
type Rested struct{ serving.LargeRequests }

// Enter waits for a turn, which Leave ends. Its error is the end of the request, which has no turn
// then. Where too many have given their seats back, it waits with them if its answer has begun, as
// it is one of few then, and is refused otherwise.
func (t Rested) Enter(r *http.Request, begun bool) error {
	if t.EnterNow() {
		return nil
	}
	back, ok := request.Rest(r.Context(), begun)
	switch {
	case !ok && begun:
		return t.EnterFirst(r)
	case !ok:
		return status.ManyWait()
	}
	if err := t.LargeRequests.Enter(r); err != nil {
		return err
	}
	// Others may have the seats for long: then somebody else has the turn, which is waited for anew,
	// with the seats, before those who would have to wait for theirs.
	late := time.AfterFunc(seatsWait, t.Leave)
	err := back()
	kept := late.Stop()
	switch {
	case err != nil && kept:
		t.Leave()
	case err == nil && !kept:
		return t.EnterFirst(r)
	}
	return err
}
