package exchange

import (
	"bufio"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
)

// fakeWriter is a response writer of net/http that records its deadlines. A write blocks for delay.
type fakeWriter struct {
	*httptest.ResponseRecorder
	delay      time.Duration // of a write
	hijackConn net.Conn      // returned by Hijack; may be nil
	sizes      []int
	write      func(p []byte) (int, error) // if set, replaces the delay

	mu                            sync.Mutex
	readDeadlines, writeDeadlines []time.Time
	aborted                       chan struct{} // closed when a past deadline is set
}

func newFakeWriter() *fakeWriter {
	return &fakeWriter{ResponseRecorder: httptest.NewRecorder(), aborted: make(chan struct{})}
}

func (b *fakeWriter) Write(data []byte) (int, error) {
	b.sizes = append(b.sizes, len(data))
	if b.write != nil {
		return b.write(data)
	}
	select {
	case <-time.After(b.delay):
		return len(data), nil
	case <-b.aborted:
		return 0, os.ErrDeadlineExceeded
	}
}

func (b *fakeWriter) SetReadDeadline(d time.Time) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.readDeadlines = append(b.readDeadlines, d)
	return nil
}

func (b *fakeWriter) SetWriteDeadline(d time.Time) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.writeDeadlines = append(b.writeDeadlines, d)
	if d.Equal(pastDeadline) {
		close(b.aborted)
	}
	return nil
}

func (b *fakeWriter) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	if b.hijackConn == nil {
		return nil, nil, http.ErrNotSupported
	}
	return b.hijackConn, bufio.NewReadWriter(bufio.NewReader(b.hijackConn), bufio.NewWriter(b.hijackConn)), nil
}

// formatDeadlines returns the times until the deadlines.
func formatDeadlines(deadlines []time.Time) string {
	var out []string
	for _, d := range deadlines {
		switch {
		case d.IsZero():
			out = append(out, "none")
		case d.Equal(pastDeadline):
			out = append(out, "past")
		default:
			out = append(out, time.Until(d).String())
		}
	}
	return strings.Join(out, " ")
}

const stallTimeout, bodyTimeout = time.Minute, 3 * time.Minute

// testExchange runs test in a synctest bubble.
func testExchange(t *testing.T, test func(t *testing.T, l *Limits)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		m, err := newStallMetrics(nil)
		if err != nil {
			t.Fatal(err)
		}
		test(t, &Limits{stallTimeout: stallTimeout, bodyTimeout: bodyTimeout, metrics: m})
	})
}

func request(proto int, body io.Reader) *http.Request {
	r := httptest.NewRequest(http.MethodPost, "/", body)
	r.ProtoMajor = proto
	return r
}

// TestFinishSetsDeadlines checks the deadlines for what net/http does after the handler.
func TestFinishSetsDeadlines(t *testing.T) {
	type body int
	const (
		none body = iota
		unread
		part
		complete
		broken
	)
	for name, test := range map[string]struct {
		proto       int
		long        bool
		body        body
		read, wrote string
	}{
		"HTTP/1":                   {proto: 1, long: false, body: none, read: "", wrote: "2m0s"},
		"HTTP/1, unread body":      {proto: 1, long: false, body: unread, read: "1m0s", wrote: "2m0s"},
		"HTTP/1, partly read body": {proto: 1, long: false, body: part, read: "1m0s", wrote: "2m0s"},
		"HTTP/1, read body":        {proto: 1, long: false, body: complete, read: "", wrote: "2m0s"},
		"HTTP/1, failing body":     {proto: 1, long: false, body: broken, read: "1m0s", wrote: "2m0s"},
		"HTTP/1 long-running":      {proto: 1, long: true, body: none, read: "", wrote: "none 2m0s"},
		"HTTP/2":                   {proto: 2, long: false, body: none, read: "", wrote: "2m0s"},
		"HTTP/2, unread body":      {proto: 2, long: false, body: unread, read: "", wrote: "2m0s"},
		"HTTP/2 long-running":      {proto: 2, long: true, body: none, read: "", wrote: "none 2m0s"},
	} {
		testExchange(t, func(t *testing.T, limits *Limits) {
			var in io.Reader
			switch test.body {
			case none:
			case broken:
				in = io.MultiReader(strings.NewReader("body"), failingReader{})
			default:
				in = strings.NewReader("body")
			}
			fakeWriter := newFakeWriter()
			exchange, r := limits.Start(fakeWriter, request(test.proto, in), test.long)
			switch test.body {
			case part:
				_, _ = r.Body.Read(make([]byte, 1))
			case complete, broken:
				_, _ = io.ReadAll(r.Body)
			}
			exchange.Finish()
			if got := formatDeadlines(fakeWriter.readDeadlines); got != test.read {
				t.Errorf("%s: read deadlines = %s, want %s", name, got, test.read)
			}
			if got := formatDeadlines(fakeWriter.writeDeadlines); got != test.wrote {
				t.Errorf("%s: write deadlines = %s, want %s", name, got, test.wrote)
			}
		})
	}
}

