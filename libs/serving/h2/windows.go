package h2

import (
	"crypto/tls"
	"encoding/binary"

	"golang.org/x/net/http2"
)

// maxSettings is the largest number of settings in a frame.
const maxSettings = 100

// streamsPerFrame is the number of open streams for which a SETTINGS frame counts as one more
// control frame, because it may change the window of each stream.
const streamsPerFrame = 8

// handleSettings applies the client's SETTINGS. SETTINGS_MAX_FRAME_SIZE is ignored, because all
// frames sent have at most the minimum size.
func (c *conn) handleSettings(h frameHeader, p []byte) error {
	switch {
	case h.stream != 0:
		return newConnError(http2.ErrCodeProtocol, "SETTINGS on a stream")
	case h.has(http2.FlagSettingsAck) && len(p) > 0, len(p)%6 != 0:
		return newConnError(http2.ErrCodeFrameSize, "SETTINGS of invalid size")
	case h.has(http2.FlagSettingsAck):
		return nil
	case len(p) > 6*maxSettings:
		return newConnError(http2.ErrCodeProtocol, "too many settings")
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.control += len(c.streams) / streamsPerFrame
	window := int64(-1)
	for ; len(p) > 0; p = p[6:] {
		s := http2.Setting{ID: http2.SettingID(binary.BigEndian.Uint16(p)), Val: binary.BigEndian.Uint32(p[2:])}
		if err := s.Valid(); err != nil {
			if code, ok := err.(http2.ConnectionError); ok {
				return newConnError(http2.ErrCode(code), s.String())
			}
			return newConnError(http2.ErrCodeProtocol, s.String())
		}
		switch s.ID {
		case http2.SettingHeaderTableSize:
			c.encoder.SetMaxDynamicTableSize(s.Val)
		case http2.SettingInitialWindowSize:
			window = int64(s.Val)
		}
	}
	if err := c.setInitialWindow(window); err != nil {
		return err
	}
	c.queue.put(appendFrameHeader(c.scratch[:0], 0, http2.FrameSettings, http2.FlagSettingsAck, 0))
	return nil
}

// setInitialWindow sets the initial send window of streams and adjusts open streams; -1 changes
// nothing. The caller holds mu.
func (c *conn) setInitialWindow(n int64) error {
	if n < 0 || n == c.initialSendWindow {
		return nil
	}
	change := n - c.initialSendWindow
	c.initialSendWindow = n
	for _, s := range c.streams {
		shut := s.sendWindow <= 0
		if s.sendWindow += change; s.sendWindow > largestWindow {
			return newConnError(http2.ErrCodeFlowControl, "window too large")
		}
		if shut && s.sendWindow > 0 {
			s.signal()
		}
	}
	return nil
}

// handleWindowUpdate enlarges a send window.
func (c *conn) handleWindowUpdate(h frameHeader, p []byte) error {
	if len(p) != 4 {
		return newConnError(http2.ErrCodeFrameSize, "WINDOW_UPDATE of invalid size")
	}
	n := int64(binary.BigEndian.Uint32(p) &^ (1 << 31))
	c.mu.Lock()
	defer c.mu.Unlock()
	if h.stream == 0 {
		switch {
		case n == 0:
			return newConnError(http2.ErrCodeProtocol, "WINDOW_UPDATE of 0")
		case c.sendWindow+n > largestWindow:
			return newConnError(http2.ErrCodeFlowControl, "window too large")
		}
		c.sendWindow += n
		c.wakeBlocked()
		return nil
	}
	if c.isIdle(h.stream) {
		return newConnError(http2.ErrCodeProtocol, "WINDOW_UPDATE on an idle stream")
	}
	s := c.streams[h.stream]
	switch {
	case n == 0: // also on a closed stream, because the client may not know that it is closed
		return &streamError{h.stream, http2.ErrCodeProtocol}
	case s == nil:
		return nil
	case s.sendWindow+n > largestWindow:
		return &streamError{h.stream, http2.ErrCodeFlowControl}
	}
	s.sendWindow += n
	s.signal()
	return nil
}

// priorityDependency returns the stream that a priority depends on.
func priorityDependency(p []byte) uint32 { return binary.BigEndian.Uint32(p) &^ (1 << 31) }

// isForbiddenCipher reports whether HTTP/2 forbids the TLS state: anything below TLS 1.2, and TLS
// 1.2 without ephemeral keys and authenticated encryption (RFC 9113, "Prohibited TLS 1.2 Cipher
// Suites").
func isForbiddenCipher(s *tls.ConnectionState) bool {
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
