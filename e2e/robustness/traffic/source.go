package traffic

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"

	"binnacle/e2e/robustness/history"
)

// source lists and watches a selection for watchers and informers, and records the results.
type source struct {
	clock
	replicas []Replica
	// target returns the replica to use and the form of the request.
	target func() (int, form)

	taps    sync.WaitGroup
	reached atomic.Int64 // the revision up to which everything was delivered
	mu      sync.Mutex   // guards the fields below; never held while another lock is acquired
	watch   *history.Watch
	listed  *history.Read // the next watch may start from it
	err     error         // a response that no fault explains
}

func newSource(t *Traffic, name string, s history.Selection, target func() (int, form)) *source {
	return &source{clock: t.clock, replicas: t.replicas, target: target, watch: &history.Watch{Name: name, Selection: s}}
}

// list lists and records the result as a possible start of a watch.
func (s *source) list(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
	replica, form := s.target()
	read := &history.Read{Client: s.watch.Name, Selection: s.watch.Selection, Start: s.now(), Kind: history.Newest}
	switch o.ResourceVersion {
	case "":
	case "0":
		read.Kind = history.Any
	default:
		read.Kind = history.NotOlder
		requested, err := parseRevision(o.ResourceVersion)
		if err != nil {
			return nil, err
		}
		read.MinRevision = requested
	}
	list, err := s.replicas[replica].list(ctx, form, s.watch.Selection, o)
	if err != nil {
		return nil, err
	}
	read.End = s.now()
	if read.Revision, read.Items, err = versionsOf(s.watch.Selection.Resource, list); err != nil {
		return nil, s.fail(err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.listed = read
	return list, nil
}

// follow watches and records the events that its receiver accepts.
func (s *source) follow(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
	replica, form := s.target()
	stream := history.Stream{Replica: replica, Start: s.now()}
	streaming := o.SendInitialEvents != nil && *o.SendInitialEvents
	if !streaming {
		var err error
		if stream.FromRevision, err = parseRevision(o.ResourceVersion); err != nil {
			return nil, err
		}
	}
	w, err := s.replicas[replica].watch(ctx, form, s.watch.Selection, o)
	if err != nil {
		return nil, err
	}
	t := &tap{source: s, inner: w, out: make(chan watch.Event), stopped: make(chan struct{}), stream: stream}
	if streaming {
		t.initial = &history.Read{Kind: history.Initial, Client: s.watch.Name, Selection: s.watch.Selection, Start: stream.Start}
		if o.ResourceVersion != "" {
			t.initial.Kind = history.NotOlder
			if t.initial.MinRevision, err = parseRevision(o.ResourceVersion); err != nil {
				w.Stop()
				return nil, err
			}
		}
	} else {
		s.begin(stream)
	}
	s.taps.Go(t.run)
	return t, nil
}

// begin adds a stream. If it starts from the last list, that list is its state.
func (s *source) begin(stream history.Stream) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if stream.State == nil && s.listed != nil && s.listed.Revision == stream.FromRevision {
		stream.State = s.listed
	}
	s.listed = nil
	s.watch.Streams = append(s.watch.Streams, stream)
	s.reached.Store(stream.Last())
}

// add adds an event to the current stream. undo removes it.
func (s *source) add(e history.Event) (undo func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := len(s.watch.Streams) - 1
	stream := &s.watch.Streams[n]
	stream.Events = append(stream.Events, e)
	s.reached.Store(stream.Last())
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		stream := &s.watch.Streams[n]
		stream.Events = stream.Events[:len(stream.Events)-1]
	}
}

// end records why a stream ended.
func (s *source) end(started time.Duration, reason string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range s.watch.Streams {
		if st := &s.watch.Streams[i]; st.Start == started {
			st.End, st.Ended = reason, s.now()
		}
	}
}

// fail records a response that no fault explains.
func (s *source) fail(err error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err == nil {
		s.err = fmt.Errorf("%s: %w", s.watch.Name, err)
	}
	return err
}

// recorded waits for the end of all watches and returns the recorded watch.
func (s *source) recorded() (*history.Watch, error) {
	s.taps.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.watch, s.err
}

// tap is a watch that records events when its receiver accepts them.
type tap struct {
	source  *source
	inner   watch.Interface
	out     chan watch.Event
	stopped chan struct{}
	once    sync.Once

	// initial is the incomplete initial state, or nil when it is complete.
	initial *history.Read
	stream  history.Stream
}

// ResultChan implements watch.Interface.
func (t *tap) ResultChan() <-chan watch.Event { return t.out }

// Stop implements watch.Interface.
func (t *tap) Stop() {
	t.once.Do(func() {
		close(t.stopped)
		t.inner.Stop()
	})
}

func (t *tap) run() {
	defer close(t.out)
	defer t.inner.Stop()
	reason := t.pass()
	if t.initial == nil {
		t.source.end(t.stream.Start, reason)
	}
}

// pass forwards events until the watch ends and returns the reason.
func (t *tap) pass() string {
	reason := "end of stream"
	for e := range t.inner.ResultChan() {
		undo, err := t.record(e)
		if err != nil {
			return t.source.fail(err).Error()
		}
		if e.Type == watch.Error {
			reason = apierrors.FromObject(e.Object).Error()
		}
		select {
		case t.out <- e:
		case <-t.stopped:
			undo()
			return "stopped"
		}
	}
	return reason
}

// record records an event.
func (t *tap) record(e watch.Event) (undo func(), err error) {
	nothing := func() {}
	if e.Type == watch.Error {
		return nothing, nil
	}
	m, err := meta.Accessor(e.Object)
	if err != nil {
		return nil, err
	}
	at := t.source.now()
	event := history.Event{Time: at, Type: history.EventType(e.Type)}
	if e.Type == watch.Bookmark {
		event.Revision, err = parseRevision(m.GetResourceVersion())
	} else {
		event.Version, err = versionOf(t.source.watch.Selection.Resource, e.Object)
	}
	if err != nil {
		return nil, fmt.Errorf("%s event: %w", e.Type, err)
	}
	if t.initial == nil {
		return t.source.add(event), nil
	}
	if e.Type == watch.Bookmark {
		if m.GetAnnotations()[metav1.InitialEventsAnnotationKey] != "true" {
			return nothing, nil
		}
		t.initial.Revision = event.Revision
		t.initial.End = at
		t.stream.State = t.initial
		t.stream.FromRevision = event.Revision
		t.initial = nil
		t.source.begin(t.stream)
		return nothing, nil
	}
	if event.Type != history.Added {
		return nil, fmt.Errorf("%s event of %s within the initial state", e.Type, event.Key)
	}
	t.initial.Items = append(t.initial.Items, event.Version)
	return nothing, nil
}
