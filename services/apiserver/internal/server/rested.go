package server

import (
	"net/http"
	"time"

	"binnacle/libs/serving"
	"binnacle/services/apiserver/internal/request"
)

// Rested are turns for answers: who waits for one has given its seats back meanwhile, as who waits
// for a turn to work on a large body has.
type Rested struct{ serving.LargeRequests }

// Enter waits for a turn, which Leave ends. Its error is the end of the request, which has no turn
// then.
func (t Rested) Enter(r *http.Request) error {
	if t.EnterNow() {
		return nil
	}
	back, ok := request.Rest(r.Context())
	if !ok { // too many have done so
		return t.LargeRequests.Enter(r)
	}
	if err := t.LargeRequests.Enter(r); err != nil {
		return err
	}
	// Others may have the seats for long: then somebody else has the turn, which is waited for anew,
	// with the seats.
	late := time.AfterFunc(seatsWait, t.Leave)
	err := back()
	kept := late.Stop()
	switch {
	case err != nil && kept:
		t.Leave()
	case err == nil && !kept:
		return t.LargeRequests.Enter(r)
	}
	return err
}
