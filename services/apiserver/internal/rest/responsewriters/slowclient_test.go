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
	duration time.Duration // of each write
}

func (w slowWriter) Write(p []byte) (int, error) {
	time.Sleep(w.duration)
	return w.ResponseRecorder.Write(p)
}

// TestDeadlineExcludesWaitingForClient checks that the time in which a slow client blocks the
// response does not count towards the deadline of the request.
func TestDeadlineExcludesWaitingForClient(t *testing.T) {
	const limit, parts = time.Minute, 5
	for name, test := range map[string]struct {
		clientTime, serverTime time.Duration // for each part
		wantComplete           bool
	}{
		"slow client":            {clientTime: limit * 2 / 3, serverTime: time.Second, wantComplete: true},
		"slow server":            {clientTime: time.Second, serverTime: limit * 2 / 3},
		"fast client and server": {clientTime: time.Second, serverTime: time.Second, wantComplete: true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), limit)
				defer cancel()
				recorder := slowWriter{httptest.NewRecorder(), test.clientTime}
				out := newChunkWriter(recorder, httptest.NewRequest("GET", "/", nil).WithContext(ctx), "text/plain", nil)
				defer out.releaseBuffer()
				complete := true
				for range parts {
					time.Sleep(test.serverTime)
					out.buf = append(out.buf, make([]byte, chunkSize)...)
					complete = complete && out.flushChunk(false)
				}
				if complete != test.wantComplete {
					t.Errorf("got a complete response: %t, want %t", complete, test.wantComplete)
				}
			})
		})
	}
}
