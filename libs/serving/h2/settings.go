package h2

import (
	"encoding/binary"

	"golang.org/x/net/http2"
)

const (
	// maxSettings is the largest number of settings in a frame.
	maxSettings = 100
	// settingLen is the size in bytes of a setting: an id of 2 bytes and a value of 4 bytes.
	settingLen = 6
	// unchanged is the argument of setInitialWindow if the client does not set the window.
	unchanged int64 = -1
)

// streamsPerFrame is the number of open streams for which a SETTINGS frame counts as one more
// control frame, because it may change the window of each stream.
const streamsPerFrame = 8

// handleSettings applies and acknowledges the SETTINGS of the client. It ignores
// SETTINGS_MAX_FRAME_SIZE, because no frame is larger than the smallest value of that setting.
func (c *conn) handleSettings(h frameHeader, p []byte) error {
	switch {
	case h.streamID != 0:
		return newConnError(http2.ErrCodeProtocol, "SETTINGS on a stream")
	case h.has(http2.FlagSettingsAck) && len(p) > 0, len(p)%settingLen != 0:
		return newConnError(http2.ErrCodeFrameSize, "SETTINGS of invalid size")
	case h.has(http2.FlagSettingsAck):
		return nil
	case len(p) > maxSettings*settingLen:
		return newConnError(http2.ErrCodeProtocol, "too many settings")
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.receivedControl += len(c.streams) / streamsPerFrame
	newWindow := unchanged
	for ; len(p) > 0; p = p[settingLen:] {
		s := http2.Setting{ID: http2.SettingID(binary.BigEndian.Uint16(p)), Val: binary.BigEndian.Uint32(p[2:])}
		if err := s.Valid(); err != nil {
			if code, ok := err.(http2.ConnectionError); ok {
				return newConnError(http2.ErrCode(code), s.String())
			}
			return newConnError(http2.ErrCodeProtocol, s.String())
		}
		switch s.ID {
		case http2.SettingHeaderTableSize:
			c.headerEncoder.SetMaxDynamicTableSize(s.Val)
		case http2.SettingInitialWindowSize:
			newWindow = int64(s.Val)
		}
	}
	if err := c.setInitialWindow(newWindow); err != nil {
		return err
	}
	c.queue.append(appendFrameHeader(c.scratch[:0], 0, http2.FrameSettings, http2.FlagSettingsAck, 0))
	return nil
}

// setInitialWindow sets the initial send window of streams, in bytes, and adjusts open streams. The
// caller holds mu.
func (c *conn) setInitialWindow(n int64) error {
	if n == unchanged || n == c.initialSendWindow {
		return nil
	}
	change := n - c.initialSendWindow
	c.initialSendWindow = n
	for _, s := range c.streams {
		wasClosed := s.sendWindow <= 0
		s.sendWindow += change
		if s.sendWindow > largestWindow {
			return newConnError(http2.ErrCodeFlowControl, "window too large")
		}
		if wasClosed && s.sendWindow > 0 {
			s.signal()
		}
	}
	return nil
}

// handleWindowUpdate enlarges the send window of a stream, or of the connection for stream 0.
func (c *conn) handleWindowUpdate(h frameHeader, p []byte) error {
	if len(p) != 4 {
		return newConnError(http2.ErrCodeFrameSize, "WINDOW_UPDATE of invalid size")
	}
	n := int64(binary.BigEndian.Uint32(p) &^ (1 << 31))
	c.mu.Lock()
	defer c.mu.Unlock()
	if h.streamID == 0 {
		switch {
		case n == 0:
			return newConnError(http2.ErrCodeProtocol, "WINDOW_UPDATE of 0")
		case c.sendWindow+n > largestWindow:
			return newConnError(http2.ErrCodeFlowControl, "window too large")
		}
		c.sendWindow += n
		c.wakeForConnWindow()
		return nil
	}
	if c.isIdle(h.streamID) {
		return newConnError(http2.ErrCodeProtocol, "WINDOW_UPDATE on an idle stream")
	}
	s := c.streams[h.streamID]
	switch {
	case n == 0: // also on a closed stream, because the client may not know that it is closed
		return &streamError{h.streamID, http2.ErrCodeProtocol}
	case s == nil:
		return nil
	case s.sendWindow+n > largestWindow:
		return &streamError{h.streamID, http2.ErrCodeFlowControl}
	}
	s.sendWindow += n
	s.signal()
	return nil
}
