package request

import (
	"context"
	"time"
)

// authenticated holds the result of authentication for the audit event, which is created later.
type authenticated struct {
	took  time.Duration
	words map[string]string
}

// Authenticated records how long authentication took.
func (w *Waits) Authenticated(took time.Duration) {
	if w != nil {
		w.authenticated.took = took
	}
}

// SayOfToken records the audit annotations of the request's token. The map is shared and must not
// be changed.
func SayOfToken(ctx context.Context, words map[string]string) {
	if w := WaitsFrom(ctx); w != nil && len(words) > 0 {
		w.authenticated.words = words
	}
}

// Arrival returns the duration of authentication and the audit annotations of the token.
func (w *Waits) Arrival() (took time.Duration, words map[string]string) {
	if w == nil {
		return 0, nil
	}
	return w.authenticated.took, w.authenticated.words
}
