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

// counted are turns that count who has one.
type counted struct{ entered, left int }

func (t *counted) Enter(context.Context) error { t.entered++; return nil }
func (t *counted) Leave()                      { t.left++ }

// TestLongAnswersAreToldInTurns, whole, as they are written in parts.
func TestLongAnswersAreToldInTurns(t *testing.T) {
	sink, had := &linesOf{lines: map[string]string{}}, &counted{}
	trail := New(Config{
		Policy: everything{}, Sinks: []Sink{sink}, Metrics: NewMetrics(prometheus.NewRegistry()), Logger: slog.New(slog.DiscardHandler),
		MaxObject: 1 << 20, MaxObjects: 4 << 20, Turns: had,
	})
	for i, c := range []struct{ parts, turns int }{{1, 0}, {3, 0}, {100, 1}, {200, 1}, {2000, 0}} {
		*had = counted{}
		r := trail.Open(&requestinfo.Info{}, nil, func() Arrival { return Arrival{ID: fmt.Sprint(i)} })
		copied := r.Copy()
		copied.Write([]byte(`{"a": [`))
		for range c.parts {
			copied.Write([]byte(`"` + strings.Repeat("<x", 500) + `" , `))
		}
		copied.Write([]byte("1]}\n"))
		copied.Close()
		r.Ends(t.Context(), nil)
		if *had != (counted{c.turns, c.turns}) {
			t.Errorf("%d parts: %+v, want %d", c.parts, *had, c.turns)
		}
		want := `"responseObject":{"a":[` + strings.Repeat(`"`+strings.Repeat(`\u003cx`, 500)+`",`, c.parts) + `1]}`
		if whole := strings.Contains(sink.lines[fmt.Sprint(i)], want); whole != (c.parts < 2000) {
			t.Errorf("%d parts: whole: %v", c.parts, whole)
		}
	}
	if trail.room.free != 4<<20 || len(trail.room.held) > 0 {
		t.Errorf("room is held still: %+v", trail.room)
	}
}
