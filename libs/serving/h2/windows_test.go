package h2_test

import (
	"io"
	"net/http"
	"strconv"
	"sync"
	"testing"

	"golang.org/x/net/http2"

	"golang.org/x/net/http2/hpack"

	"binnacle/libs/serving/h2"
)

// flowClient is a client that respects the server's flow control.
type flowClient struct {
	*rawClient
	mu                        sync.Mutex
	cond                      sync.Cond
	initialWindow, connWindow int // windows of new streams and of the connection
	windows                   map[uint32]int
	ready, closed             bool
	ended                     map[uint32]bool
}

func dialFlow(t *testing.T, handler http.HandlerFunc) *flowClient {
	return dialFlowConfig(t, config(), handler)
}

// dialFlowConfig dials like dialFlow, with another configuration.
func dialFlowConfig(t *testing.T, conf h2.Config, handler http.HandlerFunc) *flowClient {
	o := &flowClient{
		rawClient:     dialServer(t, h2.NewServer(conf), dialWire, handler),
		initialWindow: 65535,
		connWindow:    65535,
		windows:       map[uint32]int{},
		ended:         map[uint32]bool{},
	}
	o.cond.L = &o.mu
	go o.readFrames()
	o.await(func() bool { return o.ready })
	return o
}

// readFrames records the windows that the server grants, until the connection is closed.
func (o *flowClient) readFrames() {
	for {
		frame, err := o.ReadFrame()
		o.mu.Lock()
		switch f := frame.(type) {
		case *http2.SettingsFrame:
			if n, ok := f.Value(http2.SettingInitialWindowSize); ok {
				o.initialWindow = int(n)
			}
		case *http2.WindowUpdateFrame:
			if f.StreamID == 0 {
				o.connWindow, o.ready = o.connWindow+int(f.Increment), true
			} else {
				o.windows[f.StreamID] += int(f.Increment)
			}
		}
		if err != nil {
			o.closed = true
		} else if frame.Header().Flags.Has(http2.FlagDataEndStream) && frame.Header().Type != http2.FrameSettings {
			o.ended[frame.Header().StreamID] = true
		}
		o.cond.Broadcast()
		o.mu.Unlock()
		if err != nil {
			return
		}
	}
}

// await waits until is returns true after a frame of the server.
func (o *flowClient) await(is func() bool) {
	o.t.Helper()
	o.mu.Lock()
	defer o.mu.Unlock()
	for !is() && !o.closed {
		o.cond.Wait()
	}
	if o.closed {
		o.t.Fatal("the connection has ended")
	}
}

// open starts a stream with a body of n bytes.
func (o *flowClient) open(path string, n int) uint32 {
	id := o.openPost(path, false, hpack.HeaderField{Name: "content-length", Value: strconv.Itoa(n)})
	o.mu.Lock()
	defer o.mu.Unlock()
	o.windows[id] += o.initialWindow
	return id
}

// sendable returns how many of n bytes the windows allow. The caller holds mu.
func (o *flowClient) sendable(id uint32, n int) int {
	return min(n, o.windows[id], o.connWindow, 16<<10)
}

// sendableNow is sendable for callers that do not hold mu.
func (o *flowClient) sendableNow(id uint32, n int) int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.sendable(id, n)
}

// send sends a DATA frame.
func (o *flowClient) send(id uint32, end bool, data, padding []byte) {
	o.mu.Lock()
	n := len(data) + len(padding)
	if padding != nil {
		n++
	}
	o.windows[id] -= n
	o.connWindow -= n
	o.mu.Unlock()
	o.requireNoError(o.WriteDataPadded(id, end, data, padding))
}

// bodyReader reads bodies. Those of /waits are read once turn is closed.
func bodyReader(turn chan struct{}) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/waits" {
			<-turn
		}
		_, _ = io.Copy(io.Discard, r.Body)
	}
}

// TestWaitingBodiesDoNotBlockOthers checks that bodies that no handler reads yet do not block a
// body that is read.
func TestWaitingBodiesDoNotBlockOthers(t *testing.T) {
	turn := make(chan struct{})
	flowClient := dialFlow(t, bodyReader(turn))
	const size = 3 << 20
	body := make([]byte, size)
	remaining := map[uint32]int{}
	for range 99 {
		id := flowClient.open("/waits", size)
		for remaining[id] = size; ; {
			n := flowClient.sendableNow(id, remaining[id])
			if n <= 0 {
				break
			}
			flowClient.send(id, false, body[:n], nil)
			remaining[id] -= n
		}
	}
	complete := func(id uint32) {
		for remaining[id] > 0 {
			flowClient.await(func() bool { return flowClient.sendable(id, remaining[id]) > 0 })
			n := flowClient.sendableNow(id, remaining[id])
			remaining[id] -= n
			flowClient.send(id, remaining[id] == 0, body[:n], nil)
		}
		flowClient.await(func() bool { return flowClient.ended[id] })
	}
	id := flowClient.open("/", size)
	remaining[id] = size
	if flowClient.sendableNow(id, size) <= 0 {
		t.Fatal("waiting bodies used up the connection window")
	}
	complete(id)
	close(turn)
	for id := range remaining {
		complete(id)
	}
}

// TestPaddingIsRefunded checks that padding is returned to the windows, even if the data is short.
func TestPaddingIsRefunded(t *testing.T) {
	flowClient := dialFlow(t, bodyReader(nil))
	const size, part = 60_000, 100
	body, padding := make([]byte, part), make([]byte, 255)
	id := flowClient.open("/", size)
	for remaining := size; remaining > 0; {
		flowClient.await(func() bool { return flowClient.sendable(id, part+256) == part+256 })
		remaining -= part
		flowClient.send(id, remaining == 0, body, padding)
	}
	flowClient.await(func() bool { return flowClient.ended[id] })
}
