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
func newMetrics(f *Fanout, reg prometheus.Registerer) (*metrics, error) {
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
		changes:  counter("source_changes_total", "Changes of the source, by the new one.", "source"),
		gaps:     counter("gaps_total", "Falls from the stream to the store, by reason.", "reason"),
		messages: counter("messages_total", "Messages that were published and received.", "direction"),
		bytes:    counter("bytes_total", "Bytes of messages that were published and received.", "direction"),
		ignored:  counter("messages_ignored_total", "Received messages that were ignored, by reason.", "reason"),
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
		func() float64 { return float64(f.State().Behind) })
	age := prometheus.NewGaugeFunc(gauge("lag_seconds", "Seconds since this replica was last known to be current."),
		func() float64 {
			if s := f.State(); s.Source != sourceNone {
				return s.Age.Seconds()
			}
			return 0
		})
	connected := prometheus.NewGaugeFunc(gauge("connected", "1 while this replica has a connection to NATS."),
		func() float64 {
			if f.State().Connected {
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

func (m *metrics) published(bytes int) {
	m.sentMessages.Inc()
	m.sentBytes.Add(float64(bytes))
}

func (m *metrics) received(bytes int) {
	m.receivedMessages.Inc()
	m.receivedBytes.Add(float64(bytes))
}

// With tracing, the replica that wrote for a traced request publishes a note on
// binnacle.CLUSTER.traces: a header traceparent (W3C Trace Context), and the revision and the
// time of the store's response (Unix nanoseconds), 8 bytes each, little endian. Each replica adds
// a span to that trace when it has applied the revision. Notes may be lost.

const (
	// maxDelivered bounds the remembered changes whose notes have not arrived, and maxNotes the
	// notes whose changes have not arrived.
	maxDelivered = 4096
	maxNotes     = 1024
	noteBytes    = 16
)

// deliveries creates a span for each change of a traced request when this replica applies it, on
// whichever replica it was written. The note of the writer and the change arrive in any order.
type deliveries struct {
	tracer  trace.Tracer
	replica string

	mu        sync.Mutex // a leaf lock
	delivered []delivery // the latest ones, by revision
	notes     []note
}

// delivery records when changes up to a revision had been applied.
type delivery struct {
	first, last int64
	at          time.Time
	source      string
}

// note is a message of a writer: a revision, when the store had it, and the trace of the request.
type note struct {
	revision int64
	wrote    time.Time
	from     trace.SpanContext
}

func newDeliveries(p trace.TracerProvider, replica string) *deliveries {
	return &deliveries{tracer: p.Tracer("binnacle"), replica: replica}
}

// applied records that a batch has been applied.
func (d *deliveries) applied(b storage.Batch, source string) {
	if len(b.Events) == 0 {
		return
	}
	at := delivery{b.Events[0].Revision, b.Revision, time.Now(), source}
	d.mu.Lock()
	if len(d.delivered) >= maxDelivered {
		d.delivered = slices.Delete(d.delivered, 0, maxDelivered/4)
	}
	d.delivered = append(d.delivered, at)
	var due []note
	d.notes = slices.DeleteFunc(d.notes, func(n note) bool {
		if n.revision > at.last {
			return false
		}
		if n.revision >= at.first {
			due = append(due, n)
		}
		return true
	})
	d.mu.Unlock()
	for _, n := range due {
		d.span(n, at)
	}
}

// noted handles the note of a writer.
func (d *deliveries) noted(n note) {
	d.mu.Lock()
	i, found := slices.BinarySearchFunc(d.delivered, n.revision, func(at delivery, revision int64) int {
		switch {
		case at.last < revision:
			return -1
		case at.first > revision:
			return 1
		}
		return 0
	})
	var at delivery
	switch {
	case found:
		at = d.delivered[i]
	case i < len(d.delivered): // older than the remembered changes, or of a discarded history
	default:
		if len(d.notes) >= maxNotes { // their changes may never come
			d.notes = slices.Delete(d.notes, 0, 1)
		}
		d.notes = append(d.notes, n)
	}
	d.mu.Unlock()
	if found {
		d.span(n, at)
	}
}

// forget drops the changes of another history.
func (d *deliveries) forget() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.delivered = nil
	d.notes = nil
}

// span adds a span to the trace of the write: from when the store had the change until this replica
// had it. The clocks of two machines may differ.
func (d *deliveries) span(n note, at delivery) {
	begin := n.wrote
	if begin.After(at.at) {
		begin = at.at
	}
	_, s := d.tracer.Start(trace.ContextWithRemoteSpanContext(context.Background(), n.from), "Deliver change",
		trace.WithTimestamp(begin), trace.WithSpanKind(trace.SpanKindConsumer), trace.WithAttributes(
			attribute.Int64("revision", n.revision), attribute.String("replica", d.replica), attribute.String("source", at.source)))
	s.End(trace.WithTimestamp(at.at))
}

// Wrote announces to all replicas that a traced request wrote a revision, so that each adds to the
// trace when it applied the change. Without tracing it does nothing. It never blocks.
func (f *Fanout) Wrote(ctx context.Context, _ string, revision int64, at time.Time) {
	from := trace.SpanContextFromContext(ctx)
	if f.deliveries == nil || !from.IsSampled() {
		return
	}
	f.deliveries.noted(note{revision, at, from})
	if t := f.connected.Load(); t != nil && !f.audience.alone {
		body := binary.LittleEndian.AppendUint64(make([]byte, 0, noteBytes), uint64(revision))
		body = binary.LittleEndian.AppendUint64(body, uint64(at.UnixNano()))
		header := nats.Header{}
		propagation.TraceContext{}.Inject(ctx, propagation.HeaderCarrier(header))
		if err := (*t).publishWithHeader(f.traceSubject, header, body); err != nil {
			f.log.Debug("a write's trace could not be sent to other replicas", "error", err)
		}
	}
}

// handleNote handles a note sent by Wrote on another replica.
func (f *Fanout) handleNote(header nats.Header, body []byte) {
	if len(body) != noteBytes {
		return
	}
	ctx := propagation.TraceContext{}.Extract(context.Background(), propagation.HeaderCarrier(header))
	from := trace.SpanContextFromContext(ctx)
	revision := int64(binary.LittleEndian.Uint64(body))
	at := int64(binary.LittleEndian.Uint64(body[8:]))
	if from.IsSampled() && revision > 0 && at > 0 {
		f.deliveries.noted(note{revision, time.Unix(0, at), from})
	}
}

// Traced adds deliveries of changes to the traces of their writes. It is called before Run. Without
// a provider it does nothing.
func (f *Fanout) Traced(p *tracing.Provider) {
	if p != nil {
		f.deliveries = newDeliveries(p.Inner(), f.id)
	}
}
