package fanout

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"binnacle/libs/tracing"
	"binnacle/services/apiserver/internal/storage"
)

// metrics holds the metrics of a replica.
type metrics struct {
	source        *prometheus.GaugeVec
	changes       *prometheus.CounterVec
	gaps          *prometheus.CounterVec
	messages      *prometheus.CounterVec
	bytes         *prometheus.CounterVec
	ignored       *prometheus.CounterVec
	publishErrors prometheus.Counter
	publisher     prometheus.Gauge
	disconnects   prometheus.Counter

	sentMessages, sentBytes         prometheus.Counter
	receivedMessages, receivedBytes prometheus.Counter
}

// newMetrics returns the metrics of a replica. It registers them unless reg is nil.
func newMetrics(fanout *Fanout, reg prometheus.Registerer) (*metrics, error) {
	const ns, sub = "binnacle", "fanout"
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: ns, Subsystem: sub, Name: name, Help: help}, labels)
	}
	gauge := func(name, help string) prometheus.GaugeOpts {
		return prometheus.GaugeOpts{Namespace: ns, Subsystem: sub, Name: name, Help: help}
	}
	m := &metrics{
		source: prometheus.NewGaugeVec(gauge("source", "1 for the source from which this replica receives changes."),
			[]string{"source"}),
		changes:  counter("source_changes_total", "Number of switches to another source, by new source.", "source"),
		gaps:     counter("gaps_total", "Number of times the replica switched from the NATS stream to the store, by reason.", "reason"),
		messages: counter("messages_total", "Number of messages published or received, by direction.", "direction"),
		bytes:    counter("bytes_total", "Number of bytes of messages published or received, by direction.", "direction"),
		ignored:  counter("messages_ignored_total", "Number of received messages that were ignored, by reason.", "reason"),
		publishErrors: prometheus.NewCounter(prometheus.CounterOpts{
			Namespace: ns,
			Subsystem: sub,
			Name:      "publish_errors_total",
			Help:      "Number of messages that could not be published.",
		}),
		disconnects: prometheus.NewCounter(prometheus.CounterOpts{
			Namespace: ns,
			Subsystem: sub,
			Name:      "disconnects_total",
			Help:      "Number of lost connections to NATS.",
		}),
		publisher: prometheus.NewGauge(gauge("publisher", "1 while this replica publishes changes.")),
	}
	m.sentMessages, m.receivedMessages = m.messages.WithLabelValues("published"), m.messages.WithLabelValues("received")
	m.sentBytes, m.receivedBytes = m.bytes.WithLabelValues("published"), m.bytes.WithLabelValues("received")
	for _, s := range []string{sourceNATS, sourceStore, sourceLocal} {
		m.source.WithLabelValues(s).Set(0)
	}
	m.gaps.WithLabelValues(string(reasonSlow)) // so that an alert sees the first one
	if reg == nil {
		return m, nil
	}
	lag := prometheus.NewGaugeFunc(gauge("lag_revisions", "Revisions between the newest known one and the applied one."),
		func() float64 { return float64(fanout.State().Behind) })
	age := prometheus.NewGaugeFunc(gauge("lag_seconds", "Seconds since this replica was last known to be current."),
		func() float64 {
			if s := fanout.State(); s.Source != sourceNone {
				return s.Age.Seconds()
			}
			return 0
		})
	connected := prometheus.NewGaugeFunc(gauge("connected", "1 while this replica has a connection to NATS."),
		func() float64 {
			if fanout.State().Connected {
				return 1
			}
			return 0
		})
	var errs []error
	for _, c := range []prometheus.Collector{
		m.source, m.changes, m.gaps, m.messages, m.bytes, m.ignored, m.publishErrors, m.publisher,
		m.disconnects, lag, age, connected,
	} {
		errs = append(errs, reg.Register(c))
	}
	if err := errors.Join(errs...); err != nil {
		return nil, fmt.Errorf("register metrics: %w", err)
	}
	return m, nil
}

func (m *metrics) recordPublished(bytes int) {
	m.sentMessages.Inc()
	m.sentBytes.Add(float64(bytes))
}

func (m *metrics) recordReceived(bytes int) {
	m.receivedMessages.Inc()
	m.receivedBytes.Add(float64(bytes))
}

// If tracing is on, a replica publishes a note after each write of a traced request. The subject
// is binnacle.CLUSTER.traces. The header traceparent (W3C Trace Context) identifies the trace. The
// body holds the revision and the time of the store's response in Unix nanoseconds, as two
// little-endian 64-bit numbers. Each replica that has applied the revision adds a span to the
// trace. Notes may be lost.

const (
	// maxDelivered is the maximum number of applied batches that are kept for notes that arrive
	// later.
	maxDelivered = 4096
	// maxNotes is the maximum number of notes that are kept for batches that are applied later.
	maxNotes = 1024
	// noteBytes is the size of the body of a note.
	noteBytes = 16
)

// deliveries creates a span for each change of a traced request that this replica applies. Any
// replica may have written the change. The note and the change may arrive in either order, so
// deliveries keeps each of them until the other one arrives.
type deliveries struct {
	tracer  trace.Tracer
	replica string

	mu        sync.Mutex  // leaf lock
	delivered []delivery  // the latest ones, by revision
	notes     []writeNote // their changes are not applied yet
}

