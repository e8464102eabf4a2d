package controller

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/util/workqueue"

	"binnacle/libs/bootstraptoken"
	"binnacle/libs/reflector"
)

const (
	queueName = "token_cleaner" // label of the metrics of the queue
	component = "token-cleaner" // source of the Events
	workers   = 4
	// resync is the interval of checks of all tokens. The queue holds only tokens that are due
	// within horizon, which keeps it small and limits the effect of clock changes. horizon is more
	// than twice resync, because a check may be late.
	resync  = time.Hour
	horizon = 3 * resync
	// requestTimeout bounds one request.
	requestTimeout = 30 * time.Second
)

// Backoff of failed deletions.
const (
	minRetry = 100 * time.Millisecond
	maxRetry = time.Minute
)

// Secrets sends requests for the secrets in the namespace of bootstrap tokens.
type Secrets interface {
	List(ctx context.Context, o metav1.ListOptions) (*corev1.SecretList, error)
	Watch(ctx context.Context, o metav1.ListOptions) (watch.Interface, error)
	Delete(ctx context.Context, name string, o metav1.DeleteOptions) error
}

// Events sends requests for Events in the same namespace.
type Events interface {
	Create(ctx context.Context, e *corev1.Event, o metav1.CreateOptions) (*corev1.Event, error)
	Patch(ctx context.Context, name string, t types.PatchType, data []byte, o metav1.PatchOptions, subresources ...string) (*corev1.Event, error)
}

// Config configures a Controller.
type Config struct {
	Secrets Secrets
	Events  Events
	Log     *slog.Logger
	// Tolerance is how long after its expiration a secret is kept, to allow for clock differences.
	Tolerance time.Duration
	// Queues provides the metrics of the work queue; may be nil.
	Queues workqueue.MetricsProvider
}

// Controller deletes expired tokens.
type Controller struct {
	Config
	listing atomic.Bool // set while Run waits for the first list
}

// New returns an idle controller.
func New(c Config) *Controller { return &Controller{Config: c} }

// Check is a health check. It fails while Run waits for the first list.
func (c *Controller) Check(*http.Request) error {
	if c.listing.Load() {
		return fmt.Errorf("waiting for the bootstrap tokens in %s to be listed", bootstraptoken.Namespace)
	}
	return nil
}

// run is one run of a Controller.
type run struct {
	*Controller
	queue  workqueue.TypedRateLimitingInterface[string]
	store  *reflector.Store[entry]
	events *eventLog
}

// Run works until ctx ends, and returns when all its goroutines have ended.
func (c *Controller) Run(ctx context.Context) error {
	// 1. Create the queue, and the store that schedules deletions when a secret changes.
	c.listing.Store(true)
	defer c.listing.Store(false)
	state := &run{
		Controller: c,
		events:     newEventLog(c.Events, c.Log),
		queue: workqueue.NewTypedRateLimitingQueueWithConfig(
			workqueue.NewTypedItemExponentialFailureRateLimiter[string](minRetry, maxRetry),
			workqueue.TypedRateLimitingQueueConfig[string]{Name: queueName, MetricsProvider: c.Queues},
		),
	}
	state.store = reflector.NewStore(newEntry, state.handleChange)

	// 2. Follow the secrets, and wait until they are listed.
	secrets := c.newReflector(state.store)
	var group sync.WaitGroup
	defer group.Wait()
	defer state.queue.ShutDown()
	group.Go(func() { _ = secrets.Run(ctx) }) // ends with ctx
	select {
	case <-secrets.InitialListDone():
	case <-ctx.Done():
		return ctx.Err()
	}

	// 3. Process the queue.
	c.listing.Store(false)
	c.Log.Debug("following bootstrap tokens", "secrets", len(state.store.All()))
	for range workers {
		group.Go(func() {
			for state.processNext(ctx) {
			}
		})
	}

	// 4. Check all tokens periodically, also those that were not due within horizon before.
	check := time.NewTicker(resync)
	defer check.Stop()
	for {
		select {
		case <-check.C:
			for _, e := range state.store.All() {
				state.scheduleDeletion(&e)
			}
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// handleChange handles a new or changed secret. It schedules the deletion, or the report of a
// malformed expiration if that is new.
func (r *run) handleChange(before, after *entry) {
	switch {
	case after == nil:
		r.events.forget(before)
	case after.malformed && (before == nil || *before != *after):
		r.events.requestWrite(after)
		r.queue.Add(after.name)
	default:
		r.scheduleDeletion(after)
	}
}

// scheduleDeletion queues a secret for its deletion time if that is within horizon. A secret without
// an expiration, or with a malformed one, has no deletion time.
func (r *run) scheduleDeletion(queued *entry) {
	due, ok := queued.deletionTime(r.Tolerance)
	if !ok {
		return
	}
	wait := time.Until(due)
	if wait <= horizon {
		r.queue.AddAfter(queued.name, wait)
	}
}

// processNext processes one name. It returns false when the queue has shut down.
func (r *run) processNext(ctx context.Context) bool {
	name, shutdown := r.queue.Get()
	if shutdown {
		return false
	}
	defer r.queue.Done(name)
	if ctx.Err() != nil {
		return true // the rest of the queue is dropped
	}
	if err := r.deleteIfDue(ctx, name); err != nil {
		if !errors.Is(err, context.Canceled) {
			r.Log.Warn("failed to process a bootstrap token; retrying", "secret", name, "error", err)
		}
		r.queue.AddRateLimited(name)
		return true
	}
	r.queue.Forget(name)
	return true
}

// deleteIfDue deletes a secret if its time has come, or reports a malformed expiration.
func (r *run) deleteIfDue(ctx context.Context, name string) error {
	entry, ok := r.store.Get(bootstraptoken.Namespace, name)
	if !ok {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	if entry.malformed {
		return r.events.writePending(ctx, &entry)
	}
	due, ok := entry.deletionTime(r.Tolerance)
	if !ok {
		return nil
	}
	// time.Until would not notice a clock that was set back.
	if time.Now().Round(0).Before(due) {
		r.scheduleDeletion(&entry)
		return nil
	}
	uid := types.UID(entry.uid)
	err := r.Secrets.Delete(ctx, name, metav1.DeleteOptions{
		Preconditions: &metav1.Preconditions{UID: &uid, ResourceVersion: &entry.resourceVersion},
	})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return err
	}
	r.Log.Info("deleted an expired bootstrap token", "secret", name)
	return nil
}
