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

// waiting has a stream wait for the write token, which another has.
func waiting(t *testing.T, then func(c *conn, s *stream)) (c *conn, err error) {
	synctest.Test(t, func(*testing.T) {
		c = &conn{server: NewServer(Config{}), wire: deadWire{}, streams: map[uint32]*stream{}}
		c.room.L, c.writing, c.config, c.timer = &c.mu, true, &Config{}, time.NewTimer(time.Hour)
		s := &stream{conn: c, id: 1, cancel: func() {}}
		c.streams[1] = s
		got := make(chan error)
		go func() {
			c.mu.Lock()
			defer c.mu.Unlock()
			err := c.acquire(s)
			go func() { got <- err }()
		}()
		synctest.Wait()
		c.mu.Lock()
		then(c, s)
		c.mu.Unlock()
		err = <-got
		c.mu.Lock()
		defer c.mu.Unlock()
	})
	return c, err
}

// TestWhoWaitsForThePen has it in his turn, and leaves it to others when he has nothing to write any
// more, however late he learns that.
func TestWhoWaitsForThePen(t *testing.T) {
	c, err := waiting(t, func(c *conn, s *stream) { c.release(nil) })
	if err != nil || !c.writing || len(c.writers) > 0 {
		t.Errorf("who gets it has it %t: %v", c.writing, err)
	}
	c, err = waiting(t, func(c *conn, s *stream) { c.close(s, errReset) })
	if !errors.Is(err, errReset) || !c.writing || len(c.writers) > 0 {
		t.Errorf("a stream that gives up is %d in the line, of a token that is taken %t: %v", len(c.writers), c.writing, err)
	}
	c, err = waiting(t, func(c *conn, s *stream) { c.release(nil); c.close(s, errReset) })
	if !errors.Is(err, errReset) || c.writing {
		t.Errorf("who gets it too late leaves it held %t: %v", c.writing, err)
	}
	c, err = waiting(t, func(c *conn, s *stream) { c.fail(errSilent) })
	if err == nil || len(c.writers) > 0 {
		t.Errorf("whose connection fails is %d in the line: %v", len(c.writers), err)
	}
	c = &conn{server: NewServer(Config{}), schedule: schedule{writers: []*stream{{}}, queue: backlog{size: mostPending}}}
	if c.roomFor(1) {
		t.Error("more is pending than who waits in the line has to write")
	}
}

// TestStreamsThatAreOver are given no more room, whoever has read their last bytes.
func TestStreamsThatAreOver(t *testing.T) {
	for name, of := range map[string]struct {
		open, got bool
		frames    int
	}{"open": {true, false, 1}, "whole": {true, true, 0}, "over": {false, false, 0}} {
		c := &conn{streams: map[uint32]*stream{}, in: window{step: 10}}
		s := &stream{conn: c, id: 1, got: of.got, in: window{step: 1}}
		if of.open {
			c.streams[1] = s
		}
		if c.refund(s, 2); c.queue.size != of.frames*(headLength+4) {
			t.Errorf("%d bytes of frames ask for more of a stream that is %s", c.queue.size, name)
		}
	}
}

// TestFailures: what is known to be one stays what it is.
func TestFailures(t *testing.T) {
	known := &Failure{Value: "odd"}
	for _, v := range []any{nil, known, http.ErrAbortHandler} {
		if got := Failed(v); got != v {
			t.Errorf("%v becomes %v", v, got)
		}
	}
	if f, ok := Failed("odd").(*Failure); !ok || f.Value != "odd" || len(f.Stack) == 0 {
		t.Errorf("odd becomes %v", f)
	}
}

// wireOf takes writes, and fails as it is told.
type wireOf struct {
	deadWire
	wrote    []byte
	writes   int // until one fails; 0 for none
	released error
}

func (w *wireOf) Hold()          {}
func (w *wireOf) Release() error { return w.released }
func (w *wireOf) Write(p []byte) (int, error) {
	if w.writes--; w.writes == 0 {
		return 0, errSilent
	}
	w.wrote = append(w.wrote, p...)
	return len(p), nil
}

// TestRecords have all that is to be written, in its order, and a failure of any of them is one.
func TestRecords(t *testing.T) {
	for _, sizes := range [][]int{nil, {100}, {together}, {together - 4}, {together, 100}, {together, together}} {
		for _, n := range []int{0, 5, 3 * together} {
			if len(sizes) == 0 && n == 0 {
				continue // nothing is not written
			}
			for fails := range len(sizes) + 1 {
				w, want := &wireOf{writes: fails}, []byte(nil)
				c, records := &conn{wire: w, config: &Config{}}, []*[]byte(nil)
				for _, size := range sizes {
					r := append(make([]byte, 0, together), bytes.Repeat([]byte{'r'}, size)...)
					records, want = append(records, &r), append(want, r...)
				}
				err := c.emit(records, 1, bytes.Repeat([]byte{'d'}, n), true)
				if (err != nil) != (fails > 0) {
					t.Errorf("%v and %d bytes: %v where write %d fails", sizes, n, err, fails)
				}
				if fails > 0 {
					continue
				}
				rest, whole := bytes.CutPrefix(w.wrote, want)
				for end := false; whole && n > 0 && !end; {
					h := parseHead(rest)
					end = h.has(http2.FlagDataEndStream)
					rest = rest[headLength:]
					whole = h.kind == http2.FrameData && string(rest[:h.length]) == strings.Repeat("d", h.length)
					rest, n = rest[h.length:], n-h.length
				}
				if !whole || len(rest) != 0 || n != 0 {
					t.Errorf("%v: others are written, and %d bytes are missing", sizes, n)
				}
			}
		}
	}
	for _, n := range []int{5, 3 * together} {
		w := &wireOf{writes: (n + together - 1) / together}
		if n > together {
			w.writes++ // their heads take room
		}
		if err := (&conn{wire: w, config: &Config{}}).emit(nil, 1, make([]byte, n), true); err == nil {
			t.Errorf("%d bytes are written where the last of them fail", n)
		}
		w = &wireOf{released: errSilent}
		if err := (&conn{wire: w, config: &Config{}}).emit(nil, 1, make([]byte, n), true); err == nil {
			t.Errorf("%d bytes are written that do not leave", n)
		}
	}
}

// TestDates are those of now.
func TestDates(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := NewServer(Config{})
		for range 3 {
			if got, want := s.date(), time.Now().UTC().Format(http.TimeFormat); got != want {
				t.Errorf("it is %s, not %s", want, got)
			}
			time.Sleep(time.Second)
		}
	})
}

// TestNamesOfFields are remembered, but not all that clients come up with.
func TestNamesOfFields(t *testing.T) {
	c := &conn{names: map[string]string{}}
	long := strings.Repeat("n", 1000)
	if got := c.canonical(long); got != http.CanonicalHeaderKey(long) || len(c.names) > 0 {
		t.Errorf("%s is kept", got)
	}
	for i := range 1000 {
		name := "x-" + strconv.Itoa(i)
		for range 2 {
			if got := c.canonical(name); got != http.CanonicalHeaderKey(name) {
				t.Errorf("%s becomes %s", name, got)
			}
		}
	}
	if n := len(c.names); n == 0 || n > usualNames {
		t.Errorf("%d names are kept", n)
	}
}
