package responsewriters

import (
	"sync"

	"binnacle/services/apiserver/internal/cache/watchcache"
)

// Conversions holds the running conversions of objects by webhooks. An entry is converted once for
// all concurrent requests, and the result is kept on it like an encoding.
type Conversions struct {
	mu      sync.Mutex // leaf lock
	running map[conversion]*flight
}

// conversion identifies the conversion of an entry to a version.
type conversion struct {
	entry *watchcache.Entry
	form  watchcache.Form
}

// flight is a running conversion. doc and err are valid once done is closed.
type flight struct {
	done chan struct{}
	doc  []byte
	err  error
}

// NewConversions returns Conversions for all responses of a server.
func NewConversions() *Conversions { return &Conversions{running: map[conversion]*flight{}} }
