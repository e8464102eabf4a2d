package h2

import (
	"bytes"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/net/http2"
)

// acquireWaiting calls acquire on a stream while another one holds the token, and then calls then.
func acquireWaiting(t *testing.T, then func(connection *conn, s *stream)) (connection *conn, err error) {
	synctest.Test(t, func(*testing.T) {
		connection = &conn{server: NewServer(Config{}), wire: deadlineWire{}, streams: map[uint32]*stream{}}
		connection.queueSpace.L, connection.tokenTaken, connection.config, connection.timer = &connection.mu, true, &Config{}, time.NewTimer(time.Hour)
		s := &stream{conn: connection, id: 1, cancel: func() {}}
		connection.streams[1] = s
		got := make(chan error)
		go func() {
			connection.mu.Lock()
			defer connection.mu.Unlock()
			err := connection.acquireToken(s)
			go func() { got <- err }()
		}()
		synctest.Wait()
		connection.mu.Lock()
		then(connection, s)
		connection.mu.Unlock()
		err = <-got
		connection.mu.Lock()
		defer connection.mu.Unlock()
	})
	return connection, err
}

// TestWaitingStreamGetsWriteToken checks that a waiting stream gets the token, and that streams
// that are closed meanwhile do not keep it.
func TestWaitingStreamGetsWriteToken(t *testing.T) {
	connection, err := acquireWaiting(t, func(connection *conn, s *stream) { connection.releaseToken(nil) })
	if err != nil || !connection.tokenTaken || len(connection.waitingForToken) > 0 {
		t.Errorf("after release: got token taken: %t, error %v, want true, no error", connection.tokenTaken, err)
	}
	connection, err = acquireWaiting(t, func(connection *conn, s *stream) { connection.closeStream(s, errResetByClient) })
	if !errors.Is(err, errResetByClient) || !connection.tokenTaken || len(connection.waitingForToken) > 0 {
		t.Errorf("after close: got %d waiting, token taken: %t, error %v, want none, true, %v",
			len(connection.waitingForToken), connection.tokenTaken, err, errResetByClient)
	}
	connection, err = acquireWaiting(t, func(connection *conn, s *stream) {
		connection.releaseToken(nil)
		connection.closeStream(s, errResetByClient)
	})
	if !errors.Is(err, errResetByClient) || connection.tokenTaken {
		t.Errorf("after release and close: got token taken: %t, error %v, want false, %v", connection.tokenTaken, err, errResetByClient)
	}
	connection, err = acquireWaiting(t, func(connection *conn, s *stream) { connection.terminate(errPingTimeout) })
	if err == nil || len(connection.waitingForToken) > 0 {
		t.Errorf("after fail: got %d waiting, error %v, want none and an error", len(connection.waitingForToken), err)
	}
	connection = &conn{server: NewServer(Config{}), schedule: schedule{waitingForToken: []*stream{{}}, queue: backlog{size: maxPending}}}
	if connection.reserveQueueSpace(1) {
		t.Error("reserveQueueSpace(1) = true while a stream waits for the token, want false")
	}
}

// TestReturnCreditSkipsEndedStreams checks that returnCredit queues a WINDOW_UPDATE only for an open
// stream whose request has not ended.
func TestReturnCreditSkipsEndedStreams(t *testing.T) {
	for name, test := range map[string]struct {
		isOpen, requestEnded bool
		wantFrames           int
	}{
		"open stream":             {isOpen: true, requestEnded: false, wantFrames: 1},
		"request of stream ended": {isOpen: true, requestEnded: true, wantFrames: 0},
		"stream closed":           {isOpen: false, requestEnded: false, wantFrames: 0},
	} {
		const consumed, streamStep, connStep = 2, 1, 10 // enough for the stream's window only
		conn := &conn{streams: map[uint32]*stream{}, recvWindow: window{step: connStep}}
		s := &stream{conn: conn, id: 1, requestEnded: test.requestEnded, recvWindow: window{step: streamStep}}
		if test.isOpen {
			conn.streams[s.id] = s
		}
		conn.returnCredit(s, consumed)
		if want := test.wantFrames * (frameHeaderLen + 4); conn.queue.size != want {
			t.Errorf("%s: returnCredit queued %d bytes, want %d", name, conn.queue.size, want)
		}
	}
}

// TestFailedWrapsValueOnce checks that Failed wraps values once.
func TestFailedWrapsValueOnce(t *testing.T) {
	known := &Failure{Value: "odd"}
	for _, v := range []any{nil, known, http.ErrAbortHandler} {
		if got := Failed(v); got != v {
			t.Errorf("Failed(%v) = %v, want no change", v, got)
		}
	}
	if f, ok := Failed("odd").(*Failure); !ok || f.Value != "odd" || len(f.Stack) == 0 {
		t.Errorf("Failed(odd) = %v, want a *Failure with the value odd and a stack", f)
	}
}

