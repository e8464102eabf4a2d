package responsewriters

import (
	"context"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"
)

// slowWriter is a response writer of a client that takes a fixed time for each write.
type slowWriter struct {
	*httptest.ResponseRecorder
	takes time.Duration
}

func (w slowWriter) Write(p []byte) (int, error) {
	time.Sleep(w.takes)
	return w.ResponseRecorder.Write(p)
}

// TestDeadlineExcludesWaitingForClient checks that the time in which a slow client blocks the
// response does not count towards the deadline of the request.
func TestDeadlineExcludesWaitingForClient(t *testing.T) {
	const limit, parts = time.Minute, 5
	for name, c := range map[string]struct {
		client, work time.Duration // for each part
		whole        bool
	}{
		"a slow client": {client: limit * 2 / 3, work: time.Second, whole: true},
		"a slow server": {client: time.Second, work: limit * 2 / 3},
		"both fast":     {client: time.Second, work: time.Second, whole: true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), limit)
				defer cancel()
				w := slowWriter{httptest.NewRecorder(), c.client}
				p := newChunkWriter(w, httptest.NewRequest("GET", "/", nil).WithContext(ctx), "text/plain", nil)
				defer p.releaseBuffer()
				whole := true
				for range parts {
					time.Sleep(c.work)
					p.buf = append(p.buf, make([]byte, chunkSize)...)
					whole = whole && p.flushChunk(false)
				}
				if whole != c.whole {
					t.Errorf("response complete: got %t, want %t", whole, c.whole)
				}
			})
		})
	}
}
