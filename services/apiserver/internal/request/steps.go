package request

import (
	"context"
	"sync"
	"time"

	"go.opentelemetry.io/otel/trace"
)

// Steps of requests, in the words of Kubernetes.
const (
	StepBody    = "limitedReadBody succeeded"
	StepAdmit   = "About to store object in database"
	StepWritten = "Write to database call succeeded"
	StepFailed  = "Write to database call failed"
)

// maxSteps bounds what is remembered of one request: a write that is tried again and
// again has as many as it likes.
const maxSteps = 32

// TakenStep is a point in time that a request reached.
type TakenStep struct {
	Name string
	At   time.Time
}

type steps struct {
	mu    sync.Mutex // a leaf
	taken []TakenStep
}

// Step notes that a request, or the span that it is in, reached a point.
func Step(ctx context.Context, name string) {
	if s := trace.SpanFromContext(ctx); s.IsRecording() {
		s.AddEvent(name)
	}
	w := WaitsFrom(ctx)
	if w == nil {
		return
	}
	w.steps.mu.Lock()
	defer w.steps.mu.Unlock()
	if len(w.steps.taken) < maxSteps {
		w.steps.taken = append(w.steps.taken, TakenStep{name, time.Now()})
	}
}

// Steps are those that were taken, in order.
func (w *Waits) Steps() []TakenStep {
	if w == nil {
		return nil
	}
	w.steps.mu.Lock()
	defer w.steps.mu.Unlock()
	return append([]TakenStep(nil), w.steps.taken...)
}
