package serving

import (
	"bufio"
	"context"
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

// below is a writer of net/http: it remembers its deadlines, and a write waits as long as
// its client takes nothing.
type below struct {
	*httptest.ResponseRecorder
	takes time.Duration // a write
	conn  net.Conn      // that is hijacked, if any
	sizes []int
	write func(p []byte) (int, error) // if set

	mu          sync.Mutex
	read, wrote []time.Time
	cut         chan struct{} // closed by a deadline that has passed
}

func newBelow() *below {
	return &below{ResponseRecorder: httptest.NewRecorder(), cut: make(chan struct{})}
}

func (b *below) Write(p []byte) (int, error) {
	b.sizes = append(b.sizes, len(p))
	if b.write != nil {
		return b.write(p)
	}
	select {
	case <-time.After(b.takes):
		return len(p), nil
	case <-b.cut:
		return 0, os.ErrDeadlineExceeded
	}
}

func (b *below) SetReadDeadline(d time.Time) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.read = append(b.read, d)
	return nil
}

func (b *below) SetWriteDeadline(d time.Time) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.wrote = append(b.wrote, d); d.Equal(longAgo) {
		close(b.cut)
	}
	return nil
}

func (b *below) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	if b.conn == nil {
		return nil, nil, http.ErrNotSupported
	}
	return b.conn, bufio.NewReadWriter(bufio.NewReader(b.conn), bufio.NewWriter(b.conn)), nil
}

// until gives deadlines for people: how long until them.
func until(of []time.Time) string {
	var out []string
	for _, d := range of {
		switch {
		case d.IsZero():
			out = append(out, "none")
		case d.Equal(longAgo):
			out = append(out, "cut")
		default:
			out = append(out, time.Until(d).String())
		}
	}
	return strings.Join(out, " ")
}

const stalled, wholeBody = time.Minute, 3 * time.Minute

// exchanged makes an exchange in a time of its own.
func exchanged(t *testing.T, test func(t *testing.T, l *limits)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		m, err := newStallMetrics(nil)
		if err != nil {
			t.Fatal(err)
		}
		test(t, &limits{stall: stalled, body: wholeBody, metrics: m})
	})
}

func request(proto int, body io.Reader) *http.Request {
	r := httptest.NewRequest(http.MethodPost, "/", body)
	r.ProtoMajor = proto
	return r
}

// TestTimeForTheRest: what net/http does after the handler is bounded, and nothing else.
func TestTimeForTheRest(t *testing.T) {
	type body int
	const (
		none body = iota
		unread
		part
		whole
		broken
	)
	for name, tc := range map[string]struct {
		proto, class int
		body         body
		read, wrote  string
	}{
		"HTTP/1":                       {1, short, none, "", "2m0s"},
		"HTTP/1, an unread body":       {1, short, unread, "1m0s", "2m0s"},
		"HTTP/1, a body read in part":  {1, short, part, "1m0s", "2m0s"},
		"HTTP/1, a body that was read": {1, short, whole, "", "2m0s"},
		"HTTP/1, a body that breaks":   {1, short, broken, "1m0s", "2m0s"},
		"HTTP/1 that lasts":            {1, long, none, "", "none 2m0s"},
		"HTTP/2":                       {2, short, none, "", "2m0s"},
		"HTTP/2, an unread body":       {2, short, unread, "", "2m0s"},
		"HTTP/2 that lasts":            {2, long, none, "", "none 2m0s"},
	} {
		exchanged(t, func(t *testing.T, l *limits) {
			var in io.Reader
			switch tc.body {
			case none:
			case broken:
				in = io.MultiReader(strings.NewReader("body"), breaking{})
			default:
				in = strings.NewReader("body")
			}
			w := newBelow()
			x, r := l.exchange(w, request(tc.proto, in), tc.class)
			switch tc.body {
			case part:
				_, _ = r.Body.Read(make([]byte, 1))
			case whole, broken:
				_, _ = io.ReadAll(r.Body)
			}
			x.finish()
			if got := until(w.read); got != tc.read {
				t.Errorf("%s: may be read until %s, want %s", name, got, tc.read)
			}
			if got := until(w.wrote); got != tc.wrote {
				t.Errorf("%s: may be written until %s, want %s", name, got, tc.wrote)
			}
		})
	}
}

