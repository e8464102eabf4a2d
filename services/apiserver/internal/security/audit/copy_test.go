package audit

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"binnacle/services/apiserver/internal/api/requestinfo"
)

// countingLimiter counts acquisitions and releases.
type countingLimiter struct{ entered, left int }

func (t *countingLimiter) Acquire(context.Context) error { t.entered++; return nil }
func (t *countingLimiter) Release()                      { t.left++ }

// TestLargeResponsesNeedPermit checks that large responses written in parts are recorded
// completely, with a permit.
func TestLargeResponsesNeedPermit(t *testing.T) {
	sink, had := &lineSink{lines: map[string]string{}}, &countingLimiter{}
	auditor := New(Config{
		Policy:     recordAll{},
		Sinks:      []Sink{sink},
		Metrics:    NewMetrics(prometheus.NewRegistry()),
		Logger:     slog.New(slog.DiscardHandler),
		MaxObject:  1 << 20,
		MaxObjects: 4 << 20,
		Limiter:    had,
	})
	for i, test := range []struct{ parts, turns int }{
		{parts: 1, turns: 0},
		{parts: 3, turns: 0},
		{parts: 100, turns: 1},
		{parts: 200, turns: 1},
		{parts: 2000, turns: 0},
	} {
		*had = countingLimiter{}
		r := auditor.Open(&requestinfo.Info{}, nil, func() ReceivedRequest { return ReceivedRequest{ID: fmt.Sprint(i)} })
		copied := r.Copy()
		copied.Write([]byte(`{"a": [`))
		for range test.parts {
			copied.Write([]byte(`"` + strings.Repeat("<x", 500) + `" , `))
		}
		copied.Write([]byte("1]}\n"))
		copied.Close()
		r.End(t.Context(), nil)
		if *had != (countingLimiter{test.turns, test.turns}) {
			t.Errorf("%d parts: %+v, want %d", test.parts, *had, test.turns)
		}
		want := `"responseObject":{"a":[` + strings.Repeat(`"`+strings.Repeat(`\u003cx`, 500)+`",`, test.parts) + `1]}`
		if whole := strings.Contains(sink.lines[fmt.Sprint(i)], want); whole != (test.parts < 2000) {
			t.Errorf("%d parts: got complete object %v, want %v", test.parts, whole, !whole)
		}
	}
	if auditor.budget.free != 4<<20 || len(auditor.budget.held) > 0 {
		t.Errorf("got budget %+v, want no held bytes", auditor.budget)
	}
}
