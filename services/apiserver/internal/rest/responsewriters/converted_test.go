package responsewriters

import (
	"context"
	"strings"
	"testing"

	"binnacle/services/apiserver/internal/cache/watchcache"
)

// TestPanicsOfConversions are errors for all who wait: nobody recovers beside them.
func TestPanicsOfConversions(t *testing.T) {
	e, f := &watchcache.Entry{}, &flight{done: make(chan struct{})}
	c := &Conversions{running: map[conversion]*flight{{e, 1}: f}}
	c.convert(t.Context(), func(context.Context, [][]byte) ([][]byte, error) { panic("a bug") }, 1, []*watchcache.Entry{e}, map[*watchcache.Entry]*flight{e: f})
	<-f.done
	if f.err == nil || !strings.Contains(f.err.Error(), "panic: a bug") || len(c.running) > 0 {
		t.Errorf("%v, %d run", f.err, len(c.running))
	}
}
