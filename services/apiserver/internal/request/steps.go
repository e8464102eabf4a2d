package request

import (
	"context"
	"sync"
	"time"

	"go.opentelemetry.io/otel/trace"
)

// Steps of requests, named as in Kubernetes.
const (
	StepBody    = "limitedReadBody succeeded"
	StepAdmit   = "About to store object in database"
	StepWritten = "Write to database call succeeded"
	StepFailed  = "Write to database call failed"
)

// maxSteps is the maximum number of steps recorded for one request. A write that is retried could
// record any number.
const maxSteps = 32

// ReachedStep is a point in time that a request reached.
type ReachedStep struct {
	Name string
	Time time.Time
}

// stepLog holds the steps that a request has reached.
type stepLog struct {
	mu      sync.Mutex // leaf lock
	reached []ReachedStep
}

// Step records that the request, and the current span, reached a step.
func Step(ctx context.Context, name string) {
	if span := trace.SpanFromContext(ctx); span.IsRecording() {
		span.AddEvent(name)
	}
	times := FromContext(ctx).WaitTimes
	if times == nil {
		return
	}
	times.steps.mu.Lock()
	defer times.steps.mu.Unlock()
	if len(times.steps.reached) < maxSteps {
		times.steps.reached = append(times.steps.reached, ReachedStep{name, time.Now()})
	}
}

// Steps returns the recorded steps in order.
func (w *WaitTimes) Steps() []ReachedStep {
	if w == nil {
		return nil
	}
	w.steps.mu.Lock()
	defer w.steps.mu.Unlock()
	return append([]ReachedStep(nil), w.steps.reached...)
}
