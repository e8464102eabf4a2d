package h2diff_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// lastWait is longer than a server keeps a connection after GOAWAY.
const lastWait = 15 * time.Second

// client sends the frames of a script to one server, and records what comes back. settle sends the
// buffered frames.
type client struct {
	t        testing.TB
	conn     *link
	observer *observer
	shutdown func()

	buffered bytes.Buffer
	framer   *http2.Framer // writes to out
	hpack    *hpack.Encoder
	block    bytes.Buffer

	received bytes.Buffer
	reader   *http2.Framer // reads from in
	ledger   *ledger
	lowered  []int64 // initial windows whose acknowledgement is outstanding
	closed   bool
	steps    []step
}

// step is what a server sent and its handlers saw until all goroutines were blocked.
type step []string

// exchange runs a script with one server and returns its steps.
func exchange(t *testing.T, server implementation, script func(*client)) (steps []step) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		near, far := newLink(0)
		observer := newObserver()
		shutdown, stop := server.serve(far, observer)
		started := &client{t: t, conn: near, observer: observer, shutdown: shutdown, ledger: newLedger()}
		started.framer = http2.NewFramer(&started.buffered, nil)
		started.framer.AllowIllegalWrites = true
		started.hpack = hpack.NewEncoder(&started.block)
		started.reader = http2.NewFramer(nil, &started.received)
		started.reader.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
		started.reader.SetMaxReadFrameSize(16 << 10)
		script(started)
		started.settle()
		time.Sleep(lastWait)
		started.settle()
		if started.closed {
			started.add("closed")
		}
		_ = near.Close()
		synctest.Wait()
		observer.release()
		stop()
		time.Sleep(2 * idleTimeout) // timers end
		steps = started.steps
	})
	return steps
}

func (c *client) requireNoError(err error) {
	c.t.Helper()
	if err != nil {
		c.t.Fatal(err)
	}
}

func (c *client) add(format string, args ...any) {
	last := len(c.steps) - 1
	c.steps[last] = append(c.steps[last], fmt.Sprintf(format, args...))
}

// greet sends the preface and SETTINGS, and settles.
func (c *client) greet(settings ...http2.Setting) {
	c.buffered.WriteString(http2.ClientPreface)
	c.settings(settings...)
	c.settle()
}

func (c *client) settings(settings ...http2.Setting) {
	c.requireNoError(c.framer.WriteSettings(settings...))
	for _, s := range settings {
		if s.ID == http2.SettingInitialWindowSize {
			c.lowered = append(c.lowered, int64(s.Val))
		}
	}
}

// fields appends header fields to a block: "name: value" each.
func (c *client) fields(fields ...string) []byte {
	c.block.Reset()
	for _, field := range fields {
		i := strings.Index(field[1:], ":") + 1 // a pseudo-header field starts with a colon
		c.requireNoError(c.hpack.WriteField(hpack.HeaderField{Name: field[:i], Value: strings.TrimPrefix(field[i+1:], " ")}))
	}
	return bytes.Clone(c.block.Bytes())
}

// request opens a stream with a method and a path. More fields follow.
func (c *client) request(id uint32, method, path string, end bool, fields ...string) {
	c.headers(id, end, append([]string{":method: " + method, ":scheme: http", ":authority: example.com",
		":path: " + path}, fields...)...)
}

func (c *client) headers(id uint32, end bool, fields ...string) {
	c.ledger.open(id)
	c.requireNoError(c.framer.WriteHeaders(http2.HeadersFrameParam{
		StreamID:      id,
		BlockFragment: c.fields(fields...),
		EndHeaders:    true,
		EndStream:     end,
	}))
}

func (c *client) data(id uint32, end bool, payload []byte) {
	c.requireNoError(c.framer.WriteData(id, end, payload))
}

func (c *client) raw(kind http2.FrameType, flags http2.Flags, id uint32, payload ...byte) {
	c.requireNoError(c.framer.WriteRawFrame(kind, flags, id, payload))
}

func (c *client) reset(id uint32, code http2.ErrCode) {
	c.requireNoError(c.framer.WriteRSTStream(id, code))
}

// window enlarges the window of a stream, or of the connection if id is 0.
func (c *client) window(id, n uint32) {
	c.ledger.grant(id, int64(n))
	c.requireNoError(c.framer.WriteWindowUpdate(id, n))
}

// ping sends a PING; the transcript shows the acknowledged data.
func (c *client) ping(n uint64) {
	var data [8]byte
	binary.BigEndian.PutUint64(data[:], n)
	c.requireNoError(c.framer.WritePing(false, data))
}

// release lets the waiting handlers continue.
func (c *client) release() {
	c.settle()
	c.observer.release()
	c.settle()
}