// fakeWire records writes and can fail.
type fakeWire struct {
	deadlineWire
	written  []byte
	writes   int // the write that fails; 0 for none
	released error
}

func (w *fakeWire) Cork()         {}
func (w *fakeWire) Uncork() error { return w.released }
func (w *fakeWire) Write(data []byte) (int, error) {
	w.writes--
	if w.writes == 0 {
		return 0, errPingTimeout
	}
	w.written = append(w.written, data...)
	return len(data), nil
}

// TestWriteFramesInOrder checks that records and data are written in order, and that any failure is
// returned.
func TestWriteFramesInOrder(t *testing.T) {
	for _, sizes := range [][]int{nil, {100}, {recordSize}, {recordSize - 4}, {recordSize, 100}, {recordSize, recordSize}} {
		for _, n := range []int{0, 5, 3 * recordSize} {
			if len(sizes) == 0 && n == 0 {
				continue // nothing to write
			}
			for fails := range len(sizes) + 1 {
				wire, want := &fakeWire{writes: fails}, []byte(nil)
				c, records := &conn{wire: wire, config: &Config{}}, []*[]byte(nil)
				for _, size := range sizes {
					r := append(make([]byte, 0, recordSize), bytes.Repeat([]byte{'r'}, size)...)
					records, want = append(records, &r), append(want, r...)
				}
				err := c.writeFrames(records, 1, bytes.Repeat([]byte{'d'}, n), true)
				if (err != nil) != (fails > 0) {
					t.Errorf("records %v and %d bytes: got error %v, want one: %t", sizes, n, err, fails > 0)
				}
				if fails > 0 {
					continue
				}
				remaining, complete := bytes.CutPrefix(wire.written, want)
				for end := false; complete && n > 0 && !end; {
					h := parseFrameHeader(remaining)
					end = h.has(http2.FlagDataEndStream)
					remaining = remaining[frameHeaderLen:]
					complete = h.kind == http2.FrameData && string(remaining[:h.length]) == strings.Repeat("d", h.length)
					remaining, n = remaining[h.length:], n-h.length
				}
				if !complete || len(remaining) != 0 || n != 0 {
					t.Errorf("records %v: %d bytes are missing, want all frames complete", sizes, n)
				}
			}
		}
	}
	for _, n := range []int{5, 3 * recordSize} {
		wire := &fakeWire{writes: (n + recordSize - 1) / recordSize}
		if n > recordSize {
			wire.writes++ // frame headers need space
		}
		if err := (&conn{wire: wire, config: &Config{}}).writeFrames(nil, 1, make([]byte, n), true); err == nil {
			t.Errorf("writing %d bytes succeeded although the last write failed, want an error", n)
		}
		wire = &fakeWire{released: errPingTimeout}
		if err := (&conn{wire: wire, config: &Config{}}).writeFrames(nil, 1, make([]byte, n), true); err == nil {
			t.Errorf("writing %d bytes succeeded although Uncork failed, want an error", n)
		}
	}
}

// TestDateHeaderIsCurrent checks that the cached date is updated every second.
func TestDateHeaderIsCurrent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := NewServer(Config{})
		for range 3 {
			if got, want := s.dateHeader(), time.Now().UTC().Format(http.TimeFormat); got != want {
				t.Errorf("got %s, want %s", got, want)
			}
			time.Sleep(time.Second)
		}
	})
}

// TestCanonicalNameCacheIsLimited checks that only a limited number of short names is cached.
func TestCanonicalNameCacheIsLimited(t *testing.T) {
	connection := &conn{canonicalNames: map[string]string{}}
	long := strings.Repeat("n", 1000)
	if got := connection.canonicalName(long); got != http.CanonicalHeaderKey(long) || len(connection.canonicalNames) > 0 {
		t.Errorf("canonicalName of a name of 1000 bytes = %.40s, %d cached names, want %.40s, 0", got,
			len(connection.canonicalNames), http.CanonicalHeaderKey(long))
	}
	for i := range 1000 {
		name := "x-" + strconv.Itoa(i)
		for range 2 {
			if got := connection.canonicalName(name); got != http.CanonicalHeaderKey(name) {
				t.Errorf("canonicalName(%s) = %s, want %s", name, got, http.CanonicalHeaderKey(name))
			}
		}
	}
	if n := len(connection.canonicalNames); n == 0 || n > maxCachedNames {
		t.Errorf("got %d cached names, want from 1 to %d", n, maxCachedNames)
	}
}