// breaking is a body that breaks.
type breaking struct{}

func (breaking) Read([]byte) (int, error) { return 0, io.ErrUnexpectedEOF }

// TestNoBody: a request without one has nothing that is bounded.
func TestNoBody(t *testing.T) {
	for _, body := range []io.ReadCloser{nil, http.NoBody} {
		exchanged(t, func(t *testing.T, l *limits) {
			r := request(1, nil)
			r.Body = body
			w := newBelow()
			x, got := l.exchange(w, r, short)
			if x.finish(); got != r || len(w.read) > 0 {
				t.Errorf("it is bounded by %s", until(w.read))
			}
		})
	}
}

// TestBodiesOfRequestsThatLast go on as long as they do.
func TestBodiesOfRequestsThatLast(t *testing.T) {
	exchanged(t, func(t *testing.T, l *limits) {
		r := request(1, strings.NewReader("body"))
		if _, got := l.exchange(newBelow(), r, long); got != r {
			t.Error("the body is bounded")
		}
	})
}

// TestTimeOfABody: each part of it has to come in time, and all of it; whoever reads has
// any time between two parts.
func TestTimeOfABody(t *testing.T) {
	for name, tc := range map[string]struct {
		whole, comes, pause time.Duration
		cut                 bool
	}{
		"a part that comes":                                  {wholeBody, stalled - 1, 0, false},
		"a part that comes late":                             {wholeBody, stalled + 1, 0, true},
		"a handler that takes its time":                      {0, stalled - 1, 5 * stalled, false},
		"parts that come late, without a bound of the whole": {0, stalled + 1, 0, true},
		"a whole that comes late":                            {wholeBody, stalled - 1, wholeBody - stalled + 2, true},
	} {
		exchanged(t, func(t *testing.T, l *limits) {
			l.body = tc.whole
			in, out := io.Pipe()
			w := newBelow()
			x, r := l.exchange(w, request(1, in), short)
			for range 2 {
				go func() {
					time.Sleep(tc.comes)
					_, _ = out.Write([]byte("x"))
				}()
				if _, err := r.Body.Read(make([]byte, 1)); err != nil {
					t.Error(err)
				}
				time.Sleep(tc.pause)
			}
			synctest.Wait()
			if got := testutil.ToFloat64(l.metrics.bodies) > 0; got != tc.cut || got != (len(w.read) > 0) {
				t.Errorf("%s: cut is %t, want %t; may be read until %s", name, got, tc.cut, until(w.read))
			}
			_ = out.Close()
			x.finish()
		})
	}
}

// TestTimeOfAnAnswer: a part that is not taken in time ends the answer, and what net/http
// may wait for instead.
func TestTimeOfAnAnswer(t *testing.T) {
	for name, tc := range map[string]struct {
		class  int
		steady bool
		takes  time.Duration
		cut    bool
	}{
		"in time":                      {short, false, connPatience*stalled - 1, false},
		"late":                         {short, false, connPatience*stalled + 1, true},
		"of a watch, in time":          {long, true, patience*stalled - 1, false},
		"of a watch, late":             {long, true, patience*stalled + 1, true},
		"of what people read, in time": {long, false, pause - 1, false},
		"of what people read, late":    {long, false, pause + 1, true},
	} {
		exchanged(t, func(t *testing.T, l *limits) {
			w := newBelow()
			w.takes = tc.takes
			x, _ := l.exchange(w, request(1, nil), tc.class)
			if tc.steady {
				Steady(x)
			}
			_, err := x.Write(make([]byte, 2*writtenAtOnce+1))
			if got := err != nil; got != tc.cut || (testutil.ToFloat64(l.metrics.answers) == 1) != tc.cut || len(w.sizes) != map[bool]int{true: 1, false: 3}[tc.cut] {
				t.Errorf("%s: %v after parts of %v, want cut %t", name, err, w.sizes, tc.cut)
			}
			if tc.cut != strings.Contains(until(w.wrote), "cut") || tc.cut != strings.Contains(until(w.read), "cut") {
				t.Errorf("%s: may be written until %s and read until %s", name, until(w.wrote), until(w.read))
			}
			x.finish()
		})
	}
}

