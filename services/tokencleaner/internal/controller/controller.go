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
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
	"k8s.io/client-go/util/workqueue"

	"binnacle/libs/bootstraptoken"
)

const (
	queueName = "token_cleaner"
	component = "token-cleaner"
	workers   = 4
	// resync is the interval of checks of all tokens. Tokens that are due within horizon wait in
	// the queue. horizon is more than twice resync, because an informer may skip one. So deleted
	// names and clock changes have a limited effect, and the queue stays small.
	resync  = time.Hour
	horizon = 3 * resync
	// deleteTimeout bounds one request.
	deleteTimeout = 30 * time.Second
	// reasonUnreadable is the reason of the Event.
	reasonUnreadable = "InvalidExpiration"
)

// Backoff of failed deletions.
const (
	firstRetry = 100 * time.Millisecond
	lastRetry  = time.Minute
)

// Config configures a Controller.
type Config struct {
	Client kubernetes.Interface
	Log    *slog.Logger
	// Tolerance is how long after its expiration a secret is kept, to allow for clock differences.
	Tolerance time.Duration
	// Queues provides the metrics of the work queue; may be nil.
	Queues workqueue.MetricsProvider
}

// Controller deletes expired tokens.
type Controller struct {
	Config
	listing atomic.Bool
}

// New returns an idle controller.
func New(c Config) *Controller { return &Controller{Config: c} }

// Check is a health check. It fails with the reason for waiting.
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
	store  cache.Store
	events record.EventRecorder
}

// Run works until ctx ends, and returns when all its goroutines have ended.
func (c *Controller) Run(ctx context.Context) error {
	informer, err := newInformer(c.Client)
	if err != nil {
		return err
	}
	c.listing.Store(true)
	defer c.listing.Store(false)
	r := &run{Controller: c, store: informer.GetStore(), queue: workqueue.NewTypedRateLimitingQueueWithConfig(
		workqueue.NewTypedItemExponentialFailureRateLimiter[string](firstRetry, lastRetry),
		workqueue.TypedRateLimitingQueueConfig[string]{Name: queueName, MetricsProvider: c.Queues})}

	broadcaster := record.NewBroadcaster(record.WithContext(ctx))
	defer broadcaster.Shutdown()
	broadcaster.StartRecordingToSink(&corev1client.EventSinkImpl{Interface: c.Client.CoreV1().Events(bootstraptoken.Namespace)})
	r.events = broadcaster.NewRecorder(scheme.Scheme, corev1.EventSource{Component: component})

	registered, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(obj any) { r.see(nil, obj) },
		UpdateFunc: r.see,
	})
	if err != nil {
		return fmt.Errorf("follow bootstrap tokens: %w", err)
	}
	var group sync.WaitGroup
	defer group.Wait()
	defer r.queue.ShutDown()
	group.Go(func() { informer.RunWithContext(ctx) })
	if !cache.WaitForCacheSync(ctx.Done(), registered.HasSynced) {
		return ctx.Err()
	}
	c.listing.Store(false)
	c.Log.Debug("following bootstrap tokens", "secrets", len(r.store.ListKeys()))
	for range workers {
		group.Go(func() {
			for r.next(ctx) {
			}
		})
	}
	<-ctx.Done()
	return ctx.Err()
}

// see handles a new, changed or resynced secret. It schedules the deletion, or reports an
// unreadable expiration if that is new.
func (r *run) see(before, obj any) {
	e, ok := obj.(*entry)
	if !ok {
		return
	}
	if old, ok := before.(*entry); e.unreadable && (!ok || *old != *e) {
		r.events.Event(e.reference(), corev1.EventTypeWarning, reasonUnreadable,
			"The expiration of this bootstrap token is not a time of RFC 3339; the token is not deleted.")
	}
	r.plan(e)
}

// plan queues a secret for its deletion time if that is within horizon.
func (r *run) plan(e *entry) {
	due, ok := e.due(r.Tolerance)
	if wait := time.Until(due); ok && wait <= horizon {
		r.queue.AddAfter(e.name, wait)
	}
}

// reference returns the object of an Event.
func (e *entry) reference() *corev1.ObjectReference {
	return &corev1.ObjectReference{
		APIVersion: "v1", Kind: "Secret", Namespace: bootstraptoken.Namespace, Name: e.name,
		UID: types.UID(e.uid), ResourceVersion: e.resourceVersion,
	}
}

// next processes one name. It returns false when the queue has shut down.
func (r *run) next(ctx context.Context) bool {
	name, shutdown := r.queue.Get()
	if shutdown {
		return false
	}
	defer r.queue.Done(name)
	if ctx.Err() != nil {
		return true // the rest of the queue is dropped
	}
	if err := r.clean(ctx, name); err != nil {
		if !errors.Is(err, context.Canceled) {
			r.Log.Warn("deleting an expired bootstrap token failed, trying again", "secret", name, "error", err)
		}
		r.queue.AddRateLimited(name)
		return true
	}
	r.queue.Forget(name)
	return true
}

// clean deletes a secret if its time has come.
func (r *run) clean(ctx context.Context, name string) error {
	obj, ok, err := r.store.GetByKey(bootstraptoken.Namespace + "/" + name)
	if err != nil || !ok {
		return err
	}
	e, ok := obj.(*entry)
	if !ok {
		return fmt.Errorf("a %T in the store", obj)
	}
	due, ok := e.due(r.Tolerance)
	if !ok {
		return nil
	}
	// time.Until would not notice a clock that was set back.
	if time.Now().Round(0).Before(due) {
		r.plan(e)
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, deleteTimeout)
	defer cancel()
	uid := types.UID(e.uid)
	err = r.Client.CoreV1().Secrets(bootstraptoken.Namespace).Delete(ctx, name, metav1.DeleteOptions{
		Preconditions: &metav1.Preconditions{UID: &uid, ResourceVersion: &e.resourceVersion},
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
