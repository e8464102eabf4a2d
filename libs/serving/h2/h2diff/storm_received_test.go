package h2diff_test

import (
	"fmt"

	"golang.org/x/net/http2"
)

// read handles what the server sends until the connection ends.
func (s *storm) read() {
	for {
		f, err := s.framer.ReadFrame()
		if err == nil {
			s.mu.Lock()
			err = s.handleFrame(f)
			s.wake.Broadcast()
			s.mu.Unlock()
		}
		if err != nil {
			s.fail(fmt.Errorf("read: %w", err))
			return
		}
	}
}

// handleFrame handles a frame. The caller holds mu.
func (s *storm) handleFrame(f http2.Frame) error {
	id := f.Header().StreamID
	stream := s.streams[id]
	switch f := f.(type) {
	case *http2.MetaHeadersFrame:
		if err := s.ledger.headers(id, f.StreamEnded()); err != nil {
			return err
		}
		for _, field := range f.Fields {
			if field.Name == ":status" && field.Value != "200" || field.Name == "x-failed" && !stream.canceled {
				return fmt.Errorf("stream %d: %s", id, field)
			}
		}
		return s.responseEnded(id, f.StreamEnded())
	case *http2.DataFrame:
		return s.data(id, f)
	case *http2.RSTStreamFrame:
		s.ledger.reset(id)
		if f.ErrCode != http2.ErrCodeNo && !stream.canceled {
			return fmt.Errorf("stream %d: %s after %d of %d bytes", id, f.ErrCode, stream.received, stream.down)
		}
		stream.upDone = true
		s.count(stream)
	case *http2.WindowUpdateFrame:
		return s.windowEnlarged(id, int64(f.Increment))
	case *http2.SettingsFrame:
		return s.settings(f)
	case *http2.PingFrame:
		data := f.Data
		s.urgent = append(s.urgent, func() error { return s.framer.WritePing(true, data) })
	case *http2.GoAwayFrame:
		return fmt.Errorf("GOAWAY %s %s", f.ErrCode, f.DebugData())
	}
	return nil
}

func (s *storm) data(id uint32, dataFrame *http2.DataFrame) error {
	stream := s.streams[id]
	if err := s.ledger.data(id, int64(dataFrame.Length), dataFrame.StreamEnded()); err != nil {
		return err
	}
	if err := wrongByte(dataFrame.Data(), stream.received, stream.salt); err != nil {
		return fmt.Errorf("stream %d: %w", id, err)
	}
	stream.received += len(dataFrame.Data())
	stream.owed += int64(dataFrame.Length)
	s.owed += int64(dataFrame.Length)
	return s.responseEnded(id, dataFrame.StreamEnded())
}

// responseEnded handles the end of a response.
func (s *storm) responseEnded(id uint32, end bool) error {
	stream := s.streams[id]
	if !end {
		return nil
	}
	if !stream.canceled && stream.received != stream.down {
		return fmt.Errorf("stream %d: response has %d bytes, want %d", id, stream.received, stream.down)
	}
	stream.downDone = true
	s.count(stream)
	return nil
}

// count counts a closed stream.
func (s *storm) count(stream *stormStream) {
	if !stream.counted && (stream.canceled || stream.upDone && stream.downDone) {
		stream.counted = true
		s.closed++
	}
}

func (s *storm) windowEnlarged(id uint32, n int64) error {
	window := &s.sent
	if id != 0 {
		window = &s.streams[id].window
	}
	*window += n
	if *window > 1<<31-1 || id == 0 && *window > connWindow+s.excess {
		return fmt.Errorf("the window of stream %d is %d", id, *window)
	}
	return nil
}

func (s *storm) settings(settingsFrame *http2.SettingsFrame) error {
	if settingsFrame.IsAck() {
		if s.lowered >= 0 {
			s.ledger.setInitial(s.lowered)
			s.lowered = -1
		}
		return nil
	}
	if n, ok := settingsFrame.Value(http2.SettingInitialWindowSize); ok {
		for _, stream := range s.streams {
			stream.window += int64(n) - s.initial
		}
		s.initial = int64(n)
	}
	s.urgent = append(s.urgent, s.framer.WriteSettingsAck)
	return nil
}
