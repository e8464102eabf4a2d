package kubeletproxy_test

import (
	"bytes"
	"io"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/net/websocket"
	constants "k8s.io/apimachinery/pkg/util/remotecommand"
)

// dialCommand runs a command over WebSocket channels, without client-go.
func (f *front) dialCommand(t *testing.T, query string) *websocket.Conn {
	t.Helper()
	c, err := websocket.NewConfig(strings.Replace(f.URL, "http://", "ws://", 1)+"/exec/ns/pod/c?"+query, f.URL)
	if err != nil {
		t.Fatal(err)
	}
	c.Protocol = []string{constants.StreamProtocolV5Name}
	conn, err := c.DialContext(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}

// sendTo sends a message on a channel.
func sendTo(t *testing.T, conn *websocket.Conn, channel byte, data []byte) {
	t.Helper()
	if err := websocket.Message.Send(conn, append([]byte{channel}, data...)); err != nil {
		t.Fatal(err)
	}
}

// receive returns the data that a channel receives, until it is at least n bytes.
func receive(conn *websocket.Conn, channel byte, n int) (out []byte, err error) {
	for len(out) < n && err == nil {
		var frame []byte
		if err = websocket.Message.Receive(conn, &frame); err == nil && len(frame) > 0 && frame[0] == channel {
			out = append(out, frame[1:]...)
		}
	}
	return out, err
}

// TestFramesAboveLimitEndCommand checks that a frame of 1 MiB passes and a longer one ends the
// command. The server holds a frame in memory until it is complete.
func TestFramesAboveLimitEndCommand(t *testing.T) {
	const header = 1 // the number of the channel
	for size, want := range map[int]bool{1: true, 200: true, 70_000: true, 1<<20 - header: true, 1 << 20: false, 20 << 20: false} {
		conn := newFront(t, translate).dialCommand(t, "stdin=true&stdout=true&command=cat")
		data := bytes.Repeat([]byte("x"), size)
		go func() { _ = websocket.Message.Send(conn, append([]byte{constants.StreamStdIn}, data...)) }() // the server may close first
		got, err := receive(conn, constants.StreamStdOut, size)
		if passed := err == nil && bytes.Equal(got, data); passed != want {
			t.Errorf("message of %d bytes: got an echo of %d bytes, %v; want a complete echo: %t", size, len(got), err, want)
		}
	}
}

// TestUnterminatedTerminalSizeUsesLittleMemory sends a terminal size whose JSON string does not end.
func TestUnterminatedTerminalSizeUsesLittleMemory(t *testing.T) {
	conn := newFront(t, translate).dialCommand(t, "stdin=true&stdout=true&tty=true&command=cat")
	sendTo(t, conn, constants.StreamResize, []byte(`{"Width":"`))
	heap := func() uint64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	before := heap()
	part := bytes.Repeat([]byte("x"), 512<<10)
	for range 128 {
		sendTo(t, conn, constants.StreamResize, part)
	}
	sendTo(t, conn, constants.StreamStdIn, []byte("y"))
	if got, err := receive(conn, constants.StreamStdOut, 1); string(got) != "y" || err != nil && err != io.EOF {
		t.Errorf("got %q, %v; want the echo \"y\"", got, err)
	}
	if after := heap(); after > before+16<<20 {
		t.Errorf("64 MiB of a terminal size take %d MiB of memory, want at most 16", (after-before)>>20)
	}
}
