package h2diff_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

const (
	stormStreams = 150
	// settled is the number of window bytes of received bodies that a server may hold back at the
	// end.
	settled = 512 << 10
	// connWindow is the connection window for bodies.
	connWindow = 16 << 20
)

// TestServersDeliverEveryByteInStorms opens many streams with random windows, padding, uploads and
// cancellations. It checks each byte and each window of both servers.
func TestServersDeliverEveryByteInStorms(t *testing.T) {
	t.Parallel()
	first, runs := firstSeed(t, 3)
	for seed := first; seed < first+uint64(runs); seed++ {
		for _, i := range implementations {
			if err := runStorm(t, i, seed); err != nil {
				t.Fatalf("%s, seed %d: %v", i.name, seed, err)
			}
		}
	}
}

// byteAt returns the byte of a body at an offset.
func byteAt(offset int, salt uint32) byte { return byte('a' + (offset*7+offset/256+int(salt))%26) }

func wrongByte(p []byte, offset int, salt uint32) error {
	for i, b := range p {
		if b != byteAt(offset+i, salt) {
			return fmt.Errorf("byte %d is %q, want %q", offset+i, b, byteAt(offset+i, salt))
		}
	}
	return nil
}

// stormHandler responds with known bytes and checks those of the request body. All sizes are random
// and derive from the salt of the stream.
func stormHandler(w http.ResponseWriter, r *http.Request) {
	salt, up, down := uint32(queryInt(r, "salt")), queryInt(r, "up"), queryInt(r, "down")
	random := rand.New(rand.NewPCG(uint64(salt), 1))
	received, err := 0, error(nil)
	read := func() bool {
		data := make([]byte, 1+random.IntN(20_000))
		var n int
		n, err = r.Body.Read(data)
		if wrong := wrongByte(data[:n], received, salt); wrong != nil {
			err = wrong
		}
		received += n
		return err == nil
	}
	for sent := 0; sent < down; {
		if received < up && random.IntN(2) == 0 && !read() && !errors.Is(err, io.EOF) {
			break
		}
		data := make([]byte, min(1+random.IntN(30_000), down-sent))
		for i := range data {
			data[i] = byteAt(sent+i, salt)
		}
		if _, err := w.Write(data); err != nil {
			return // the client has canceled
		}
		sent += len(data)
		if random.IntN(3) == 0 {
			w.(http.Flusher).Flush()
		}
	}
	for (err == nil || received < up && errors.Is(err, io.EOF)) && read() {
	}
	if !errors.Is(err, io.EOF) || received != up {
		w.Header().Set(http.TrailerPrefix+"X-Failed", fmt.Sprintf("%d of %d bytes came: %v", received, up, err))
	}
}

// storm is a client with many streams. Its reader and its writer are one goroutine each.
type storm struct {
	random *rand.Rand
	framer *http2.Framer
	out    *bufio.Writer
	hpack  *hpack.Encoder
	block  bytes.Buffer

	mu      sync.Mutex
	wake    sync.Cond // wakes the writer
	err     error
	done    bool
	ledger  *ledger
	streams map[uint32]*stormStream
	next    uint32
	closed  int
	owed    int64 // bytes of the connection window to be granted
	urgent  []func() error
	sent    int64 // the connection window for bodies
	initial int64 // the initial window of a stream
	excess  int64 // excess of the connection window that is accepted
	lowered int64 // pending initial window that is not acknowledged; -1 for none
}

type stormStream struct {
	salt             uint32
	up, down         int
	sent, received   int
	window           int64 // for the body
	owed             int64 // window bytes to be granted
	cancelAt         int   // bytes received; -1 for never
	canceled         bool
	upDone, downDone bool
	counted          bool // counted as closed
}

