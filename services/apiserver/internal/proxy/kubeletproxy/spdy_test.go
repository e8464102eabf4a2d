package kubeletproxy_test

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"testing"

	"github.com/moby/spdystream/spdy"
)

// TestUnexpectedControlFrameEndsCommand checks that a translated command continues with the control
// frames of kubelets, and that it ends when the kubelet opens a stream, sends further headers, or
// replies to more streams than a command has.
func TestUnexpectedControlFrameEndsCommand(t *testing.T) {
	reply := func(id spdy.StreamId) spdy.Frame { return &spdy.SynReplyFrame{StreamId: id} }
	for name, test := range map[string]struct {
		frames []spdy.Frame
		ends   bool
	}{
		"frames of kubelets": {frames: []spdy.Frame{
			&spdy.SettingsFrame{FlagIdValues: []spdy.SettingsFlagIdValue{{Id: spdy.SettingsInitialWindowSize, Value: 1 << 16}}},
			&spdy.WindowUpdateFrame{StreamId: 1, DeltaWindowSize: 1},
			&spdy.RstStreamFrame{StreamId: 99, Status: spdy.Cancel},
			&spdy.PingFrame{Id: 4},
			&spdy.DataFrame{StreamId: 3, Data: []byte("output")},
		}},
		"replies to all streams of a terminal": {frames: []spdy.Frame{reply(5), reply(7), reply(9)}},
		"too many replies":                     {frames: []spdy.Frame{reply(5), reply(7), reply(9), reply(11)}, ends: true},
		"new stream":                           {frames: []spdy.Frame{&spdy.SynStreamFrame{StreamId: 2, Headers: http.Header{}}}, ends: true},
		"headers of an open stream":            {frames: []spdy.Frame{&spdy.HeadersFrame{StreamId: 3, Headers: http.Header{}}}, ends: true},
	} {
		t.Run(name, func(t *testing.T) {
			continued := make(chan bool, 1)
			s := newRawBackend(t, nil, func(conn net.Conn, read *bufio.Reader) {
				continued <- continuesAfter(t, conn, read, test.frames)
			})
			s.send(t, "/exec/translated")
			if <-continued == test.ends {
				t.Errorf("command ended: got %t, want %t", !test.ends, test.ends)
			}
		})
	}
}

// continuesAfter accepts the two streams of a command and then sends frames. It reports whether the
// other side responds to a subsequent ping.
func continuesAfter(t *testing.T, conn io.Writer, read io.Reader, frames []spdy.Frame) bool {
	_, _ = io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\n"+
		"X-Stream-Protocol-Version: v5.channel.k8s.io\r\n\r\n")
	framer, err := spdy.NewFramer(conn, read)
	if err != nil {
		t.Error(err)
		return false
	}
	const ping = 2 // pings of a server have even numbers
	for open := 0; ; {
		received, err := framer.ReadFrame()
		if err != nil {
			return false
		}
		var send []spdy.Frame
		switch received := received.(type) {
		case *spdy.SynStreamFrame:
			send = append(send, &spdy.SynReplyFrame{StreamId: received.StreamId})
			if open++; open == 2 {
				send = append(append(send, frames...), &spdy.PingFrame{Id: ping})
			}
		case *spdy.PingFrame:
			if received.Id == ping {
				return true
			}
		}
		for _, frame := range send {
			if err := framer.WriteFrame(frame); err != nil {
				return false
			}
		}
	}
}
