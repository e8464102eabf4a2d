package serving

import (
	"log/slog"
	"sync"
	"time"
)

// Event is a point of a server's life that others wait for.
type Event struct {
	name string
	log  *slog.Logger
	once sync.Once
	ch   chan struct{}
}

func newEvent(name string, log *slog.Logger) *Event {
	return &Event{name: name, log: log, ch: make(chan struct{})}
}

// Name returns the event's name.
func (e *Event) Name() string { return e.name }

// Signaled returns a channel that is closed when the event has happened.
func (e *Event) Signaled() <-chan struct{} { return e.ch }

// Happened tells whether the event has happened.
func (e *Event) Happened() bool {
	select {
	case <-e.ch:
		return true
	default:
		return false
	}
}

func (e *Event) signal(begin time.Time) {
	e.once.Do(func() {
		close(e.ch)
		e.log.Info("shutdown event", "name", e.name, "after", time.Since(begin).Round(time.Millisecond))
	})
}

// Timeline holds the events of a shutdown in the order in which they happen.
type Timeline struct {
	// ShutdownInitiated: the process was told to end.
	ShutdownInitiated *Event
	// AfterShutdownDelayDuration: --shutdown-delay-duration has passed.
	AfterShutdownDelayDuration *Event
	// NotAcceptingNewRequest: from now on new requests are refused.
	NotAcceptingNewRequest *Event
	// InFlightRequestsDrained: every request has ended, or its time is over.
	InFlightRequestsDrained *Event
	// HTTPServerStoppedListening: no connection is left.
	HTTPServerStoppedListening *Event
}

func newTimeline(log *slog.Logger) *Timeline {
	return &Timeline{
		ShutdownInitiated:          newEvent("ShutdownInitiated", log),
		AfterShutdownDelayDuration: newEvent("AfterShutdownDelayDuration", log),
		NotAcceptingNewRequest:     newEvent("NotAcceptingNewRequest", log),
		InFlightRequestsDrained:    newEvent("InFlightRequestsDrained", log),
		HTTPServerStoppedListening: newEvent("HTTPServerStoppedListening", log),
	}
}
