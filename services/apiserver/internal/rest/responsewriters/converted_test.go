package responsewriters

import (
	"context"
	"strings"
	"testing"

	"binnacle/services/apiserver/internal/cache/watchcache"
)

// TestConversionPanicFailsWaitingRequests checks that a panic becomes an error of all waiting
// requests.
func TestConversionPanicFailsWaitingRequests(t *testing.T) {
	e := &watchcache.Entry{}
	f := &flight{done: make(chan struct{})}
	c := &Conversions{running: map[conversion]*flight{{e, 1}: f}}
	c.convert(t.Context(), func(context.Context, [][]byte) ([][]byte, error) {
		panic("a bug")
	}, 1, []*watchcache.Entry{e}, map[*watchcache.Entry]*flight{e: f})
	<-f.done
	if f.err == nil || !strings.Contains(f.err.Error(), "panic: a bug") || len(c.running) > 0 {
		t.Errorf("got %v with %d running, want the panic with 0", f.err, len(c.running))
	}
}
