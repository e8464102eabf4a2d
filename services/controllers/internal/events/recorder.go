// Package events writes the Events of controllers, with the limits of client-go's recorder: an
// Event that repeats is counted, many similar ones become one, and an object has few of them.
//
// A controller calls Warn, which does not block. One goroutine writes. Package app runs a Recorder
// on the leader.
package events

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"binnacle/libs/kubeclient"
)

const (
	// queueLength is the number of Events that wait. Further ones are dropped.
	queueLength = 1000
	// maxTries is the number of attempts to write an Event while the API server does not respond.
	maxTries = 12
	// retryPause is the time between attempts. The first pause is random and shorter.
	retryPause = 10 * time.Second
	// requestTimeout bounds one request.
	requestTimeout = 30 * time.Second
)

// Config configures a Recorder.
type Config struct {
	Client kubeclient.Namespaced[*corev1.Event, *corev1.EventList]
	// Component is the source of the Events.
	Component string
	Log       *slog.Logger
}

// Recorder writes Events. Warn is safe for concurrent use.
type Recorder struct {
	Config
	queue chan occurrence
}

// occurrence is a call of Warn.
type occurrence struct {
	subject
	message string
}

// subject is an object, and the reason of its Events.
type subject struct {
	about  corev1.ObjectReference
	reason string
}

// New returns a recorder, which writes while Run runs.
func New(c Config) *Recorder {
	return &Recorder{Config: c, queue: make(chan occurrence, queueLength)}
}

// Warn records a warning about an object. It drops the Event if too many wait.
func (r *Recorder) Warn(about corev1.ObjectReference, reason, message string) {
	select {
	case r.queue <- occurrence{subject{about, reason}, message}:
	default:
		r.Log.Error("event dropped, too many events wait to be written",
			"kind", about.Kind, "namespace", about.Namespace, "name", about.Name, "reason", reason)
	}
}

// Run writes Events until ctx ends. Events that still wait are dropped.
func (r *Recorder) Run(ctx context.Context) {
	c := newCorrelator()
	for {
		select {
		case <-ctx.Done():
			return
		case o := <-r.queue:
			if event := c.correlate(o, time.Now()); event != nil {
				event.Source = corev1.EventSource{Component: r.Component}
				event.ReportingController = r.Component
				r.writeWithRetry(ctx, event)
			}
		}
	}
}

// writeWithRetry writes an Event, again while the API server does not respond.
func (r *Recorder) writeWithRetry(ctx context.Context, event *corev1.Event) {
	for try := 1; ; try++ {
		err := r.createOrPatch(ctx, event)
		log := r.Log.With("namespace", event.Namespace, "event", event.Name, "error", err)
		var rejected apierrors.APIStatus
		var unsendable *rest.RequestConstructionError
		switch {
		case err == nil:
			return
		case apierrors.IsAlreadyExists(err),
			apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
			log.Debug("the API server rejected an event")
			return
		case errors.As(err, &rejected):
			log.Error("the API server rejected an event")
			return
		case errors.As(err, &unsendable), try == maxTries:
			log.Error("event not written")
			return
		}
		log.Warn("failed to write an event; retrying")
		pause := retryPause
		if try == 1 {
			pause = rand.N(retryPause)
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(pause):
		}
	}
}

// createOrPatch creates an Event, or counts another occurrence of one that exists.
func (r *Recorder) createOrPatch(ctx context.Context, event *corev1.Event) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	client := r.Client(event.Namespace)
	if event.Count > 1 {
		data, err := json.Marshal(map[string]any{
			"count": event.Count, "lastTimestamp": event.LastTimestamp, "message": event.Message,
		})
		if err != nil {
			return fmt.Errorf("encode the patch: %w", err)
		}
		_, err = client.Patch(ctx, event.Name, types.MergePatchType, data, metav1.PatchOptions{})
		if !apierrors.IsNotFound(err) { // Events expire
			return err
		}
	}
	_, err := client.Create(ctx, event, metav1.CreateOptions{})
	return err
}
