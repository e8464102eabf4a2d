package backends

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"time"

	"binnacle/services/apiserver/internal/proxy/webhookclient"
	"binnacle/services/apiserver/internal/security/audit"
)

// Names of what fails, in the metrics.
const (
	pluginBuffer   = "buffered"
	pluginTruncate = "truncate"
)

// deliverer brings encoded events to where they belong, and tells how many are lost.
type deliverer interface {
	deliver(ctx context.Context, events [][]byte) (lost int, err error)
	close() error
}

// Config of a Backend.
type Config struct {
	Options
	Metrics *audit.Metrics
	Logger  *slog.Logger
	// Dial leads to the webhook; nil goes straight there.
	Dial webhookclient.Dial
	// Turns are taken to make long events; nil lets everybody go on.
	Turns audit.Turns
}

// Backend implements audit.Sink.
type Backend struct {
	Config
	name   string
	encode func(dst []byte, e *audit.Event) []byte
	to     deliverer
	// early takes the text of an event that is told before its request is worked on, if it
	// need not be delivered at once; nil delivers all at once.
	early func(ctx context.Context, text []byte) bool
	// durable tells that what early took outlives the process, so that it may be told after
	// its request, too.
	durable bool
	// bound is how long an event that is delivered at once may take; nil leaves that to the
	// deliverer.
	bound func(ctx context.Context) (context.Context, context.CancelFunc)
	// ends has what is delivered at once given up soon; nil where that always is.
	ends func()
	// most bytes of an event.
	most  int64
	queue *queue // nil but in mode batch
	// parallel is how many batches are on their way at a time.
	parallel int
	// flush is how long what waits may take when Run has to end.
	flush   time.Duration
	losses  losses
	buffers sync.Pool // of *[1][]byte: what deliver takes, of one event
}

// maxPooled bounds the buffers that are used again, in bytes.
const maxPooled = 64 << 10

func newBackend(c Config, name string, to deliverer, encode func([]byte, *audit.Event) []byte, most int64, parallel int) *Backend {
	if t := c.Truncate; t.Enabled {
		most = min(most, t.MaxEventSize)
	}
	b := &Backend{Config: c, name: name, to: to, encode: encode, most: most, parallel: parallel, flush: flushTime, losses: losses{log: c.Logger, metrics: c.Metrics}}
	if Mode(c.Mode) == Batch {
		b.queue = newQueue(c.Batch.BufferSize, c.Batch.MaxSize, c.Truncate.MaxBatchSize)
	}
	return b
}

// MaxEvent is the size of the largest event that is delivered whole, in bytes.
func (b *Backend) MaxEvent() int64 { return b.most }

// Ends tells that the last request has been answered: who waits until an event is delivered
// does so no longer than what waits in the mode batch may take at the end. What comes later
// is delivered if that takes no time.
func (b *Backend) Ends() {
	if b.ends != nil {
		b.ends()
	}
}

// Close lets go of what the backend holds. It must not be called while Run works.
func (b *Backend) Close() error { return b.to.close() }

// Process implements audit.Sink.
func (b *Backend) Process(ctx context.Context, e *audit.Event) error {
	if b.queue != nil {
		return b.enqueue(e)
	}
	one, _ := b.buffers.Get().(*[1][]byte)
	if one == nil {
		one = new([1][]byte)
	}
	text, ok := b.fit(one[0][:0], e)
	one[0] = text
	if b.bound != nil {
		var release context.CancelFunc
		ctx, release = b.bound(ctx)
		defer release()
	}
	err := errTooLarge
	switch {
	case ok && b.early != nil && reads(e.Verb) && (b.durable || e.Stage == audit.RequestReceived) && b.early(ctx, text):
		err = nil
	case ok:
		_, err = b.to.deliver(ctx, one[:])
	}
	if cap(text) <= maxPooled && err == nil { // who has given up may be written still
		b.buffers.Put(one)
	}
	switch {
	case err == nil:
		return nil
	case errors.Is(err, errTooLarge):
		b.losses.lost(pluginTruncate, 1, err)
	default:
		b.losses.lost(b.name, 1, err)
	}
	if Mode(b.Mode) == BlockingStrict {
		return err
	}
	return nil
}

// reads tells of verbs that change nothing: who changes something is told before it is done,
// whatever becomes of the server.
func reads(verb string) bool { return verb == "get" || verb == "list" || verb == "watch" }

var errTooLarge = errors.New("event is too large even after truncating")

// besidesObjects is about how many bytes a long event has that are none of its objects'.
const besidesObjects = 4 << 10

// fit encodes an event so that it is not too large, with a newline counted: without its
// objects, then without what a client can make as long as it likes. What is long takes a turn,
// and memory of its own, which is not made anew as it grows.
func (b *Backend) fit(dst []byte, e *audit.Event) (text []byte, ok bool) {
	objects := len(e.RequestObject) + len(e.ResponseObject)
	audit.InTurn(b.Turns, objects, func() {
		if objects > maxPooled {
			dst = make([]byte, 0, objects+besidesObjects)
		}
		text, ok = b.shortened(dst, e)
	})
	return text, ok
}

// shortened is fit for who has a turn.
func (b *Backend) shortened(dst []byte, e *audit.Event) ([]byte, bool) {
	for _, shorten := range []func(*audit.Event) *audit.Event{nil, (*audit.Event).WithoutObjects, (*audit.Event).Bare} {
		short := e
		if shorten != nil {
			short = shorten(e)
		}
		if dst = b.encode(dst[:0], short); int64(len(dst)) < b.most {
			return dst, true
		}
	}
	return dst, false
}

func (b *Backend) enqueue(e *audit.Event) error {
	text, ok := b.fitted(e)
	if !ok {
		b.losses.lost(pluginTruncate, 1, errTooLarge)
		return nil
	}
	err := b.queue.put(text)
	if errors.Is(err, errFull) && len(e.RequestObject)+len(e.ResponseObject) > 0 {
		text, _ = b.fitted(e.WithoutObjects())
		err = b.queue.put(text)
	}
	if err != nil {
		b.losses.lost(pluginBuffer, 1, err)
	}
	return nil
}

// fitted is fit into memory of the event's own, which is not much larger than it has to be.
func (b *Backend) fitted(e *audit.Event) ([]byte, bool) {
	text, ok := b.fit(b.queue.buffer(), e)
	if cap(text) > maxReused && cap(text) > len(text)+besidesObjects {
		text = slices.Clone(text)
	}
	return text, ok
}

// losses counts what is lost, and tells of it once a second.
type losses struct {
	log     *slog.Logger
	metrics *audit.Metrics

	mu    sync.Mutex // leaf
	last  time.Time
	count int // since last
}

func (l *losses) lost(plugin string, events int, why error) {
	l.metrics.Failed(plugin, events)
	l.mu.Lock()
	l.count += events
	count := l.count
	if time.Since(l.last) < time.Second {
		l.mu.Unlock()
		return
	}
	l.last, l.count = time.Now(), 0
	l.mu.Unlock()
	l.log.Error("audit events are lost", "plugin", plugin, "events", count, "error", why)
}
