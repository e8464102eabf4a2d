package request

import (
	"context"
	"time"
)

// authenticated is how a request was let in, for the audit log, which is opened later.
type authenticated struct {
	took  time.Duration
	words map[string]string
}

// Authenticated notes how long it took to find out who asks.
func (w *Waits) Authenticated(took time.Duration) {
	if w != nil {
		w.authenticated.took = took
	}
}

// SayOfToken notes what the audit log is to tell of the token of a request. The words are
// shared and must not be changed.
func SayOfToken(ctx context.Context, words map[string]string) {
	if w := WaitsFrom(ctx); w != nil && len(words) > 0 {
		w.authenticated.words = words
	}
}

// Arrival is what was noted.
func (w *Waits) Arrival() (took time.Duration, words map[string]string) {
	if w == nil {
		return 0, nil
	}
	return w.authenticated.took, w.authenticated.words
}
