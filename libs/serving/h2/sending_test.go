package h2

import (
	"errors"
	"net/http"
	"testing"
	"testing/synctest"
)

// waiting has a stream wait for the pen, which somebody else has.
func waiting(t *testing.T, then func(c *conn, s *stream)) (c *conn, err error) {
	synctest.Test(t, func(*testing.T) {
		c = &conn{server: NewServer(Config{}), wire: deadWire{}, streams: map[uint32]*stream{}}
		c.room.L, c.held = &c.mu, true
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
	if err != nil || !c.held || len(c.line) > 0 {
		t.Errorf("who gets it has it %t: %v", c.held, err)
	}
	c, err = waiting(t, func(c *conn, s *stream) { c.close(s, errReset) })
	if !errors.Is(err, errReset) || !c.held || len(c.line) > 0 {
		t.Errorf("who gives up is %d in the line, of a pen that is held %t: %v", len(c.line), c.held, err)
	}
	c, err = waiting(t, func(c *conn, s *stream) { c.release(nil); c.close(s, errReset) })
	if !errors.Is(err, errReset) || c.held {
		t.Errorf("who gets it too late leaves it held %t: %v", c.held, err)
	}
	c, err = waiting(t, func(c *conn, s *stream) { c.fail(errSilent) })
	if err == nil || len(c.line) > 0 {
		t.Errorf("whose connection fails is %d in the line: %v", len(c.line), err)
	}
	c = &conn{server: NewServer(Config{}), sending: sending{line: []*stream{{}}, pending: backlog{size: mostPending}}}
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
		if c.refund(s, 2); c.pending.size != of.frames*(headLength+4) {
			t.Errorf("%d bytes of frames ask for more of a stream that is %s", c.pending.size, name)
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
