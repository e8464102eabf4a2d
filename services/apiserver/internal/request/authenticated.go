package request

import (
	"context"
	"time"
)

// authentication holds the result of authentication for the audit event, which is created later.
type authentication struct {
	took        time.Duration
	annotations map[string]string
}

// SetAuthenticationTime records how long authentication took.
func (w *Waits) SetAuthenticationTime(took time.Duration) {
	if w != nil {
		w.authentication.took = took
	}
}

// SetTokenAnnotations records the audit annotations of the request's token. The map is shared and must not
// be changed.
func SetTokenAnnotations(ctx context.Context, annotations map[string]string) {
	if w := WaitsFrom(ctx); w != nil && len(annotations) > 0 {
		w.authentication.annotations = annotations
	}
}

// AuthenticationResult returns the duration of authentication and the audit annotations of the token.
func (w *Waits) AuthenticationResult() (took time.Duration, words map[string]string) {
	if w == nil {
		return 0, nil
	}
	return w.authentication.took, w.authentication.annotations
}
