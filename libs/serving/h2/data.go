package h2

import (
	"errors"

	"golang.org/x/net/http2"
)

// handleData handles a DATA frame.
func (c *conn) handleData(h frameHeader) error {
	if h.stream == 0 {
		return newConnError(http2.ErrCodeProtocol, "DATA on stream 0")
	}
	n := h.length
	if h.has(http2.FlagDataPadded) {
		if n == 0 {
			return newConnError(http2.ErrCodeFrameSize, "padding without length")
		}
		b, err := c.peek(1)
		if err != nil {
			return err
		}
		if n -= 1 + int(b[0]); n < 0 {
			return newConnError(http2.ErrCodeProtocol, "padding exceeds the frame")
		}
		_, _ = c.r.Discard(1)
	}
	s, refused := c.accountData(h, n)
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
		return c.endRequest(s)
	}
	return nil
}

// accountData takes a DATA frame with n bytes of data from the windows. It returns no stream if the
// data is to be discarded.
func (c *conn) accountData(h frameHeader, n int) (*stream, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.isIdle(h.stream):
		return nil, newConnError(http2.ErrCodeProtocol, "DATA on an idle stream")
	case int64(h.length) > c.recvWindow.available:
		return nil, newConnError(http2.ErrCodeFlowControl, "DATA exceeds the connection window")
	}
	c.recvWindow.available -= int64(h.length)
	s := c.streams[h.stream]
	if s == nil {
		if _, byUs := c.closed.find(h.stream); byUs || h.stream > c.last {
			return nil, errIgnored
		}
		return nil, &streamError{h.stream, http2.ErrCodeStreamClosed}
	}
	switch {
	case s.requestEnded:
		return nil, &streamError{h.stream, http2.ErrCodeStreamClosed}
	case int64(h.length) > s.recvWindow.available:
		return nil, &streamError{h.stream, http2.ErrCodeFlowControl}
	case s.declared >= 0 && s.received+int64(n) > s.declared:
		return nil, &streamError{h.stream, http2.ErrCodeProtocol}
	}
	s.recvWindow.available -= int64(h.length)
	s.received += int64(n)
	return s, nil
}

// readBody passes n bytes of data to the body of s. It returns the number of bytes that the handler
// will not read.
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

// peek returns between 1 and n buffered bytes.
func (c *conn) peek(n int) ([]byte, error) {
	if c.r.Buffered() == 0 {
		if err := c.waitForQueue(false); err != nil {
			return nil, err
		}
		if _, err := c.r.Peek(1); err != nil {
			return nil, err
		}
	}
	return c.r.Peek(min(n, c.r.Buffered()))
}
