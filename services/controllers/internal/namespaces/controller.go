package namespaces

import (
	"context"
	"log/slog"
	"time"

	"golang.org/x/time/rate"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/retry"
	"k8s.io/client-go/util/workqueue"

	"binnacle/libs/kubeclient"
	"binnacle/services/controllers/internal/resources"
	"binnacle/services/controllers/internal/workers"
)

// Name is the name of the controller in --controllers.
const Name = "namespace-controller"

const (
	// gracePeriod is how long a deletion is delayed, so that every API server has noticed that
	// the namespace is terminating.
	gracePeriod = 5 * time.Second
	// tableAge is less than gracePeriod, so a table is newer than the deletion of the namespace.
	tableAge = 2 * time.Second
	// minRetry and maxRetry bound the delay before a failed namespace is retried.
	minRetry = 5 * time.Millisecond
	maxRetry = time.Minute
	// retriesPerSec and maxRetriesBurst limit the retries of all namespaces together.
	retriesPerSec   = 10
	maxRetriesBurst = 100
)

// Client reads and writes namespaces.
type Client interface {
	Get(ctx context.Context, name string, o metav1.GetOptions) (*corev1.Namespace, error)
	UpdateSubresource(ctx context.Context, ns *corev1.Namespace, subresource string, o metav1.UpdateOptions) (*corev1.Namespace, error)
}

// Config configures a Controller.
type Config struct {
	Client    Client
	Pods      kubeclient.Namespaced[*corev1.Pod, *corev1.PodList]
	Metadata  metadata.Interface
	Resources *resources.Cache
	// Namespaces is started and stopped by the caller.
	Namespaces cache.SharedIndexInformer
	Log        *slog.Logger
	// Queues provides the metrics of the work queue; may be nil.
	Queues  workqueue.MetricsProvider
	Workers int
}

// Controller deletes namespaces. It is used once.
type Controller struct {
	Config
	queue workqueue.TypedRateLimitingInterface[string]
}

// New returns an idle controller.
func New(c Config) *Controller {
	limiter := workqueue.NewTypedMaxOfRateLimiter(
		workqueue.NewTypedItemExponentialFailureRateLimiter[string](minRetry, maxRetry),
		&workqueue.TypedBucketRateLimiter[string]{Limiter: rate.NewLimiter(retriesPerSec, maxRetriesBurst)})
	queue := workqueue.NewTypedRateLimitingQueueWithConfig(limiter,
		workqueue.TypedRateLimitingQueueConfig[string]{Name: "namespace", MetricsProvider: c.Queues})
	return &Controller{Config: c, queue: queue}
}

// Run works until ctx ends.
func (c *Controller) Run(ctx context.Context) error {
	defer c.queue.ShutDown()
	registered, err := c.Namespaces.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    c.enqueueTerminating,
		UpdateFunc: func(_, obj any) { c.enqueueTerminating(obj) },
	})
	if err != nil {
		return err
	}
	if cache.WaitForCacheSync(ctx.Done(), registered.HasSynced) {
		workers.Run(ctx, workers.Config[string]{Name: Name, Queue: c.queue, Count: c.Workers, Log: c.Log, Sync: c.sync})
	}
	return c.Namespaces.RemoveEventHandler(registered)
}

// enqueueTerminating queues a terminating namespace.
func (c *Controller) enqueueTerminating(obj any) {
	if ns, ok := obj.(*corev1.Namespace); ok && ns.DeletionTimestamp != nil {
		c.queue.AddAfter(ns.Name, gracePeriod)
	}
}

// sync deletes the content of a namespace and finalizes it if nothing remains.
func (c *Controller) sync(ctx context.Context, name string) error {
	// 1. Read the namespace, and set its phase.
	namespace, err := c.Client.Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return err
	}
	if namespace.DeletionTimestamp == nil {
		return nil
	}
	namespace, err = c.updateWithRetry(ctx, namespace, func(namespace *corev1.Namespace) (*corev1.Namespace, error) {
		if namespace.Status.Phase == corev1.NamespaceTerminating {
			return namespace, nil
		}
		namespace.Status.Phase = corev1.NamespaceTerminating
		return c.Client.UpdateSubresource(ctx, namespace, "status", metav1.UpdateOptions{})
	})
	if err != nil || namespace == nil || len(namespace.Spec.Finalizers) == 0 {
		return err
	}

	// 2. Delete the content. If some remains, come back after half of its estimated time.
	estimate, err := c.deleteContent(ctx, namespace)
	if err != nil {
		return err
	}
	if estimate > 0 {
		return &workers.RequeueAfter{
			After:  time.Duration(estimate/2+1) * time.Second,
			Reason: "some content remains in the namespace " + name,
		}
	}

	// 3. Finalize the empty namespace.
	_, err = c.updateWithRetry(ctx, namespace, func(namespace *corev1.Namespace) (*corev1.Namespace, error) {
		return c.removeFinalizer(ctx, namespace)
	})
	return err
}

// updateWithRetry applies change to a namespace, again after conflicts. It returns nil if the
// namespace does not exist any more.
func (c *Controller) updateWithRetry(ctx context.Context, namespace *corev1.Namespace,
	change func(*corev1.Namespace) (*corev1.Namespace, error)) (*corev1.Namespace, error) {
	uid := namespace.UID
	err := retry.RetryOnConflict(retry.DefaultRetry, func() error {
		changed, err := change(namespace.DeepCopy())
		if err == nil {
			namespace = changed
			return nil
		}
		if !apierrors.IsConflict(err) {
			return err
		}
		latest, getErr := c.Client.Get(ctx, namespace.Name, metav1.GetOptions{})
		if getErr != nil {
			return getErr
		}
		if latest.UID != uid {
			return apierrors.NewNotFound(corev1.Resource("namespaces"), namespace.Name)
		}
		namespace = latest
		return err
	})
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	return namespace, err
}

// removeFinalizer removes the finalizer of this controller.
func (c *Controller) removeFinalizer(ctx context.Context, namespace *corev1.Namespace) (*corev1.Namespace, error) {
	finalizers := []corev1.FinalizerName{}
	for _, f := range namespace.Spec.Finalizers {
		if f != corev1.FinalizerKubernetes {
			finalizers = append(finalizers, f)
		}
	}
	namespace.Spec.Finalizers = finalizers
	return c.Client.UpdateSubresource(ctx, namespace, "finalize", metav1.UpdateOptions{})
}
