package fanout

import (
	"errors"
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
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
