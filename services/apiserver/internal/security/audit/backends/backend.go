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

// Values of the metric label plugin.
const (
	pluginBuffer   = "buffered"
	pluginTruncate = "truncate"
)

// deliverer delivers encoded events and returns how many are lost.
type deliverer interface {
	deliver(ctx context.Context, events [][]byte) (lost int, err error)
	close() error
}

// Config configures a Backend.
type Config struct {
	Options
	Metrics *audit.Metrics
	Logger  *slog.Logger
	// Dial connects to the webhook; nil means a direct connection.
	Dial webhookclient.Dial
	// Limiter limits concurrent encoding of large events; nil means no limit.
	Limiter audit.Limiter
	// QueueBytes is the maximum size in bytes of events in a queue and in delivery, and MaxPosts
	// the maximum number of batches that a webhook receives at a time.
	QueueBytes int64
	MaxPosts   int
}

// Backend implements audit.Sink.
type Backend struct {
	Config
	name      string
	encode    func(dst []byte, e *audit.Event) []byte
	deliverer deliverer
	// withDeadline limits the delivery of an event outside of batch mode; nil leaves that to the
	// deliverer.
	withDeadline func(ctx context.Context) (context.Context, context.CancelFunc)
	// beginShutdown limits pending deliveries outside of batch mode; nil if they are always
	// limited.
	beginShutdown func()
	// maxEvent is the maximum size of an event in bytes.
	maxEvent int64
	queue    *queue // nil except in batch mode
	// maxConcurrent is the maximum number of batches in delivery.
	maxConcurrent int
	// flushTimeout is the maximum time to deliver the queue when Run ends.
	flushTimeout time.Duration
	losses       lossCounter
	buffers      sync.Pool // of *[1][]byte, the argument of deliver for one event
}

// maxPooledBuffer is the maximum size in bytes of a reused buffer.
const maxPooledBuffer = 64 << 10

// newBackend returns a backend that encodes events and passes them to a deliverer. name is its name
// in metrics.
func newBackend(
	config Config,
	name string,
	out deliverer,
	encode func([]byte, *audit.Event) []byte,
	maxEvent int64,
	maxConcurrent int,
) *Backend {
	if truncate := config.Truncate; truncate.Enabled {
		maxEvent = min(maxEvent, truncate.MaxEventSize)
	}
	backend := &Backend{
		Config:        config,
		name:          name,
		deliverer:     out,
		encode:        encode,
		maxEvent:      maxEvent,
		maxConcurrent: maxConcurrent,
		flushTimeout:  defaultFlushTimeout,
		losses:        lossCounter{log: config.Logger, metrics: config.Metrics},
	}
	if Mode(config.Mode) == Batch {
		backend.queue = newQueue(config.Batch.BufferSize, config.QueueBytes, config.Batch.MaxSize, config.Truncate.MaxBatchSize)
	}
	return backend
}

// MaxEvent returns the maximum size in bytes of an event that is not shortened.
func (b *Backend) MaxEvent() int64 { return b.maxEvent }

// BeginShutdown limits pending deliveries to flushTimeout. It is called after the last response.
// Later events are delivered only if that takes no wait.
func (b *Backend) BeginShutdown() {
	if b.beginShutdown != nil {
		b.beginShutdown()
	}
}

// Close releases the resources of the backend. It must not be called while Run runs.
func (b *Backend) Close() error { return b.deliverer.close() }

// Process implements audit.Sink.
func (b *Backend) Process(ctx context.Context, event *audit.Event) error {
	if b.queue != nil {
		return b.enqueue(event)
	}
	single, _ := b.buffers.Get().(*[1][]byte)
	if single == nil {
		single = new([1][]byte)
	}
	text, ok := b.encodeFitting(single[0][:0], event)
	single[0] = text
	if b.withDeadline != nil {
		var release context.CancelFunc
		ctx, release = b.withDeadline(ctx)
		defer release()
	}
	err := errTooLarge
	if ok {
		_, err = b.deliverer.deliver(ctx, single[:])
	}
	if cap(text) <= maxPooledBuffer && err == nil { // after an error the text may still be in use by a write
		b.buffers.Put(single)
	}
	switch {
	case err == nil:
		return nil
	case errors.Is(err, errTooLarge):
		b.losses.recordLoss(pluginTruncate, 1, err)
	default:
		b.losses.recordLoss(b.name, 1, err)
	}
	if Mode(b.Mode) == BlockingStrict {
		return err
	}
	return nil
}

var errTooLarge = errors.New("event is too large even after truncating")

// eventOverhead is the approximate size in bytes of a large event without its objects.
const eventOverhead = 4 << 10

// encodeFitting encodes an event in less than maxEvent bytes, so that a newline fits too. It omits
// objects, then long texts. A large event needs a permit of Limiter and gets a buffer of sufficient
// size.
func (b *Backend) encodeFitting(dst []byte, e *audit.Event) (text []byte, ok bool) {
	objects := len(e.RequestObject) + len(e.ResponseObject)
	audit.WithPermit(b.Limiter, objects, func() {
		if objects > maxPooledBuffer {
			dst = make([]byte, 0, objects+eventOverhead)
		}
		text, ok = b.encodeShortened(dst, e)
	})
	return text, ok
}

// encodeShortened encodes an event like encodeFitting, without the limiter.
func (b *Backend) encodeShortened(dst []byte, e *audit.Event) ([]byte, bool) {
	for _, shorten := range []func(*audit.Event) *audit.Event{nil, (*audit.Event).WithoutObjects, (*audit.Event).Minimal} {
		short := e
		if shorten != nil {
			short = shorten(e)
		}
		dst = b.encode(dst[:0], short)
		if int64(len(dst)) < b.maxEvent {
			return dst, true
		}
	}
	return dst, false
}

// enqueue encodes an event and adds it to the queue. If the queue is full, it drops the objects of
// the event, then the event itself. Losses are counted.
func (b *Backend) enqueue(event *audit.Event) error {
	text, ok := b.encodeForQueue(event)
	if !ok {
		b.losses.recordLoss(pluginTruncate, 1, errTooLarge)
		return nil
	}
	err := b.queue.push(text)
	if errors.Is(err, errQueueFull) && len(event.RequestObject)+len(event.ResponseObject) > 0 {
		text, _ = b.encodeForQueue(event.WithoutObjects())
		err = b.queue.push(text)
	}
	if err != nil {
		b.losses.recordLoss(pluginBuffer, 1, err)
	}
	return nil
}

// encodeForQueue is encodeFitting into a buffer that is not much larger than the event.
func (b *Backend) encodeForQueue(e *audit.Event) ([]byte, bool) {
	text, ok := b.encodeFitting(b.queue.newBuffer(), e)
	if cap(text) > maxReusedBufferSize && cap(text) > len(text)+eventOverhead {
		text = slices.Clone(text)
	}
	return text, ok
}

// lossCounter counts lost events and logs them at most once a second.
type lossCounter struct {
	log     *slog.Logger
	metrics *audit.Metrics

	mu    sync.Mutex // leaf lock
	last  time.Time
	count int // since last
}

// recordLoss counts events that a plugin has lost, and logs the reason at most once per second.
func (l *lossCounter) recordLoss(plugin string, events int, reason error) {
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
	l.log.Error("audit events lost", "plugin", plugin, "events", count, "error", reason)
}