// failingReader fails every read.
type failingReader struct{}

func (failingReader) Read([]byte) (int, error) { return 0, io.ErrUnexpectedEOF }

// TestLongRunningBodyHasNoLimit checks that the body of a long-running request is not limited.
func TestLongRunningBodyHasNoLimit(t *testing.T) {
	testExchange(t, func(t *testing.T, l *Limits) {
		r := request(1, strings.NewReader("body"))
		if _, got := l.Start(newFakeWriter(), r, true); got != r {
			t.Error("Start() of a long-running request replaced the request, want its body without a limit")
		}
	})
}

// TestSlowBodyIsAborted checks the limits for each part of a body and for the whole. The handler may
// pause between reads.
func TestSlowBodyIsAborted(t *testing.T) {
	for name, test := range map[string]struct {
		whole, comes, pause time.Duration
		aborted             bool
	}{
		"part in time":                      {whole: bodyTimeout, comes: stallTimeout - 1, pause: 0, aborted: false},
		"late part":                         {whole: bodyTimeout, comes: stallTimeout + 1, pause: 0, aborted: true},
		"slow handler":                      {whole: 0, comes: stallTimeout - 1, pause: 5 * stallTimeout, aborted: false},
		"late parts, no limit of the whole": {whole: 0, comes: stallTimeout + 1, pause: 0, aborted: true},
		"late body": {
			whole:   bodyTimeout,
			comes:   stallTimeout - 1,
			pause:   bodyTimeout - stallTimeout + 2,
			aborted: true,
		},
	} {
		testExchange(t, func(t *testing.T, limits *Limits) {
			limits.bodyTimeout = test.whole
			in, out := io.Pipe()
			fakeWriter := newFakeWriter()
			exchange, r := limits.Start(fakeWriter, request(1, in), false)
			for range 2 {
				go func() {
					time.Sleep(test.comes)
					_, _ = out.Write([]byte("x"))
				}()
				if _, err := r.Body.Read(make([]byte, 1)); err != nil {
					t.Error(err)
				}
				time.Sleep(test.pause)
			}
			synctest.Wait()
			if got := testutil.ToFloat64(limits.metrics.bodies) > 0; got != test.aborted || got != (len(fakeWriter.readDeadlines) > 0) {
				t.Errorf("%s: aborted = %t, want %t; read deadlines %s", name, got, test.aborted, formatDeadlines(fakeWriter.readDeadlines))
			}
			_ = out.Close()
			exchange.Finish()
		})
	}
}

