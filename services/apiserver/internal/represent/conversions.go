package represent

import (
	"sync"

	"binnacle/services/apiserver/internal/watchcache"
)

// Conversions are those of objects that a webhook brings to another version. An
// entry is converted once for all who wait for it, and kept like an encoding.
type Conversions struct {
	mu      sync.Mutex // leaf
	running map[conversion]*flight
}

// conversion is of an entry to a version.
type conversion struct {
	entry *watchcache.Entry
	form  watchcache.Form
}

// flight is a conversion that runs; doc and err are set when done is closed.
type flight struct {
	done chan struct{}
	doc  []byte
	err  error
}

// NewConversions returns one for all answers of a server.
func NewConversions() *Conversions { return &Conversions{running: map[conversion]*flight{}} }
