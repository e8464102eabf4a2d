package history

import (
	"slices"
	"time"
)

// MarkAnnotation is the annotation that carries the mark of a write.
const MarkAnnotation = "robustness/mark"

// Color is the label that selections look at.
const Color = "color"

// History is everything of one scenario.
type History struct {
	Seed       uint64
	Faults     []Fault
	Operations []Operation
	Reads      []Read
	Watches    []*Watch
	Informers  []*Informer
	Truth      *Truth
	// Settled is a revision that every watch and informer had time to reach.
	Settled int64
}

// Fault is one damage and its repair.
type Fault struct {
	Name         string
	Begun, Ended time.Duration
}

// Version is one object at one time. Revision is its resourceVersion.
type Version struct {
	Key      string // resource/namespace/name
	Revision int64
	Mark     string
	Color    string
}

// Selection is what a list or a watch selects. Empty fields select all.
type Selection struct {
	Resource, Namespace, Name, Color string
}

// ReadKind says what a read promises.
type ReadKind string

// The kinds of reads.
const (
	// Newest reads show everything that was acknowledged before they began.
	Newest ReadKind = "newest"
	// Paged reads are Newest reads in several pages, of several replicas.
	Paged ReadKind = "paged"
	// Any reads show some state.
	Any ReadKind = "any"
	// NotOlder reads show the state at Asked or a later one.
	NotOlder ReadKind = "not older"
	// Exact reads show the state at Asked.
	Exact ReadKind = "exact"
	// Initial reads are the state that a watch begins with.
	Initial ReadKind = "initial"
)

// Read is a list, or the initial state of a watch, that was answered.
type Read struct {
	Kind       ReadKind
	By         string
	Selection  Selection
	Asked      int64
	Begun, End time.Duration
	Revision   int64
	Items      []Version
}

// Watch is a client that follows a selection over several streams.
type Watch struct {
	Name      string
	Selection Selection
	Streams   []Stream
}

// Stream is one request of a watch. A stream with a State begins anew there;
// the others go on after From, where the stream before ended.
type Stream struct {
	Replica int
	State   *Read
	From    int64
	Begun   time.Duration
	Events  []Event
	// End says why it ended, and when.
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
	At   time.Duration
	Type EventType
	Version
}

// Following are all that follow changes: the watches and those of informers.
func (h *History) Following() []*Watch {
	all := slices.Clone(h.Watches)
	for _, i := range h.Informers {
		all = append(all, &i.Watch)
	}
	return all
}

// Session is a state and the streams that went on from it.
type Session struct {
	*Watch
	Start   Read
	Streams []Stream
	// Final tells that the watch began no other session after it.
	Final bool
}

// Sessions are the parts of a watch that each began anew.
func (w *Watch) Sessions() []Session {
	var all []Session
	for _, s := range w.Streams {
		if s.State != nil {
			all = append(all, Session{Watch: w, Start: *s.State})
		}
		if n := len(all); n > 0 {
			all[n-1].Streams = append(all[n-1].Streams, s)
		}
	}
	if n := len(all); n > 0 {
		all[n-1].Final = true
	}
	return all
}

// Events are those of all streams, with bookmarks.
func (s *Session) Events() []Event {
	var all []Event
	for _, stream := range s.Streams {
		all = append(all, stream.Events...)
	}
	return all
}

// Last is the revision up to which the session told everything.
func (s *Session) Last() int64 {
	if n := len(s.Streams); n > 0 {
		return s.Streams[n-1].Last()
	}
	return s.Start.Revision
}

// Last is the revision up to which the stream told everything.
func (s *Stream) Last() int64 {
	if n := len(s.Events); n > 0 {
		return s.Events[n-1].Revision
	}
	return s.From
}

// Verb is what an operation does.
type Verb string

// The verbs. Update and Delete with an Expected mark are conditional on the
// version that has it.
const (
	Create Verb = "create"
	Update Verb = "update"
	Delete Verb = "delete"
	Get    Verb = "get"
)

// Outcome is what the server answered.
type Outcome string

// The outcomes. Unknown means that the write may or may not have happened, or
// will yet.
const (
	Done     Outcome = "done"
	Exists   Outcome = "exists"
	Conflict Outcome = "conflict"
	NotFound Outcome = "not found"
	Unknown  Outcome = "unknown"
)

// Operation is a request about one object.
type Operation struct {
	Client, Replica int
	Verb            Verb
	Key             string
	Expected        string // mark that a conditional write names
	Mark            string // that is written, or was read
	Revision        int64  // that the answer names; 0 if it names none
	Begun, End      time.Duration
	Outcome         Outcome
	Error           string
}

// Informer is a client-go informer or reflector: the watch that it made, and its
// store at the end.
type Informer struct {
	Watch
	Final []Version
}
