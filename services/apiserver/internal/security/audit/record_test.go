package audit

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"binnacle/services/apiserver/internal/api/requestinfo"
	"binnacle/services/apiserver/internal/request"
)

// everything is told.
type everything struct{}

func (everything) Decide(*requestinfo.Info, *request.User) Decision {
	return Decision{Level: RequestResponse}
}

// linesOf keeps the lines of the last events of requests, by their ids.
type linesOf struct {
	mu    sync.Mutex
	lines map[string]string
}

func (l *linesOf) Process(_ context.Context, e *Event) error {
	if e.Stage == ResponseComplete {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.lines[e.ID] = string(e.AppendLine(nil))
	}
	return nil
}

// TestRecordsThatAreOver write nothing on what others are written on since.
func TestRecordsThatAreOver(t *testing.T) {
	sink := &linesOf{lines: map[string]string{}}
	trail := New(Config{
		Policy: everything{}, Sinks: []Sink{sink}, Metrics: NewMetrics(prometheus.NewRegistry()), Logger: slog.New(slog.DiscardHandler),
		MaxObject: 1 << 10, MaxObjects: 1 << 20,
	})
	// write has a record note all that can be noted, with a word of its own.
	write := func(r *Record, word string) {
		r.Annotate("k-"+word, word)
		r.AnnotateAll(map[string]string{"l-" + word: word})
		r.Impersonate(&request.User{Name: "as-" + word})
		r.Acts(&requestinfo.Info{Verb: word})
		r.Spent(Store, 1)
		text := func() ([]byte, error) { return []byte(`"` + word + `"`), nil }
		r.Asked(&metav1.ObjectMeta{Name: word, UID: "uid"}, text)
		r.AskedText(text)
		r.Shown([]byte(`"` + word + `"`))
		r.Answered(&metav1.Status{Message: word})
		c := r.Copy()
		c.Write([]byte(`"` + word + `"`))
		c.Close()
		r.Begins(t.Context(), 200)
	}
	var all sync.WaitGroup
	for n := range 4 {
		all.Go(func() {
			var before *Record
			for i := range 500 {
				id := fmt.Sprintf("id-%d-%d", n, i)
				op := &requestinfo.Info{Verb: "get", IsResource: true, Resource: "pods"}
				r := trail.Open(op, &request.User{Name: "user-" + id}, func() Arrival { return Arrival{ID: id, URI: "/" + id, Source: "10.0.0.1"} })
				if err := r.Receive(t.Context()); err != nil {
					t.Error(err)
				}
				if before != nil {
					write(before, "late")
					before.Ends(t.Context(), errors.New("late"))
					before.Refuse()
					before.Close()
				}
				write(r, id)
				r.Ends(t.Context(), nil)
				before = r
			}
		})
	}
	all.Wait()
	if len(sink.lines) != 2000 {
		t.Errorf("%d requests are told of", len(sink.lines))
	}
	for id, line := range sink.lines {
		if strings.Contains(line, "late") || strings.Count(line, "id-") != strings.Count(line, id) || strings.Count(line, id) < 10 {
			t.Errorf("%s is told as %s", id, line)
			break
		}
	}
	if len(trail.room.held) != 0 || trail.room.free != 1<<20 {
		t.Errorf("%d bytes are free, %v are held", trail.room.free, trail.room.held)
	}
}
