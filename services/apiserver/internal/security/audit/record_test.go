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

// recordAll is a policy that records all requests at level RequestResponse.
type recordAll struct{}

func (recordAll) Decide(*requestinfo.Info, *request.User) Decision {
	return Decision{Level: RequestResponse}
}

// lineSink keeps the lines of ResponseComplete events by request id.
type lineSink struct {
	mu    sync.Mutex
	lines map[string]string
}

func (l *lineSink) Process(_ context.Context, event *Event) error {
	if event.Stage == ResponseComplete {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.lines[event.ID] = string(event.AppendLine(nil))
	}
	return nil
}

// TestEndedRecordChangesNothing checks that calls on an ended record do not change the record that
// reuses its state.
func TestEndedRecordChangesNothing(t *testing.T) {
	sink := &lineSink{lines: map[string]string{}}
	auditor := New(Config{
		Policy:     recordAll{},
		Sinks:      []Sink{sink},
		Metrics:    NewMetrics(prometheus.NewRegistry()),
		Logger:     slog.New(slog.DiscardHandler),
		MaxObject:  1 << 10,
		MaxObjects: 1 << 20,
	})
	// write calls all methods of a record with word in each value.
	write := func(record *Record, word string) {
		record.Annotate("k-"+word, word)
		record.AnnotateAll(map[string]string{"l-" + word: word})
		record.Impersonate(&request.User{Name: "as-" + word})
		record.SetRequestInfo(&requestinfo.Info{Verb: word})
		record.AddDuration(Store, 1)
		text := func() ([]byte, error) { return []byte(`"` + word + `"`), nil }
		record.SetRequestObject(&metav1.ObjectMeta{Name: word, UID: "uid"}, text)
		record.SetRequestText(text)
		record.SetResponseObject([]byte(`"` + word + `"`))
		record.SetResponseStatus(&metav1.Status{Message: word})
		c := record.Copy()
		c.Write([]byte(`"` + word + `"`))
		c.Close()
		record.BeginResponse(t.Context(), 200)
	}
	var all sync.WaitGroup
	for n := range 4 {
		all.Go(func() {
			var before *Record
			for i := range 500 {
				id := fmt.Sprintf("id-%d-%d", n, i)
				info := &requestinfo.Info{Verb: "get", IsResource: true, Resource: "pods"}
				record := auditor.Open(info, &request.User{Name: "user-" + id}, func() ReceivedRequest {
					return ReceivedRequest{ID: id, URI: "/" + id, Source: "10.0.0.1"}
				})
				if err := record.Receive(t.Context()); err != nil {
					t.Error(err)
				}
				if before != nil {
					write(before, "late")
					before.End(t.Context(), errors.New("late"))
					before.SetUnauthenticated()
					before.Close()
				}
				write(record, id)
				record.End(t.Context(), nil)
				before = record
			}
		})
	}
	all.Wait()
	if len(sink.lines) != 2000 {
		t.Errorf("got events of %d requests, want 2000", len(sink.lines))
	}
	for id, line := range sink.lines {
		if strings.Contains(line, "late") || strings.Count(line, "id-") != strings.Count(line, id) || strings.Count(line, id) < 10 {
			t.Errorf("event of %s: got %s, want only values of this request", id, line)
			break
		}
	}
	if len(auditor.budget.held) != 0 || auditor.budget.free != 1<<20 {
		t.Errorf("got %d free bytes and %v held, want all free", auditor.budget.free, auditor.budget.held)
	}
}
