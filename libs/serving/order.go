package serving

import (
	"math"
	"slices"

	"golang.org/x/net/http2"
)

// order is the order of a connection's frames: those of the connection and resets first,
// then streams take turns, frame by frame; the frames of a stream keep their order.
type order struct {
	control line
	streams map[uint32]*line
	ready   []*line              // that are not empty, the next one first
	library http2.WriteScheduler // knows what is control; empty
}

func newOrder() *order {
	return &order{streams: map[uint32]*line{}, library: http2.NewRandomWriteScheduler()}
}

// OpenStream implements http2.WriteScheduler.
func (o *order) OpenStream(id uint32, _ http2.OpenStreamOptions) { o.streams[id] = &line{} }

// CloseStream implements http2.WriteScheduler. The server must not be given another frame
// of the stream.
func (o *order) CloseStream(id uint32) {
	q := o.streams[id]
	delete(o.streams, id)
	if i := slices.Index(o.ready, q); i >= 0 {
		o.ready = slices.Delete(o.ready, i, i+1)
	}
}

// AdjustStream implements http2.WriteScheduler: all streams are equal.
func (o *order) AdjustStream(uint32, http2.PriorityParam) {}

// Push implements http2.WriteScheduler. Resets pass by data for which there is no window.
func (o *order) Push(f http2.FrameWriteRequest) {
	q := o.streams[f.StreamID()]
	if q == nil || f.DataSize() == 0 && o.isControl(f) {
		o.control.push(f)
		return
	}
	if q.empty() {
		o.ready = append(o.ready, q)
	}
	q.push(f)
}

// isControl tells resets, which the server counts until it gets them back, even if the
// stream is closed meanwhile, from frames that go with their stream. Nothing else of a
// frame tells it but where the library's own scheduler puts it.
func (o *order) isControl(f http2.FrameWriteRequest) bool {
	o.library.Push(f)
	o.library.CloseStream(f.StreamID())
	_, control := o.library.Pop()
	return control
}

// Pop implements http2.WriteScheduler.
func (o *order) Pop() (http2.FrameWriteRequest, bool) {
	if !o.control.empty() {
		f := *o.control.first()
		o.control.drop()
		return f, true
	}
	for i, q := range o.ready {
		now, rest, n := q.first().Consume(math.MaxInt32)
		switch n {
		case 0: // its client has to read first
			continue
		case 1:
			q.drop()
		default:
			*q.first() = rest
		}
		o.ready = slices.Delete(o.ready, i, i+1)
		if !q.empty() {
			o.ready = append(o.ready, q)
		}
		return now, true
	}
	return http2.FrameWriteRequest{}, false
}

// line is a queue of frames. Each costs the same, however many wait: thousands do where a
// client asks for signs of life and does not read them.
type line struct {
	frames []http2.FrameWriteRequest
	gone   int // of frames
}

// fewFrames are those whose memory an empty line keeps.
const fewFrames = 16

func (l *line) empty() bool { return l.gone == len(l.frames) }

func (l *line) push(f http2.FrameWriteRequest) {
	if len(l.frames) == cap(l.frames) && 2*l.gone >= len(l.frames) {
		l.frames = slices.Delete(l.frames, 0, l.gone)
		l.gone = 0
	}
	l.frames = append(l.frames, f)
}

// first is the next frame of a line that is not empty, until push.
func (l *line) first() *http2.FrameWriteRequest { return &l.frames[l.gone] }

// drop takes the first frame away, and what it refers to.
func (l *line) drop() {
	l.frames[l.gone] = http2.FrameWriteRequest{}
	if l.gone++; !l.empty() {
		return
	}
	if l.gone = 0; cap(l.frames) > fewFrames {
		l.frames = nil
		return
	}
	l.frames = l.frames[:0]
}