// TestWritersWithoutDeadlines are written to, and flushed, as they are.
func TestWritersWithoutDeadlines(t *testing.T) {
	exchanged(t, func(t *testing.T, l *limits) {
		w := httptest.NewRecorder()
		x, _ := l.exchange(w, request(1, strings.NewReader("body")), long)
		if n, err := x.Write(make([]byte, largeSend)); n != largeSend || err != nil || w.Flushed {
			t.Errorf("%d bytes, %v, flushed %t", n, err, w.Flushed)
		}
		if x.Flush(); !w.Flushed || w.Body.Len() != largeSend {
			t.Errorf("flushed %t, %d bytes", w.Flushed, w.Body.Len())
		}
		if x.finish(); http.NewResponseController(x).SetReadDeadline(time.Time{}) == nil {
			t.Error("it has deadlines")
		}
	})
}

// slow is a writer without deadlines that takes its time.
type slow struct{ http.ResponseWriter }

func (s slow) Write(p []byte) (int, error) { time.Sleep(2 * stalled); return s.ResponseWriter.Write(p) }
func (s slow) Flush()                      { time.Sleep(2 * stalled) }

// TestWritersWithoutDeadlinesAreNotCut, as there is nothing to cut them by.
func TestWritersWithoutDeadlinesAreNotCut(t *testing.T) {
	exchanged(t, func(t *testing.T, l *limits) {
		x, _ := l.exchange(slow{httptest.NewRecorder()}, request(1, nil), short)
		_, err := x.Write(make([]byte, largeSend))
		if err = errors.Join(err, x.FlushError()); err != nil {
			t.Error(err)
		}
		x.finish()
	})
}

// TestBodiesThatAreReadForTooLong: who reads on when the handler has ended has the connection
// not cut, which may have another request by then.
func TestBodiesThatAreReadForTooLong(t *testing.T) {
	exchanged(t, func(t *testing.T, l *limits) {
		in, out := io.Pipe()
		x, r := l.exchange(newBelow(), request(1, in), short)
		go func() { _, _ = r.Body.Read(make([]byte, 1)) }()
		synctest.Wait()
		x.finish()
		time.Sleep(2 * stalled) // of the test's own time
		synctest.Wait()
		if n := testutil.ToFloat64(l.metrics.bodies); n > 0 {
			t.Errorf("%v bodies were cut", n)
		}
		_ = out.Close()
	})
}

// TestControllersFindTheWriter: what handlers do with the writer below.
func TestControllersFindTheWriter(t *testing.T) {
	exchanged(t, func(t *testing.T, l *limits) {
		w := newBelow()
		x, _ := l.exchange(w, request(1, nil), short)
		at := time.Now().Add(time.Second)
		if err := http.NewResponseController(x).SetReadDeadline(at); err != nil || until(w.read) != "1s" {
			t.Errorf("%v, %s", err, until(w.read))
		}
		if err := x.FlushError(); err != nil || !w.Flushed {
			t.Errorf("%v, flushed %t", err, w.Flushed)
		}
	})
}

// TestLargePartsLeaveTogether: over HTTP/1 what net/http makes of a large part is held, and
// a failure to send it is told to the handler.
func TestLargePartsLeaveTogether(t *testing.T) {
	gone := errors.New("gone")
	for name, tc := range map[string]struct {
		proto, size  int
		held         bool
		fails, under error // of net/http, and of the connection
	}{
		"small":                   {1, largeSend - 1, false, nil, nil},
		"large":                   {1, largeSend, true, nil, nil},
		"large, of HTTP/2":        {2, largeSend, false, nil, nil},
		"the connection fails":    {1, largeSend, true, nil, gone},
		"net/http fails":          {1, largeSend, true, gone, nil},
		"small, net/http fails":   {1, largeSend - 1, false, gone, nil},
		"of HTTP/2, it fails too": {2, largeSend, false, gone, nil},
	} {
		exchanged(t, func(t *testing.T, l *limits) {
			conn := &counted{err: tc.under}
			c := newTurnConn(t.Context(), &handshakes{sends: newTurns(1)}, conn)
			w := newBelow()
			w.write = func(p []byte) (int, error) {
				if corked(c) != tc.held {
					t.Errorf("%s: held is %t", name, !tc.held)
				}
				_, _ = c.Write(p)
				return len(p), tc.fails
			}
			r := request(tc.proto, nil)
			x, _ := l.exchange(w, r.WithContext(context.WithValue(r.Context(), belowKey{}, c)), short)
			if _, err := x.Write(make([]byte, tc.size)); !errors.Is(err, errors.Join(tc.fails, tc.under)) && (err == nil) != (tc.fails == nil && tc.under == nil) {
				t.Errorf("%s: the write ends with %v", name, err)
			}
			if corked(c) || len(conn.writes) != 1 {
				t.Errorf("%s: held is %t after %d writes", name, corked(c), len(conn.writes))
			}
		})
	}
}

