package controller

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"binnacle/libs/bootstraptoken"
)

const (
	malformedReason  = "InvalidExpiration"
	malformedMessage = "The expiration of this bootstrap token is not a time of RFC 3339; the token is not deleted."
)

// eventLog writes the Events of malformed expirations: one for each secret, with a count, as
// client-go's recorder does.
type eventLog struct {
	client Events
	log    *slog.Logger

	mu     sync.Mutex // leaf lock
	events map[string]*event
}

// event is the Event of a secret.
type event struct {
	name    string // empty before it is created
	count   int32
	pending bool // its next occurrence has not been written
}

func newEventLog(client Events, log *slog.Logger) *eventLog {
	return &eventLog{client: client, log: log, events: map[string]*event{}}
}

// requestWrite requests a write of the Event of a secret.
func (l *eventLog) requestWrite(queued *entry) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.events[queued.uid] == nil {
		l.events[queued.uid] = &event{}
	}
	l.events[queued.uid].pending = true
}

// forget drops the Event of a removed secret.
func (l *eventLog) forget(queued *entry) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.events, queued.uid)
}

// nextOccurrence returns the Event of a secret with its next count, and false if no write is
// pending.
func (l *eventLog) nextOccurrence(queued *entry) (event, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	known := l.events[queued.uid]
	if known == nil || !known.pending {
		return event{}, false
	}
	return event{name: known.name, count: known.count + 1}, true
}

// recordWritten records the Event that was written; it is no longer pending.
func (l *eventLog) recordWritten(queued *entry, now event) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.events[queued.uid] != nil {
		l.events[queued.uid] = &now
	}
}

// writePending writes the Event of a secret if a write is pending. An Event that the API server
// rejects is not written again.
func (l *eventLog) writePending(ctx context.Context, queued *entry) error {
	next, ok := l.nextOccurrence(queued)
	if !ok {
		return nil
	}
	now := metav1.Now()
	err := l.patchEvent(ctx, next, now)
	if next.name == "" || apierrors.IsNotFound(err) {
		next = event{name: fmt.Sprintf("%s.%x", queued.name, now.UnixNano()), count: 1}
		_, err = l.client.Create(ctx, next.newObject(queued, now), metav1.CreateOptions{})
	}
	var rejected apierrors.APIStatus
	if errors.As(err, &rejected) {
		l.log.Warn("the API server rejected an event", "secret", queued.name, "error", err)
		next, err = event{}, nil
	}
	if err == nil {
		l.recordWritten(queued, next)
	}
	return err
}

// patchEvent adds an occurrence to an Event that exists.
func (l *eventLog) patchEvent(ctx context.Context, pending event, now metav1.Time) error {
	if pending.name == "" {
		return nil
	}
	data, err := json.Marshal(map[string]any{"count": pending.count, "lastTimestamp": now.UTC().Format(time.RFC3339)})
	if err != nil {
		return err
	}
	_, err = l.client.Patch(ctx, pending.name, types.MergePatchType, data, metav1.PatchOptions{})
	return err
}

// newObject returns the first occurrence of an Event.
func (e event) newObject(about *entry, now metav1.Time) *corev1.Event {
	return &corev1.Event{
		ObjectMeta: metav1.ObjectMeta{Namespace: bootstraptoken.Namespace, Name: e.name},
		InvolvedObject: corev1.ObjectReference{
			APIVersion: "v1", Kind: "Secret", Namespace: bootstraptoken.Namespace, Name: about.name,
			UID: types.UID(about.uid), ResourceVersion: about.resourceVersion,
		},
		Type: corev1.EventTypeWarning, Reason: malformedReason, Message: malformedMessage,
		Source: corev1.EventSource{Component: component}, ReportingController: component,
		FirstTimestamp: now, LastTimestamp: now, Count: e.count,
	}
}