// advance lets time pass.
func (c *client) advance(d time.Duration) {
	c.settle()
	time.Sleep(d)
	c.settle()
}

// settle sends the buffered frames, waits until the server is blocked, and records a step.
func (c *client) settle() {
	if c.buffered.Len() > 0 {
		_, _ = c.conn.Write(c.buffered.Bytes()) // the server may have closed the connection
		c.buffered.Reset()
	}
	c.steps = append(c.steps, nil)
	streams := map[uint32][]string{}
	if c.receiveFrames(streams) {
		time.Sleep(lastWait)
		c.receiveFrames(streams)
	}
	streamIDs := make([]uint32, 0, len(streams))
	for id := range streams {
		streamIDs = append(streamIDs, id)
	}
	slices.Sort(streamIDs)
	for _, id := range streamIDs {
		for _, line := range merge(streams[id]) {
			c.add("%d %s", id, line)
		}
	}
	for _, line := range c.observer.takeLines() {
		c.add("handler: %s", line)
	}
}

// receiveFrames adds received frames to the lines of their streams. It reports whether the server
// ends the connection with an error. The delay until then, and when handlers see it, is not
// compared.
func (c *client) receiveFrames(streams map[uint32][]string) (failed bool) {
	synctest.Wait()
	p, closed := c.conn.received.takeAll()
	c.closed = c.closed || closed
	c.received.Write(p)
	for c.received.Len() > 0 {
		frame, err := c.reader.ReadFrame()
		if err != nil {
			c.add("violation: %v", err)
			c.received.Reset()
			break
		}
		if g, ok := frame.(*http2.GoAwayFrame); ok && g.ErrCode != http2.ErrCodeNo {
			failed = true
		}
		id := frame.Header().StreamID
		streams[id] = append(streams[id], c.describeFrame(frame)...)
	}
	return failed
}

// dataLine starts the line of a DATA frame, which merge joins with adjacent ones.
const dataLine = "DATA\x00"

// describeFrame describes a frame and checks it.
func (c *client) describeFrame(f http2.Frame) (lines []string) {
	var err error
	id, end := f.Header().StreamID, false
	switch f := f.(type) {
	case *http2.MetaHeadersFrame:
		end = f.StreamEnded()
		err = c.ledger.headers(id, end)
		lines = append(lines, "HEADERS "+headerLine(f))
	case *http2.DataFrame:
		end = f.StreamEnded()
		err = c.ledger.data(id, int64(f.Length), end)
		if len(f.Data()) > 0 {
			lines = append(lines, dataLine+string(f.Data()))
		}
	case *http2.RSTStreamFrame:
		c.ledger.reset(id)
		lines = append(lines, "RST_STREAM "+f.ErrCode.String())
	case *http2.GoAwayFrame:
		lines = append(lines, fmt.Sprintf("GOAWAY last=%d %s", f.LastStreamID, f.ErrCode))
	case *http2.PingFrame:
		lines = append(lines, fmt.Sprintf("PING ack=%t %d", f.IsAck(), binary.BigEndian.Uint64(f.Data[:])))
	case *http2.SettingsFrame:
		if !f.IsAck() {
			break // each server has its own
		}
		lines = append(lines, "SETTINGS ack")
		if len(c.lowered) > 0 {
			c.ledger.setInitial(c.lowered[0])
			c.lowered = c.lowered[1:]
		}
	case *http2.WindowUpdateFrame: // each server has its own policy; storms check the sums
	default:
		lines = append(lines, fmt.Sprint(f))
	}
	if err != nil {
		lines = append(lines, "violation: "+err.Error())
	}
	if end {
		lines = append(lines, "END_STREAM")
	}
	return lines
}

// headerLine returns the header fields in alphabetical order, without the value of the date.
func headerLine(f *http2.MetaHeadersFrame) string {
	var fields []string
	for _, f := range f.Fields {
		if f.Name == "date" {
			f.Value = "now"
		}
		fields = append(fields, f.Name+"="+f.Value)
	}
	slices.Sort(fields)
	return strings.Join(fields, " ")
}

// merge joins consecutive DATA lines.
func merge(lines []string) (merged []string) {
	var body []byte
	flush := func() {
		if len(body) > 0 {
			merged = append(merged, fmt.Sprintf("DATA %d bytes %.16q %08x", len(body), body, crc32.ChecksumIEEE(body)))
			body = nil
		}
	}
	for _, line := range lines {
		if chunk, ok := strings.CutPrefix(line, dataLine); ok {
			body = append(body, chunk...)
			continue
		}
		flush()
		merged = append(merged, line)
	}
	flush()
	return merged
}