// runStorm runs a client with random requests against an implementation until all streams are
// complete.
func runStorm(t *testing.T, i implementation, seed uint64) (err error) {
	synctest.Test(t, func(t *testing.T) {
		random := rand.New(rand.NewPCG(seed, 2))
		near, far := newLink([]int{4 << 10, 16 << 10, 256 << 10}[random.IntN(3)])
		_, stop := i.serve(far, http.HandlerFunc(stormHandler))
		s := &storm{
			random: random, out: bufio.NewWriterSize(near, 1+random.IntN(20_000)), ledger: newLedger(),
			streams: map[uint32]*stormStream{},
			next:    1,
			sent:    defaultWindow,
			initial: defaultWindow,
			lowered: defaultWindow,
			excess:  i.excess,
		}
		s.wake.L = &s.mu
		s.framer = http2.NewFramer(s.out, near)
		s.framer.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
		s.framer.SetMaxReadFrameSize(16 << 10)
		s.hpack = hpack.NewEncoder(&s.block)
		ctx, cancel := context.WithTimeout(t.Context(), 10*writeTimeout) // in synctest time; the storm hangs after that
		context.AfterFunc(ctx, func() { s.fail(errors.New("the storm did not end")) })
		var both sync.WaitGroup
		both.Go(s.read)
		both.Go(func() {
			s.fail(s.write())
			_ = near.Close()
		})
		both.Wait()
		cancel()
		stop()
		time.Sleep(2 * idleTimeout)
		if err = s.err; err == nil && s.sent < connWindow-settled {
			err = fmt.Errorf("the connection window is %d at the end, want about %d", s.sent, connWindow)
		}
	})
	return err
}

func (s *storm) fail(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err == nil && !s.done {
		s.err = err
	}
	s.done = true
	s.wake.Broadcast()
}

// write sends random possible frames until all streams are closed.
func (s *storm) write() error {
	if _, err := s.out.WriteString(http2.ClientPreface); err != nil {
		return err
	}
	if err := s.framer.WriteSettings(); err != nil {
		return err
	}
	for {
		s.mu.Lock()
		var frame func() error
		for !s.done && s.closed < stormStreams {
			frame = s.chooseFrame()
			if frame != nil {
				break
			}
			s.mu.Unlock()
			err := s.out.Flush()
			s.mu.Lock()
			if err != nil {
				s.mu.Unlock()
				return err
			}
			frame = s.chooseFrame()
			if frame != nil {
				break
			}
			s.wake.Wait()
		}
		done, all := s.done, s.closed == stormStreams
		s.mu.Unlock()
		switch {
		case done:
			return nil
		case all:
			return s.finish()
		}
		if err := frame(); err != nil {
			return err
		}
	}
}

// finish waits until the server has returned the windows of everything that it read.
func (s *storm) finish() error {
	if err := s.out.Flush(); err != nil {
		return err
	}
	time.Sleep(time.Second) // in synctest time; the server is idle then
	s.mu.Lock()
	defer s.mu.Unlock()
	s.done = true
	return nil
}

// chooseFrame returns a function that sends a frame, or nil if there is none. The caller holds mu,
// and must call the function without it.
func (s *storm) chooseFrame() func() error {
	if len(s.urgent) > 0 {
		frame := s.urgent[0]
		s.urgent = s.urgent[1:]
		return frame
	}
	var frames []func() func() error
	active := 0
	for id, stream := range s.streams {
		if stream.counted {
			continue
		}
		active++
		if stream.cancelAt >= 0 && stream.received >= stream.cancelAt {
			frames = append(frames, func() func() error { return s.cancel(id, stream) })
		}
		if !stream.upDone && stream.window > 0 && s.sent > 0 {
			frames = append(frames, func() func() error { return s.upload(id, stream) })
		}
		if stream.owed > 0 {
			frames = append(frames, func() func() error { return s.grant(id, &stream.owed) })
		}
	}
	if s.owed > 0 {
		frames = append(frames, func() func() error { return s.grant(0, &s.owed) })
	}
	if active < maxStreams && len(s.streams) < stormStreams {
		frames = append(frames, s.open)
	}
	if len(frames) == 0 {
		return nil
	}
	if s.lowered < 0 && s.random.IntN(40) == 0 {
		return s.resize()
	}
	return frames[s.random.IntN(len(frames))]()
}

