package h2_test

import (
	"io"
	"net/http"
	"strconv"
	"sync"
	"testing"

	"golang.org/x/net/http2"

	"binnacle/libs/serving/h2"
	"golang.org/x/net/http2/hpack"
)

// obedient is a client that sends no more than the server has said that it takes.
type obedient struct {
	*unread
	mu            sync.Mutex
	cond          sync.Cond
	first, all    int // windows of new streams, and of the connection
	windows       map[uint32]int
	greeted, gone bool
	ended         map[uint32]bool
}

func dialObedient(t *testing.T, handler http.HandlerFunc) *obedient {
	return obey(t, config(), handler)
}

// obey is dialObedient for a server with another configuration.
func obey(t *testing.T, conf h2.Config, handler http.HandlerFunc) *obedient {
	o := &obedient{unread: dialServer(t, h2.NewServer(conf), plainWire, handler), first: 65535, all: 65535, windows: map[uint32]int{}, ended: map[uint32]bool{}}
	o.cond.L = &o.mu
	go o.listen()
	o.await(func() bool { return o.greeted })
	return o
}

func (o *obedient) listen() {
	for {
		f, err := o.ReadFrame()
		o.mu.Lock()
		switch f := f.(type) {
		case *http2.SettingsFrame:
			if n, ok := f.Value(http2.SettingInitialWindowSize); ok {
				o.first = int(n)
			}
		case *http2.WindowUpdateFrame:
			if f.StreamID == 0 {
				o.all, o.greeted = o.all+int(f.Increment), true
			} else {
				o.windows[f.StreamID] += int(f.Increment)
			}
		}
		if err != nil {
			o.gone = true
		} else if f.Header().Flags.Has(http2.FlagDataEndStream) && f.Header().Type != http2.FrameSettings {
			o.ended[f.Header().StreamID] = true
		}
		o.cond.Broadcast()
		o.mu.Unlock()
		if err != nil {
			return
		}
	}
}

// await waits for what a frame of the server makes true.
func (o *obedient) await(is func() bool) {
	o.t.Helper()
	o.mu.Lock()
	defer o.mu.Unlock()
	for !is() && !o.gone {
		o.cond.Wait()
	}
	if o.gone {
		o.t.Fatal("the connection has ended")
	}
}

// open begins a stream with a body of n bytes.
func (o *obedient) open(path string, n int) uint32 {
	id := o.post(path, false, hpack.HeaderField{Name: "content-length", Value: strconv.Itoa(n)})
	o.mu.Lock()
	defer o.mu.Unlock()
	o.windows[id] += o.first
	return id
}

// may is how much of n bytes may be sent now. The caller holds mu.
func (o *obedient) may(id uint32, n int) int {
	return min(n, o.windows[id], o.all, 16<<10)
}

// now is the same for who does not hold mu.
func (o *obedient) now(id uint32, n int) int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.may(id, n)
}

// send sends a frame.
func (o *obedient) send(id uint32, end bool, data, padding []byte) {
	o.mu.Lock()
	n := len(data) + len(padding)
	if padding != nil {
		n++
	}
	o.windows[id] -= n
	o.all -= n
	o.mu.Unlock()
	o.must(o.WriteDataPadded(id, end, data, padding))
}

// readsAll reads bodies, but of those whose turn has not come.
func readsAll(turn chan struct{}) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/waits" {
			<-turn
		}
		_, _ = io.Copy(io.Discard, r.Body)
	}
}

// TestBodiesThatWaitLeaveRoom: what is sent of bodies that nobody reads yet does not keep those
// that are read from coming.
func TestBodiesThatWaitLeaveRoom(t *testing.T) {
	turn := make(chan struct{})
	o := dialObedient(t, readsAll(turn))
	const size = 3 << 20
	body := make([]byte, size)
	left := map[uint32]int{}
	for range 99 {
		id := o.open("/waits", size)
		for left[id] = size; ; {
			n := o.now(id, left[id])
			if n <= 0 {
				break
			}
			o.send(id, false, body[:n], nil)
			left[id] -= n
		}
	}
	whole := func(id uint32) {
		for left[id] > 0 {
			o.await(func() bool { return o.may(id, left[id]) > 0 })
			n := o.now(id, left[id])
			left[id] -= n
			o.send(id, left[id] == 0, body[:n], nil)
		}
		o.await(func() bool { return o.ended[id] })
	}
	id := o.open("/", size)
	left[id] = size
	if o.now(id, size) <= 0 {
		t.Fatal("bodies that wait have taken all the room of the connection")
	}
	whole(id)
	close(turn)
	for id := range left {
		whole(id)
	}
}

// TestPaddedBodies: what frames are filled with is given back, however short the body is.
func TestPaddedBodies(t *testing.T) {
	o := dialObedient(t, readsAll(nil))
	const size, part = 60_000, 100
	body, padding := make([]byte, part), make([]byte, 255)
	id := o.open("/", size)
	for left := size; left > 0; {
		o.await(func() bool { return o.may(id, part+256) == part+256 })
		left -= part
		o.send(id, left == 0, body, padding)
	}
	o.await(func() bool { return o.ended[id] })
}
