package fanout

import (
	"testing"
	"time"

	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"binnacle/services/apiserver/internal/storage"
)

// TestNoteAndDeliveryGiveOneSpan checks that notes and deliveries match in any order, once each, and
// that the kept ones without a match are bounded.
func TestNoteAndDeliveryGiveOneSpan(t *testing.T) {
	spans := tracetest.NewSpanRecorder()
	deliveries := newDeliveries(sdk.NewTracerProvider(sdk.WithSpanProcessor(spans)), "r")
	noteAt := func(revision int64) writeNote {
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
	deliver := func(first, last int64) {
		deliveries.recordApplied(storage.Batch{Events: []storage.Event{{Revision: first}}, Revision: last}, sourceNATS)
	}
	wantSpansOf := func(want ...int64) {
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
	// 1. A note finds the batch that contains its revision, whatever comes first.
	deliver(5, 5)
	deliver(6, 9)
	wantSpansOf()
	deliveries.handleNote(noteAt(7)) // after the delivery
	wantSpansOf(7)
	deliveries.handleNote(noteAt(12)) // before the delivery
	deliveries.handleNote(noteAt(10))
	wantSpansOf()
	deliver(10, 11)
	wantSpansOf(10)
	deliver(12, 12)
	wantSpansOf(12)
	// 2. A repeated delivery, a forgotten one, and one of another history add no span.
	deliver(12, 12)
	deliveries.handleNote(noteAt(2)) // of a forgotten delivery
	wantSpansOf()
	deliveries.handleNote(noteAt(20))
	deliveries.reset() // another history
	deliver(20, 20)
	wantSpansOf()
	// 3. Notes and deliveries without a match are bounded, and the newest ones still match.
	for i := range int64(2 * maxDelivered) {
		deliver(100+i, 100+i)
		deliveries.handleNote(noteAt(1_000_000 + i))
	}
	if len(deliveries.delivered) > maxDelivered || len(deliveries.notes) > maxNotes {
		t.Errorf("got %d deliveries and %d notes, want at most %d and %d", len(deliveries.delivered), len(deliveries.notes), maxDelivered, maxNotes)
	}
	wantSpansOf()
	deliveries.handleNote(noteAt(500_000)) // notes without deliveries displace no others
	deliver(500_000, 500_000)
	wantSpansOf(500_000)
}
