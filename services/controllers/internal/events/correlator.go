package events

import (
	"fmt"
	"time"

	"github.com/hashicorp/golang-lru/v2/simplelru"
	"golang.org/x/time/rate"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/apimachinery/pkg/util/validation"
)

// The limits of client-go's recorder.
const (
	// maxKnown is the number of subjects, and of Events, that are remembered.
	maxKnown = 4096
	// From the maxSimilar-th message about a subject on, new messages share one Event. The messages
	// are forgotten after similarWindow without an Event.
	maxSimilar     = 10
	similarWindow  = 10 * time.Minute
	combinedPrefix = "(combined from similar events): "
	// A subject has subjectBurst Events, and another one each subjectInterval.
	subjectBurst    = 25
	subjectInterval = 5 * time.Minute
)

// correlator turns occurrences into Events. One goroutine uses it.
type correlator struct {
	subjects      *simplelru.LRU[subject, *subjectState]
	writtenEvents *simplelru.LRU[occurrence, *corev1.Event]
}

// subjectState holds the recent messages about a subject, and the limit of its Events.
type subjectState struct {
	messages map[string]struct{}
	last     time.Time
	limit    *rate.Limiter
}

func newCorrelator() *correlator {
	return &correlator{
		subjects: newLRU[subject, *subjectState](), writtenEvents: newLRU[occurrence, *corev1.Event](),
	}
}

func newLRU[K comparable, V any]() *simplelru.LRU[K, V] {
	l, err := simplelru.NewLRU[K, V](maxKnown, nil)
	if err != nil { // only for a size that is not positive
		panic(err)
	}
	return l
}

// correlate returns the Event to write, or nil if the subject has too many. The count of an Event
// that exists is greater than one.
func (c *correlator) correlate(seen occurrence, now time.Time) *corev1.Event {
	state, ok := c.subjects.Get(seen.subject)
	if !ok {
		state = &subjectState{limit: rate.NewLimiter(rate.Every(subjectInterval), subjectBurst)}
		c.subjects.Add(seen.subject, state)
	}
	key, message := seen, seen.message
	if state.addMessage(seen.message, now) {
		// All combined messages about a subject have one key, so they share one Event.
		key.message, message = combinedPrefix, combinedPrefix+seen.message
	}
	event, ok := c.writtenEvents.Get(key)
	if !ok {
		event = newEvent(seen.subject, now)
		c.writtenEvents.Add(key, event)
	}
	event.Count++
	event.LastTimestamp, event.Message = metav1.NewTime(now), message
	// An occurrence beyond the limit is counted, and becomes visible with the next written one.
	if !state.limit.AllowN(now, 1) {
		return nil
	}
	return event.DeepCopy()
}

// addMessage records a message, and reports whether it shares an Event with others.
func (s *subjectState) addMessage(message string, now time.Time) bool {
	if s.messages == nil || now.Sub(s.last) > similarWindow {
		s.messages = map[string]struct{}{}
	}
	s.last = now
	if _, ok := s.messages[message]; ok {
		return false
	}
	if len(s.messages) == maxSimilar-1 {
		return true
	}
	s.messages[message] = struct{}{}
	return false
}

// newEvent returns an Event that has not occurred yet.
func newEvent(about subject, now time.Time) *corev1.Event {
	event := &corev1.Event{
		InvolvedObject: about.about, Reason: about.reason, Type: corev1.EventTypeWarning,
		FirstTimestamp: metav1.NewTime(now),
	}
	event.Namespace = about.about.Namespace
	if event.Namespace == "" {
		event.Namespace = metav1.NamespaceDefault
	}
	// The names of some objects are not valid in the name of an Event.
	event.Name = fmt.Sprintf("%s.%x", about.about.Name, now.UnixNano())
	if len(validation.IsDNS1123Subdomain(event.Name)) > 0 {
		event.Name = string(uuid.NewUUID())
	}
	return event
}
