package fanout

import (
	"testing"
	"time"

	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"binnacle/services/apiserver/internal/storage"
)

// TestNotesMatchDeliveries checks that notes and deliveries match in any order, once each, and
// that unmatched ones are bounded.
func TestNotesMatchDeliveries(t *testing.T) {
	spans := tracetest.NewSpanRecorder()
	deliveries := newDeliveries(sdk.NewTracerProvider(sdk.WithSpanProcessor(spans)), "r")
	of := func(revision int64) writeNote {
		return writeNote{
			revision: revision,
			wrote:    time.Now(),
			from: trace.NewSpanContext(trace.SpanContextConfig{
				TraceID:    trace.TraceID{1, byte(revision)},
				SpanID:     trace.SpanID{1},
				TraceFlags: trace.FlagsSampled,
				Remote:     true,
			}),
		}
	}
	has := func(first, last int64) {
		deliveries.recordApplied(storage.Batch{Events: []storage.Event{{Revision: first}}, Revision: last}, sourceNATS)
	}
	ended := func(want ...int64) {
		t.Helper()
		var got []int64
		for _, s := range spans.Ended() {
			for _, a := range s.Attributes() {
				if a.Key == "revision" {
					got = append(got, a.Value.AsInt64())
				}
			}
			if s.EndTime().Before(s.StartTime()) {
				t.Errorf("got a span that ends %s before its start, want a positive duration", s.StartTime().Sub(s.EndTime()))
			}
		}
		spans.Reset()
		if len(got) != len(want) {
			t.Errorf("got spans of %v, want %v", got, want)
			return
		}
		for i := range got {
			if got[i] != want[i] {
				t.Errorf("got spans of %v, want %v", got, want)
			}
		}
	}
	has(5, 5)
	has(6, 9)
	ended()
	deliveries.handleNote(of(7)) // after the delivery
	ended(7)
	deliveries.handleNote(of(12)) // before the delivery
	deliveries.handleNote(of(10))
	ended()
	has(10, 11)
	ended(10)
	has(12, 12)
	ended(12)
	has(12, 12)
	deliveries.handleNote(of(2)) // of a forgotten delivery
	ended()
	deliveries.handleNote(of(20))
	deliveries.reset() // another history
	has(20, 20)
	ended()
	for i := range int64(2 * maxDelivered) {
		has(100+i, 100+i)
		deliveries.handleNote(of(1_000_000 + i))
	}
	if len(deliveries.delivered) > maxDelivered || len(deliveries.notes) > maxNotes {
		t.Errorf("got %d deliveries and %d notes, want at most %d and %d", len(deliveries.delivered), len(deliveries.notes), maxDelivered, maxNotes)
	}
	ended()
	deliveries.handleNote(of(500_000)) // notes without deliveries displace no others
	has(500_000, 500_000)
	ended(500_000)
}
