package h2

import (
	"errors"

	"golang.org/x/net/http2"
)

// data reads a part of a body.
func (c *conn) data(h head) error {
	if h.stream == 0 {
		return broken(http2.ErrCodeProtocol, "data of no stream")
	}
	n := h.length
	if h.has(http2.FlagDataPadded) {
		if n == 0 {
			return broken(http2.ErrCodeFrameSize, "padding without a length")
		}
		b, err := c.peek(1)
		if err != nil {
			return err
		}
		if n -= 1 + int(b[0]); n < 0 {
			return broken(http2.ErrCodeProtocol, "more padding than there is room for")
		}
		_, _ = c.r.Discard(1)
	}
	s, refused := c.receive(h, n)
	if n < smallData || s == nil {
		c.control++
	}
	var against *connError
	if errors.As(refused, &against) {
		return refused
	}
	unwanted, err := c.readBody(s, n)
	if err != nil {
		return err
	}
	rest := h.length - n
	if h.has(http2.FlagDataPadded) {
		_, err = c.r.Discard(rest - 1)
	}
	c.mu.Lock()
	if s == nil {
		c.refund(nil, int64(h.length))
	} else {
		c.refund(s, int64(rest+unwanted))
	}
	c.mu.Unlock()
	switch {
	case err != nil:
		return err
	case errors.Is(refused, errIgnored):
		return nil
	case refused != nil:
		return refused
	case h.has(http2.FlagDataEndStream):
		return c.ended(s)
	}
	return nil
}

// receive takes a frame of n bytes of data from the windows. Without a stream they are thrown away.
func (c *conn) receive(h head, n int) (*stream, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.isIdle(h.stream):
		return nil, broken(http2.ErrCodeProtocol, "data of a stream that is not open")
	case int64(h.length) > c.in.left:
		return nil, broken(http2.ErrCodeFlowControl, "more data than there is room for")
	}
	c.in.left -= int64(h.length)
	s := c.streams[h.stream]
	if s == nil {
		if _, byUs := c.closed.find(h.stream); byUs || h.stream > c.last {
			return nil, errIgnored
		}
		return nil, &streamError{h.stream, http2.ErrCodeStreamClosed}
	}
	switch {
	case s.got:
		return nil, &streamError{h.stream, http2.ErrCodeStreamClosed}
	case int64(h.length) > s.in.left:
		return nil, &streamError{h.stream, http2.ErrCodeFlowControl}
	case s.declared >= 0 && s.received+int64(n) > s.declared:
		return nil, &streamError{h.stream, http2.ErrCodeProtocol}
	}
	s.in.left -= int64(h.length)
	s.received += int64(n)
	return s, nil
}

// readBody reads n bytes of data and returns the number of bytes that the handler no longer reads.
func (c *conn) readBody(s *stream, n int) (unwanted int, err error) {
	for n > 0 {
		p, err := c.peek(n)
		if err != nil {
			return 0, err
		}
		if s != nil {
			unwanted += s.body.write(p)
		}
		_, _ = c.r.Discard(len(p))
		n -= len(p)
	}
	return unwanted, nil
}

// peek returns up to n bytes of what has come, at least one.
func (c *conn) peek(n int) ([]byte, error) {
	if c.r.Buffered() == 0 {
		if err := c.settle(false); err != nil {
			return nil, err
		}
		if _, err := c.r.Peek(1); err != nil {
			return nil, err
		}
	}
	return c.r.Peek(min(n, c.r.Buffered()))
}
