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
	// nextTarget returns the index of the replica for the next request, and the encoding.
	nextTarget func() (int, encoding)

	running           sync.WaitGroup
	deliveredRevision atomic.Int64 // the revision up to which everything was delivered
	mu                sync.Mutex   // guards the fields below; never held while another lock is acquired
	watch             *history.Watch
	lastList          *history.Read // the next watch may start from it
	err               error         // a response that no fault explains
}

func newSource(traffic *Traffic, name string, selected history.Selection, nextTarget func() (int, encoding)) *source {
	return &source{clock: traffic.clock, replicas: traffic.replicas, nextTarget: nextTarget, watch: &history.Watch{Name: name, Selection: selected}}
}

// listAndRecord lists the selection and records the result, from which the next watch may start.
func (s *source) listAndRecord(ctx context.Context, listOptions metav1.ListOptions) (runtime.Object, error) {
	replica, form := s.nextTarget()
	read := &history.Read{Client: s.watch.Name, Selection: s.watch.Selection, Start: s.now(), Kind: history.Newest}
	switch listOptions.ResourceVersion {
	case "":
	case "0":
		read.Kind = history.Any
	default:
		read.Kind = history.NotOlder
		requested, err := parseRevision(listOptions.ResourceVersion)
		if err != nil {
			return nil, err
		}
		read.MinRevision = requested
	}
	list, err := s.replicas[replica].list(ctx, form, s.watch.Selection, listOptions)
	if err != nil {
		return nil, err
	}
	read.End = s.now()
	if read.Revision, read.Items, err = versionsOf(s.watch.Selection.Resource, list); err != nil {
		return nil, s.recordError(err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lastList = read
	return list, nil
}

// startWatch starts a watch that records each event when the caller has received it.
func (s *source) startWatch(ctx context.Context, listOptions metav1.ListOptions) (watch.Interface, error) {
	replica, form := s.nextTarget()
	stream := history.Stream{Replica: replica, Start: s.now()}
	streaming := listOptions.SendInitialEvents != nil && *listOptions.SendInitialEvents
	if !streaming {
		var err error
		if stream.FromRevision, err = parseRevision(listOptions.ResourceVersion); err != nil {
			return nil, err
		}
	}
	client, err := s.replicas[replica].watch(ctx, form, s.watch.Selection, listOptions)
	if err != nil {
		return nil, err
	}
	recorded := &recordedWatch{recorder: s, upstream: client, events: make(chan watch.Event), stopped: make(chan struct{}), stream: stream}
	if streaming {
		recorded.initial = &history.Read{Kind: history.Initial, Client: s.watch.Name, Selection: s.watch.Selection, Start: stream.Start}
		if listOptions.ResourceVersion != "" {
			recorded.initial.Kind = history.NotOlder
			if recorded.initial.MinRevision, err = parseRevision(listOptions.ResourceVersion); err != nil {
				client.Stop()
				return nil, err
			}
		}
	} else {
		s.beginStream(stream)
	}
	s.running.Go(recorded.run)
	return recorded, nil
}

// beginStream adds a stream to the recorded watch. If it starts from the last list, that list is
// its state.
func (s *source) beginStream(stream history.Stream) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if stream.State == nil && s.lastList != nil && s.lastList.Revision == stream.FromRevision {
		stream.State = s.lastList
	}
	s.lastList = nil
	s.watch.Streams = append(s.watch.Streams, stream)
	s.deliveredRevision.Store(stream.Last())
}

// addEvent adds an event to the current stream. undo removes it.
func (s *source) addEvent(event history.Event) (undo func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := len(s.watch.Streams) - 1
	stream := &s.watch.Streams[n]
	stream.Events = append(stream.Events, event)
	s.deliveredRevision.Store(stream.Last())
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		stream := &s.watch.Streams[n]
		stream.Events = stream.Events[:len(stream.Events)-1]
	}
}

// endStream records the reason for which the stream that started at a time ended.
func (s *source) endStream(started time.Duration, reason string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range s.watch.Streams {
		if st := &s.watch.Streams[i]; st.Start == started {
			st.End, st.Ended = reason, s.now()
		}
	}
}

// recordError records a response that no fault explains.
func (s *source) recordError(err error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err == nil {
		s.err = fmt.Errorf("%s: %w", s.watch.Name, err)
	}
	return err
}

// waitForWatch waits until all streams have ended and returns the recorded watch.
func (s *source) waitForWatch() (*history.Watch, error) {
	s.running.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.watch, s.err
}

// recordedWatch is a watch that records events when its receiver accepts them.
type recordedWatch struct {
	recorder *source
	upstream watch.Interface
	events   chan watch.Event
	stopped  chan struct{}
	once     sync.Once

	// initial is the initial state while it is incomplete, else nil.
	initial *history.Read
	stream  history.Stream
}

// ResultChan implements watch.Interface.
func (t *recordedWatch) ResultChan() <-chan watch.Event { return t.events }

// Stop implements watch.Interface.
func (t *recordedWatch) Stop() {
	t.once.Do(func() {
		close(t.stopped)
		t.upstream.Stop()
	})
}

// run forwards events until the watch ends and records the reason.
func (t *recordedWatch) run() {
	defer close(t.events)
	defer t.upstream.Stop()
	reason := t.forward()
	if t.initial == nil {
		t.recorder.endStream(t.stream.Start, reason)
	}
}

// forward records and forwards events until the watch ends. It returns the reason of the end.
func (t *recordedWatch) forward() string {
	reason := "end of stream"
	for event := range t.upstream.ResultChan() {
		undo, err := t.recordEvent(event)
		if err != nil {
			return t.recorder.recordError(err).Error()
		}
		if event.Type == watch.Error {
			reason = apierrors.FromObject(event.Object).Error()
		}
		select {
		case t.events <- event:
		case <-t.stopped:
			undo()
			return "stopped"
		}
	}
	return reason
}

// recordEvent adds an event to the initial state or to the stream. undo removes an event that the
// receiver did not accept.
func (t *recordedWatch) recordEvent(received watch.Event) (undo func(), err error) {
	nothing := func() {}
	if received.Type == watch.Error {
		return nothing, nil
	}
	object, err := meta.Accessor(received.Object)
	if err != nil {
		return nil, err
	}
	at := t.recorder.now()
	event := history.Event{Time: at, Type: history.EventType(received.Type)}
	if received.Type == watch.Bookmark {
		event.Revision, err = parseRevision(object.GetResourceVersion())
	} else {
		event.Version, err = versionOf(t.recorder.watch.Selection.Resource, received.Object)
	}
	if err != nil {
		return nil, fmt.Errorf("%s event: %w", received.Type, err)
	}
	if t.initial == nil {
		return t.recorder.addEvent(event), nil
	}
	if received.Type == watch.Bookmark {
		if object.GetAnnotations()[metav1.InitialEventsAnnotationKey] != "true" {
			return nothing, nil
		}
		t.initial.Revision = event.Revision
		t.initial.End = at
		t.stream.State = t.initial
		t.stream.FromRevision = event.Revision
		t.initial = nil
		t.recorder.beginStream(t.stream)
		return nothing, nil
	}
	if event.Type != history.Added {
		return nil, fmt.Errorf("%s event of %s within the initial state", received.Type, event.Key)
	}
	t.initial.Items = append(t.initial.Items, event.Version)
	return nothing, nil
}