// delivery records when the batch of the revisions from first to last was applied.
type delivery struct {
	first, last int64
	appliedAt   time.Time
	source      string
}

// writeNote announces a write of a traced request.
type writeNote struct {
	revision int64
	wrote    time.Time         // when the store responded, by the writer's clock
	from     trace.SpanContext // the span of the request
}

func newDeliveries(p trace.TracerProvider, replica string) *deliveries {
	return &deliveries{tracer: p.Tracer("binnacle"), replica: replica}
}

// recordApplied records that a batch has been applied, and adds the spans of its waiting notes.
func (ds *deliveries) recordApplied(b storage.Batch, source string) {
	if len(b.Events) == 0 {
		return
	}
	applied := delivery{b.Events[0].Revision, b.Revision, time.Now(), source}
	ds.mu.Lock()
	if len(ds.delivered) >= maxDelivered {
		ds.delivered = slices.Delete(ds.delivered, 0, maxDelivered/4)
	}
	ds.delivered = append(ds.delivered, applied)
	var due []writeNote
	ds.notes = slices.DeleteFunc(ds.notes, func(n writeNote) bool {
		if n.revision > applied.last {
			return false
		}
		if n.revision >= applied.first {
			due = append(due, n)
		}
		return true
	})
	ds.mu.Unlock()
	for _, n := range due {
		ds.addSpan(n, applied)
	}
}

// handleNote handles a note. It adds the span if the change is applied, and otherwise keeps the
// note.
func (ds *deliveries) handleNote(note writeNote) {
	ds.mu.Lock()
	i, found := slices.BinarySearchFunc(ds.delivered, note.revision, func(d delivery, revision int64) int {
		switch {
		case d.last < revision:
			return -1
		case d.first > revision:
			return 1
		}
		return 0
	})
	var d delivery
	switch {
	case found:
		d = ds.delivered[i]
	case i < len(ds.delivered): // the batch is no longer kept, or was never applied
	default:
		if len(ds.notes) >= maxNotes { // their changes may never arrive
			ds.notes = slices.Delete(ds.notes, 0, 1)
		}
		ds.notes = append(ds.notes, note)
	}
	ds.mu.Unlock()
	if found {
		ds.addSpan(note, d)
	}
}

// reset drops all deliveries and notes. The follower calls it when it starts, because the
// revisions of another history would match the wrong changes.
func (ds *deliveries) reset() {
	ds.mu.Lock()
	defer ds.mu.Unlock()
	ds.delivered = nil
	ds.notes = nil
}

// addSpan adds a span to the trace of the write. It lasts from the store's response until this
// replica applied the change. The writer's clock may be ahead of this replica's: then the span has
// no duration.
func (ds *deliveries) addSpan(note writeNote, applied delivery) {
	start := note.wrote
	if start.After(applied.appliedAt) {
		start = applied.appliedAt
	}
	_, s := ds.tracer.Start(trace.ContextWithRemoteSpanContext(context.Background(), note.from), "Deliver change",
		trace.WithTimestamp(start), trace.WithSpanKind(trace.SpanKindConsumer), trace.WithAttributes(
			attribute.Int64("revision", note.revision), attribute.String("replica", ds.replica), attribute.String("source", applied.source)))
	s.End(trace.WithTimestamp(applied.appliedAt))
}

// AnnounceWrite publishes a note that a traced request wrote a revision, and handles the note on
// this replica. at is the time of the store's response. Without tracing it does nothing. It never
// blocks.
func (f *Fanout) AnnounceWrite(ctx context.Context, _ string, revision int64, respondedAt time.Time) {
	from := trace.SpanContextFromContext(ctx)
	if f.deliveries == nil || !from.IsSampled() {
		return
	}
	f.deliveries.handleNote(writeNote{revision, respondedAt, from})
	if t := f.connected.Load(); t != nil && !f.audience.alone {
		body := binary.LittleEndian.AppendUint64(make([]byte, 0, noteBytes), uint64(revision))
		body = binary.LittleEndian.AppendUint64(body, uint64(respondedAt.UnixNano()))
		header := nats.Header{}
		propagation.TraceContext{}.Inject(ctx, propagation.HeaderCarrier(header))
		if err := (*t).publishWithHeader(f.traceSubject, header, body); err != nil {
			f.log.Debug("failed to publish the trace of a write to other replicas", "error", err)
		}
	}
}

// handleNote handles a note that AnnounceWrite published on another replica. It ignores invalid
// notes.
func (f *Fanout) handleNote(header nats.Header, body []byte) {
	if len(body) != noteBytes {
		return
	}
	ctx := propagation.TraceContext{}.Extract(context.Background(), propagation.HeaderCarrier(header))
	from := trace.SpanContextFromContext(ctx)
	revision := int64(binary.LittleEndian.Uint64(body))
	at := int64(binary.LittleEndian.Uint64(body[8:]))
	if from.IsSampled() && revision > 0 && at > 0 {
		f.deliveries.handleNote(writeNote{revision, time.Unix(0, at), from})
	}
}

// Traced enables the spans for deliveries of changes. It must be called before Run. It does
// nothing if p is nil.
func (f *Fanout) Traced(p *tracing.Provider) {
	if p != nil {
		f.deliveries = newDeliveries(p.ChildrenOnly(), f.id)
	}
}
