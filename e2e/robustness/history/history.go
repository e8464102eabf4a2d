package history

import (
	"slices"
	"time"
)

// MarkAnnotation is the annotation that carries the mark of a write.
const MarkAnnotation = "robustness/mark"

// Color is the label that selections match.
const Color = "color"

// History is the recorded data of one scenario.
type History struct {
	Seed       uint64
	Faults     []Fault
	Operations []Operation
	Reads      []Read
	Watches    []*Watch
	Informers  []*Informer
	ChangeLog  *ChangeLog
	// SettledRevision is a revision that every watch and informer had time to reach.
	SettledRevision int64
}

// Fault is one failure and its repair.
type Fault struct {
	Name       string
	Start, End time.Duration
}

// Version is one version of an object. Revision is its resource version.
type Version struct {
	Key      string // resource/namespace/name
	Revision int64
	Value    string
	Color    string
}

// Selection says what a list or a watch selects. An empty field matches everything.
type Selection struct {
	Resource, Namespace, Name, Color string
}

// ReadKind is the guarantee of a read.
type ReadKind string

// The kinds of reads.
const (
	// Newest reads return everything that was acknowledged before they started.
	Newest ReadKind = "newest"
	// Paged reads are Newest reads in several pages from several replicas.
	Paged ReadKind = "paged"
	// Any reads return some state.
	Any ReadKind = "any"
	// NotOlder reads return the state at MinRevision or a later one.
	NotOlder ReadKind = "not older"
	// Exact reads return the state at MinRevision.
	Exact ReadKind = "exact"
	// Initial reads are the initial state of a watch.
	Initial ReadKind = "initial"
)

// Read is a successful list, or the initial state of a watch.
type Read struct {
	Kind        ReadKind
	Client      string
	Selection   Selection
	MinRevision int64 // requested revision of NotOlder and Exact reads
	Start, End  time.Duration
	Revision    int64 // revision of the response
	Items       []Version
}

// Watch is a client that follows a selection over several streams.
type Watch struct {
	Name      string
	Selection Selection
	Streams   []Stream
}

// Stream is one watch request. A stream with a State starts a session. The others resume at
// FromRevision, where the previous stream ended.
type Stream struct {
	Replica      int
	State        *Read
	FromRevision int64
	Start        time.Duration
	Events       []Event
	// End is the reason for which the stream ended at Ended.
	End   string
	Ended time.Duration
}

// EventType is the type of a watch event.
type EventType string

// The types.
const (
	Added    EventType = "ADDED"
	Modified EventType = "MODIFIED"
	Deleted  EventType = "DELETED"
	Bookmark EventType = "BOOKMARK"
)

// Event is one event of a watch. A bookmark has a revision only.
type Event struct {
	Time time.Duration
	Type EventType
	Version
}

// AllWatches returns all watches, including the watches of informers.
func (h *History) AllWatches() []*Watch {
	all := slices.Clone(h.Watches)
	for _, i := range h.Informers {
		all = append(all, &i.Watch)
	}
	return all
}

// Session is a state and the streams that follow it.
type Session struct {
	*Watch
	Start   Read
	Streams []Stream
	// Final reports whether this is the last session of the watch.
	Final bool
}

// Sessions splits a watch at the streams with a State.
func (w *Watch) Sessions() []Session {
	var all []Session
	for _, stream := range w.Streams {
		if stream.State != nil {
			all = append(all, Session{Watch: w, Start: *stream.State})
		}
		if n := len(all); n > 0 {
			all[n-1].Streams = append(all[n-1].Streams, stream)
		}
	}
	if n := len(all); n > 0 {
		all[n-1].Final = true
	}
	return all
}

// Events returns the events of all streams, with bookmarks.
func (s *Session) Events() []Event {
	var all []Event
	for _, stream := range s.Streams {
		all = append(all, stream.Events...)
	}
	return all
}

// Last returns the revision up to which the session is complete.
func (s *Session) Last() int64 {
	if n := len(s.Streams); n > 0 {
		return s.Streams[n-1].Last()
	}
	return s.Start.Revision
}

// Last returns the revision up to which the stream is complete.
func (s *Stream) Last() int64 {
	if n := len(s.Events); n > 0 {
		return s.Events[n-1].Revision
	}
	return s.FromRevision
}

// Verb is the kind of an operation.
type Verb string

// The verbs. An Update or Delete with an Expected mark is conditional on the version with that
// mark.
const (
	Create Verb = "create"
	Update Verb = "update"
	Delete Verb = "delete"
	Get    Verb = "get"
)

// Outcome is the result of an operation.
type Outcome string

// The outcomes. Unknown means that the write may have taken effect or may still take effect.
const (
	Done     Outcome = "done"
	Exists   Outcome = "exists"
	Conflict Outcome = "conflict"
	NotFound Outcome = "not found"
	Unknown  Outcome = "unknown"
)

// Operation is a request for one object.
type Operation struct {
	Client, Replica int
	Verb            Verb
	Key             string
	Expected        string // mark of the version that a conditional write expects
	Value           string // mark that was written or read
	Revision        int64  // revision in the response; 0 if there is none
	Start, End      time.Duration
	Outcome         Outcome
	Error           string
}

// Informer is a client-go informer or reflector: its watch, and its store at the end.
type Informer struct {
	Watch
	Final []Version
}
