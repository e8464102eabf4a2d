package drain

import (
	"log/slog"
	"sync"
	"time"
)

// Event is a step of the shutdown that other components can wait for.
type Event struct {
	name string
	log  *slog.Logger
	once sync.Once
	ch   chan struct{}
}

// newEvent returns an event that has not happened.
func newEvent(name string, log *slog.Logger) *Event {
	return &Event{name: name, log: log, ch: make(chan struct{})}
}

// Name returns the event's name.
func (e *Event) Name() string { return e.name }

// Signaled returns a channel that is closed when the event has happened.
func (e *Event) Signaled() <-chan struct{} { return e.ch }

// IsSet reports whether the event has happened.
func (e *Event) IsSet() bool {
	select {
	case <-e.ch:
		return true
	default:
		return false
	}
}

// Signal reports that the event has happened. start is the start of the shutdown.
func (e *Event) Signal(start time.Time) {
	e.once.Do(func() {
		close(e.ch)
		e.log.Debug("shutdown event", "name", e.name, "after", time.Since(start).Round(time.Millisecond))
	})
}

// Timeline holds the events of a shutdown in the order in which they happen.
type Timeline struct {
	// ShutdownInitiated: the context of Run has ended.
	ShutdownInitiated *Event
	// AfterShutdownDelayDuration: --shutdown-delay-duration has passed.
	AfterShutdownDelayDuration *Event
	// NotAcceptingNewRequest: new requests are rejected.
	NotAcceptingNewRequest *Event
	// InFlightRequestsDrained: every request has ended or timed out.
	InFlightRequestsDrained *Event
	// HTTPServerStoppedListening: all connections are closed.
	HTTPServerStoppedListening *Event
}

// NewTimeline returns a timeline before its first event.
func NewTimeline(log *slog.Logger) *Timeline {
	return &Timeline{
		ShutdownInitiated:          newEvent("ShutdownInitiated", log),
		AfterShutdownDelayDuration: newEvent("AfterShutdownDelayDuration", log),
		NotAcceptingNewRequest:     newEvent("NotAcceptingNewRequest", log),
		InFlightRequestsDrained:    newEvent("InFlightRequestsDrained", log),
		HTTPServerStoppedListening: newEvent("HTTPServerStoppedListening", log),
	}
}
