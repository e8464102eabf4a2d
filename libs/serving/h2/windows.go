package h2

import (
	"crypto/tls"
	"encoding/binary"

	"golang.org/x/net/http2"
)

// mostSettings is how many settings a frame may have.
const mostSettings = 100

// streamsPerFrame is for how many open streams settings count as another control frame: the window of
// each may change.
const streamsPerFrame = 8

// settings are how the client wants to be spoken to. The largest frame is not asked for: all that
// are sent are as small as any client takes.
func (c *conn) settings(h head, p []byte) error {
	switch {
	case h.stream != 0:
		return broken(http2.ErrCodeProtocol, "settings of a stream")
	case h.has(http2.FlagSettingsAck) && len(p) > 0, len(p)%6 != 0:
		return broken(http2.ErrCodeFrameSize, "settings of another size")
	case h.has(http2.FlagSettingsAck):
		return nil
	case len(p) > 6*mostSettings:
		return broken(http2.ErrCodeProtocol, "too many settings")
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.control += len(c.streams) / streamsPerFrame
	window := int64(-1)
	for ; len(p) > 0; p = p[6:] {
		s := http2.Setting{ID: http2.SettingID(binary.BigEndian.Uint16(p)), Val: binary.BigEndian.Uint32(p[2:])}
		if err := s.Valid(); err != nil {
			if code, ok := err.(http2.ConnectionError); ok {
				return broken(http2.ErrCode(code), s.String())
			}
			return broken(http2.ErrCodeProtocol, s.String())
		}
		switch s.ID {
		case http2.SettingHeaderTableSize:
			c.encoder.SetMaxDynamicTableSize(s.Val)
		case http2.SettingInitialWindowSize:
			window = int64(s.Val)
		}
	}
	if err := c.setWindow(window); err != nil {
		return err
	}
	c.queue.put(appendHead(c.scratch[:0], 0, http2.FrameSettings, http2.FlagSettingsAck, 0))
	return nil
}

// setWindow sets what the client takes of a stream at first, and of those that are open; -1 leaves
// it. The caller holds mu.
func (c *conn) setWindow(n int64) error {
	if n < 0 || n == c.outFirst {
		return nil
	}
	change := n - c.outFirst
	c.outFirst = n
	for _, s := range c.streams {
		shut := s.out <= 0
		if s.out += change; s.out > largestWindow {
			return broken(http2.ErrCodeFlowControl, "a window that is too large")
		}
		if shut && s.out > 0 {
			s.signal()
		}
	}
	return nil
}

// windowUpdate has the client take more.
func (c *conn) windowUpdate(h head, p []byte) error {
	if len(p) != 4 {
		return broken(http2.ErrCodeFrameSize, "a window of another size")
	}
	n := int64(binary.BigEndian.Uint32(p) &^ (1 << 31))
	c.mu.Lock()
	defer c.mu.Unlock()
	if h.stream == 0 {
		switch {
		case n == 0:
			return broken(http2.ErrCodeProtocol, "a window that grows by nothing")
		case c.out+n > largestWindow:
			return broken(http2.ErrCodeFlowControl, "a window that is too large")
		}
		c.out += n
		c.wakeBlocked()
		return nil
	}
	if c.isIdle(h.stream) {
		return broken(http2.ErrCodeProtocol, "a window of a stream that is not open")
	}
	s := c.streams[h.stream]
	switch {
	case n == 0: // of one that is over, too: who sends it does not know that
		return &streamError{h.stream, http2.ErrCodeProtocol}
	case s == nil:
		return nil
	case s.out+n > largestWindow:
		return &streamError{h.stream, http2.ErrCodeFlowControl}
	}
	s.out += n
	s.signal()
	return nil
}

// dependsOn is the stream that another depends on, of a priority.
func dependsOn(p []byte) uint32 { return binary.BigEndian.Uint32(p) &^ (1 << 31) }

// badCipher tells what HTTP/2 must not be spoken through: all of TLS 1.2 but ephemeral keys with
// authenticated encryption. RFC 9113, "Prohibited TLS 1.2 Cipher Suites".
func badCipher(s *tls.ConnectionState) bool {
	if s.Version >= tls.VersionTLS13 {
		return false
	}
	switch s.CipherSuite {
	case tls.TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256, tls.TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384,
		tls.TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256, tls.TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384,
		tls.TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256, tls.TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256:
		return s.Version < tls.VersionTLS12
	}
	return true
}
