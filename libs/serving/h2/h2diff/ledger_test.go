package h2diff_test

import "fmt"

// ledger checks what a server sends on streams: HEADERS first, nothing after the end, and no more
// data than the windows allow. Sizes are in bytes.
type ledger struct {
	conn    int64
	initial int64
	streams map[uint32]*sent
}

// sent is what a server has sent on a stream.
type sent struct {
	window       int64
	begun, ended bool
}

const defaultWindow = 65535

func newLedger() *ledger {
	return &ledger{conn: defaultWindow, initial: defaultWindow, streams: map[uint32]*sent{}}
}

// open is called when the client opens a stream.
func (l *ledger) open(id uint32) {
	if l.streams[id] == nil {
		l.streams[id] = &sent{window: l.initial}
	}
}

// setInitial is called when SETTINGS_INITIAL_WINDOW_SIZE takes effect.
func (l *ledger) setInitial(n int64) {
	for _, s := range l.streams {
		s.window += n - l.initial
	}
	l.initial = n
}

// grant is called when the client sends WINDOW_UPDATE.
func (l *ledger) grant(id uint32, n int64) {
	if id == 0 {
		l.conn += n
	} else if s := l.streams[id]; s != nil {
		s.window += n
	}
}

func (l *ledger) headers(id uint32, end bool) error {
	sent := l.streams[id]
	switch {
	case sent == nil:
		return fmt.Errorf("HEADERS on stream %d, which is idle", id)
	case sent.ended:
		return fmt.Errorf("HEADERS on stream %d after its end", id)
	}
	sent.begun, sent.ended = true, end
	return nil
}

func (l *ledger) data(id uint32, n int64, end bool) error {
	sent := l.streams[id]
	switch {
	case sent == nil:
		return fmt.Errorf("DATA on stream %d, which is idle", id)
	case sent.ended || !sent.begun:
		return fmt.Errorf("DATA on stream %d outside of a response", id)
	case n > 0 && n > sent.window:
		return fmt.Errorf("%d bytes on stream %d, whose window is %d", n, id, sent.window)
	case n > 0 && n > l.conn:
		return fmt.Errorf("%d bytes on stream %d, while the window of the connection is %d", n, id, l.conn)
	}
	sent.window -= n
	l.conn -= n
	sent.ended = end
	return nil
}

// reset is called for RST_STREAM of the server, which may reset idle streams for malformed frames.
func (l *ledger) reset(id uint32) {
	if s := l.streams[id]; s != nil {
		s.ended = true
	}
}