// open plans a stream with random sizes and returns a function that sends its header section.
func (s *storm) open() func() error {
	id := s.next
	s.next += 2
	stream := &stormStream{salt: s.random.Uint32N(1000), up: -1, cancelAt: -1, window: s.initial}
	stream.down = s.random.IntN([]int{1, 100, 10_000, 200_000}[s.random.IntN(4)])
	method := "GET"
	if s.random.IntN(2) == 0 {
		method, stream.up = "POST", s.random.IntN([]int{1, 100, 10_000, 200_000}[s.random.IntN(4)])
	}
	stream.upDone = stream.up < 0
	if s.random.IntN(5) == 0 {
		stream.cancelAt = s.random.IntN(stream.down + 1)
	}
	s.streams[id] = stream
	s.ledger.open(id)
	path := fmt.Sprintf("/?salt=%d&up=%d&down=%d", stream.salt, max(0, stream.up), stream.down)
	fields := []string{":method", method, ":scheme", "http", ":authority", "example.com", ":path", path, "x-padding",
		strings.Repeat("x", s.random.IntN(100))}
	if stream.up >= 0 && s.random.IntN(2) == 0 {
		fields = append(fields, "content-length", strconv.Itoa(stream.up))
	}
	s.block.Reset()
	for i := 0; i < len(fields); i += 2 {
		_ = s.hpack.WriteField(hpack.HeaderField{Name: fields[i], Value: fields[i+1]}) // writes to memory
	}
	param := http2.HeadersFrameParam{
		StreamID:      id,
		BlockFragment: s.block.Bytes(),
		EndStream:     stream.up < 0,
		EndHeaders:    true,
		PadLength:     uint8(s.random.IntN(2) * s.random.IntN(256)),
	}
	return func() error { return s.framer.WriteHeaders(param) }
}

// upload returns a function that sends the next part of a request body, as far as the windows
// allow.
func (s *storm) upload(id uint32, stream *stormStream) func() error {
	room := min(stream.window, s.sent, 16<<10)
	padding := -1 // none
	if s.random.IntN(3) == 0 && room > 1 {
		padding = s.random.IntN(int(min(255, room-1)) + 1)
	}
	n := min(int(room)-(padding+1), stream.up-stream.sent, 1+s.random.IntN(16<<10))
	data := make([]byte, n)
	for i := range data {
		data[i] = byteAt(stream.sent+i, stream.salt)
	}
	stream.sent += n
	stream.window -= int64(n + padding + 1)
	s.sent -= int64(n + padding + 1)
	end := stream.sent == stream.up && s.random.IntN(2) == 0
	if end {
		stream.upDone = true
		s.count(stream)
	}
	if padding < 0 {
		return func() error { return s.framer.WriteData(id, end, data) }
	}
	return func() error { return s.framer.WriteDataPadded(id, end, data, make([]byte, padding)) }
}

// grant enlarges a window by all or a part of owed.
func (s *storm) grant(id uint32, owed *int64) func() error {
	n := *owed
	if s.random.IntN(2) == 0 {
		n = 1 + s.random.Int64N(n)
	}
	*owed -= n
	s.ledger.grant(id, n)
	return func() error { return s.framer.WriteWindowUpdate(id, uint32(n)) }
}

func (s *storm) cancel(id uint32, stream *stormStream) func() error {
	stream.canceled = true
	s.count(stream)
	return func() error { return s.framer.WriteRSTStream(id, http2.ErrCodeCancel) }
}

// resize changes the initial window of all streams.
func (s *storm) resize() func() error {
	n := s.random.Int64N([]int64{10, 1000, 100_000}[s.random.IntN(3)]) + 1
	if n > s.ledger.initial { // the server may use it before it acknowledges it
		s.ledger.setInitial(n)
	}
	s.lowered = n
	return func() error {
		return s.framer.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: uint32(n)})
	}
}