// TestSlowWriteIsAborted checks that a response is aborted when a part of it is not taken in time.
func TestSlowWriteIsAborted(t *testing.T) {
	for name, test := range map[string]struct {
		long    bool
		steady  bool
		takes   time.Duration
		aborted bool
	}{
		"in time":               {long: false, steady: false, takes: ConnPatience*stallTimeout - 1, aborted: false},
		"late":                  {long: false, steady: false, takes: ConnPatience*stallTimeout + 1, aborted: true},
		"watch, in time":        {long: true, steady: true, takes: watchStallFactor*stallTimeout - 1, aborted: false},
		"watch, late":           {long: true, steady: true, takes: watchStallFactor*stallTimeout + 1, aborted: true},
		"long-running, in time": {long: true, steady: false, takes: longRunningStall - 1, aborted: false},
		"long-running, late":    {long: true, steady: false, takes: longRunningStall + 1, aborted: true},
	} {
		testExchange(t, func(t *testing.T, limits *Limits) {
			fakeWriter := newFakeWriter()
			fakeWriter.delay = test.takes
			exchange, _ := limits.Start(fakeWriter, request(1, nil), test.long)
			if test.steady {
				LimitStall(exchange)
			}
			_, err := exchange.Write(make([]byte, 2*maxWrite+1))
			if got := err != nil; got != test.aborted {
				t.Errorf("%s: got error %v, want one: %t", name, err, test.aborted)
			}
			if got := testutil.ToFloat64(limits.metrics.responses) == 1; got != test.aborted {
				t.Errorf("%s: got an aborted response counted: %t, want %t", name, got, test.aborted)
			}
			if want := map[bool]int{true: 1, false: 3}[test.aborted]; len(fakeWriter.sizes) != want {
				t.Errorf("%s: got writes of %v, want %d", name, fakeWriter.sizes, want)
			}
			if test.aborted != strings.Contains(formatDeadlines(fakeWriter.writeDeadlines), "past") ||
				test.aborted != strings.Contains(formatDeadlines(fakeWriter.readDeadlines), "past") {
				t.Errorf("%s: got write deadlines %s, read deadlines %s, want past ones: %t", name,
					formatDeadlines(fakeWriter.writeDeadlines), formatDeadlines(fakeWriter.readDeadlines), test.aborted)
			}
			exchange.Finish()
		})
	}
}

// TestWriterWithoutDeadlinesIsPassedThrough checks that such a writer is written to and flushed
// directly.
func TestWriterWithoutDeadlinesIsPassedThrough(t *testing.T) {
	testExchange(t, func(t *testing.T, l *Limits) {
		responseRecorder := httptest.NewRecorder()
		exchange, _ := l.Start(responseRecorder, request(1, strings.NewReader("body")), true)
		if n, err := exchange.Write(make([]byte, largeSend)); n != largeSend || err != nil || responseRecorder.Flushed {
			t.Errorf("got %d bytes, %v, flushed: %t, want %d, not flushed", n, err, responseRecorder.Flushed, largeSend)
		}
		exchange.Flush()
		if !responseRecorder.Flushed || responseRecorder.Body.Len() != largeSend {
			t.Errorf("got flushed: %t, %d bytes, want true, %d", responseRecorder.Flushed, responseRecorder.Body.Len(), largeSend)
		}
		exchange.Finish()
		if http.NewResponseController(exchange).SetReadDeadline(time.Time{}) == nil {
			t.Error("SetReadDeadline() after Finish = nil, want an error")
		}
	})
}

// slowWriter is a slow writer without deadlines.
type slowWriter struct{ http.ResponseWriter }

func (s slowWriter) Write(p []byte) (int, error) {
	time.Sleep(2 * stallTimeout)
	return s.ResponseWriter.Write(p)
}
func (s slowWriter) Flush() { time.Sleep(2 * stallTimeout) }

// TestWriterWithoutDeadlinesIsNotAborted checks that slow writes succeed if the writer has no
// deadlines.
func TestWriterWithoutDeadlinesIsNotAborted(t *testing.T) {
	testExchange(t, func(t *testing.T, l *Limits) {
		exchange, _ := l.Start(slowWriter{httptest.NewRecorder()}, request(1, nil), false)
		_, err := exchange.Write(make([]byte, largeSend))
		if err = errors.Join(err, exchange.FlushError()); err != nil {
			t.Error(err)
		}
		exchange.Finish()
	})
}