// corked tells whether what is written is held.
func corked(c *turnConn) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.corked
}

// TestHijackedConnections: they are their new owner's, but for the writes of a watch. A
// handler that waits while a client takes nothing hears of that there too.
func TestHijackedConnections(t *testing.T) {
	over := errors.New("over")
	for name, tc := range map[string]struct {
		steady      bool
		reads       time.Duration // the client, after that
		goesOn      bool          // after the pause
		resume      error
		resumed     int
		failed, cut bool
	}{
		"its owner's":                 {false, 5 * stalled, false, nil, 0, false, false},
		"a watch that is read":        {true, moment / 2, true, nil, 0, false, false},
		"a watch that is read late":   {true, patience*stalled - 1, true, nil, 1, false, false},
		"a watch that may not go on":  {true, stalled, true, over, 1, true, false},
		"a watch that is not read":    {true, patience*stalled + 1, true, nil, 0, true, true},
		"a watch that is one of many": {true, stalled, false, nil, 0, true, true},
	} {
		exchanged(t, func(t *testing.T, l *limits) {
			client, server := net.Pipe()
			w := newBelow()
			w.conn = server
			x, _ := l.exchange(w, request(1, strings.NewReader("body")), short)
			resumed := 0
			Pausing(x, func() bool { return tc.goesOn }, func() error { resumed++; return tc.resume })
			if tc.steady {
				Steady(x)
			}
			conn, _, err := x.Hijack()
			if err != nil {
				t.Fatal(err)
			}
			go func() {
				time.Sleep(tc.reads)
				_, _ = client.Read(make([]byte, 1))
			}()
			_, err = conn.Write([]byte("x"))
			if (err != nil) != tc.failed || errors.Is(err, os.ErrDeadlineExceeded) != tc.cut || tc.resume != nil && !errors.Is(err, tc.resume) || resumed != tc.resumed {
				t.Errorf("%s: the write ends with %v, and goes on %d times", name, err, resumed)
			}
			if x.finish(); len(w.read)+len(w.wrote) > 0 {
				t.Errorf("%s: its old owner bounds it: %s, %s", name, until(w.read), until(w.wrote))
			}
			_, _ = client.Close(), server.Close()
			time.Sleep(tc.reads) // of the test's own time: until the client has ended
		})
	}
	exchanged(t, func(t *testing.T, l *limits) {
		w := newBelow()
		x, _ := l.exchange(w, request(1, nil), short)
		Steady(x)
		if conn, _, err := x.Hijack(); !errors.Is(err, http.ErrNotSupported) || conn != nil {
			t.Errorf("a writer that has none: %v, %v", conn, err)
		}
		if x.finish(); until(w.wrote) != "2m0s" {
			t.Errorf("after that it may be written until %s", until(w.wrote))
		}
	})
}

// TestWhoIsCutDoesNotGoOn: a handler whose client is cut is not asked to go on.
func TestWhoIsCutDoesNotGoOn(t *testing.T) {
	exchanged(t, func(t *testing.T, l *limits) {
		w := newBelow()
		w.takes = stalled
		x, _ := l.exchange(w, request(1, nil), short)
		Pausing(x, func() bool { return false }, func() error { t.Error("it goes on"); return nil })
		if _, err := x.Write(make([]byte, bufferedAnswer)); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("the write ends with %v", err)
		}
		x.finish()
	})
}