// TestBodyReadAfterHandlerIsNotAborted checks that a read that continues after the handler does not
// abort the connection, which may serve another request by then.
func TestBodyReadAfterHandlerIsNotAborted(t *testing.T) {
	testExchange(t, func(t *testing.T, limits *Limits) {
		in, out := io.Pipe()
		x, r := limits.Start(newFakeWriter(), request(1, in), false)
		go func() { _, _ = r.Body.Read(make([]byte, 1)) }()
		synctest.Wait()
		x.Finish()
		time.Sleep(2 * stallTimeout) // in synctest time
		synctest.Wait()
		if n := testutil.ToFloat64(limits.metrics.bodies); n > 0 {
			t.Errorf("%v bodies were aborted, want 0", n)
		}
		_ = out.Close()
	})
}

// TestResponseControllerReachesWriter checks that handlers can use the wrapped writer's methods.
func TestResponseControllerReachesWriter(t *testing.T) {
	testExchange(t, func(t *testing.T, l *Limits) {
		fakeWriter := newFakeWriter()
		exchange, _ := l.Start(fakeWriter, request(1, nil), false)
		at := time.Now().Add(time.Second)
		if err := http.NewResponseController(exchange).SetReadDeadline(at); err != nil || formatDeadlines(fakeWriter.readDeadlines) != "1s" {
			t.Errorf("got %v, %s, want 1s", err, formatDeadlines(fakeWriter.readDeadlines))
		}
		if err := exchange.FlushError(); err != nil || !fakeWriter.Flushed {
			t.Errorf("got %v, flushed: %t, want no error, true", err, fakeWriter.Flushed)
		}
	})
}

// TestLargeWriteIsCorked checks that over HTTP/1 the records of a large write leave together, and
// that the handler gets a send error.
func TestLargeWriteIsCorked(t *testing.T) {
	gone := errors.New("gone")
	for name, test := range map[string]struct {
		proto, size  int
		held         bool
		fails, under error // of net/http, and of the connection
	}{
		"small":                  {proto: 1, size: largeSend - 1, held: false, fails: nil, under: nil},
		"large":                  {proto: 1, size: largeSend, held: true, fails: nil, under: nil},
		"large, HTTP/2":          {proto: 2, size: largeSend, held: false, fails: nil, under: nil},
		"the connection fails":   {proto: 1, size: largeSend, held: true, fails: nil, under: gone},
		"net/http fails":         {proto: 1, size: largeSend, held: true, fails: gone, under: nil},
		"small, net/http fails":  {proto: 1, size: largeSend - 1, held: false, fails: gone, under: nil},
		"HTTP/2, net/http fails": {proto: 2, size: largeSend, held: false, fails: gone, under: nil},
	} {
		testExchange(t, func(t *testing.T, limits *Limits) {
			corked := &corkedConn{err: test.under}
			fakeWriter := newFakeWriter()
			fakeWriter.write = func(data []byte) (int, error) {
				if corked.corked != test.held {
					t.Errorf("%s: got corked: %t, want %t", name, !test.held, test.held)
				}
				_, _ = corked.Write(data)
				return len(data), test.fails
			}
			r := request(test.proto, nil)
			x, _ := limits.Start(fakeWriter, r.WithContext(WithConn(r.Context(), corked)), false)
			if _, err := x.Write(make([]byte, test.size)); !errors.Is(err, errors.Join(test.fails, test.under)) &&
				(err == nil) != (test.fails == nil && test.under == nil) {
				t.Errorf("%s: Write() = %v, want %v", name, err, errors.Join(test.fails, test.under))
			}
			if corked.corked || corked.writes != 1 {
				t.Errorf("%s: got corked: %t after %d writes, want false after 1", name, corked.corked, corked.writes)
			}
		})
	}
}

// corkedConn counts the writes that leave it.
type corkedConn struct {
	net.Conn
	corked bool
	writes int
	err    error // of Uncork
}

func (c *corkedConn) Write(p []byte) (int, error) {
	if !c.corked {
		c.writes++
	}
	return len(p), nil
}

func (c *corkedConn) Cork() { c.corked = true }

func (c *corkedConn) Uncork() error {
	c.corked = false
	c.writes++
	return c.err
}

func (c *corkedConn) Delivered() (acknowledged, outstanding int64) { return 0, 0 }
