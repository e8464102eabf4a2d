package quotas

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"

	"binnacle/libs/quota"
	"binnacle/services/controllers/internal/resources"
	"binnacle/services/controllers/internal/workers"
)

// Name is the name of the controller in --controllers.
const Name = "resourcequota-controller"

// Counter provides the numbers of objects.
type Counter interface {
	// Count returns the number of objects of a resource in a namespace, and false if the resource
	// is not served. It fails if the resource is not listed yet.
	Count(r schema.GroupResource, namespace string) (n int, served bool, err error)
}

// informerResync is the interval at which informers repeat all objects to their handlers.
const informerResync = 12 * time.Hour

// unservedRetry is the time after which a quota of a resource that is not served is due again.
const unservedRetry = 30 * time.Second

// Config configures a Controller.
type Config struct {
	Clients   Clients
	Resources *resources.Cache
	Counts    Counter
	Gates     quota.Gates
	Log       *slog.Logger
	// Queues provides the metrics of the work queues; may be nil.
	Queues workqueue.MetricsProvider
	// Workers is the number of workers of each queue.
	Workers int
	// Resync is the interval at which all quotas are computed again.
	Resync time.Duration
}

// namespacedResource is a resource in a namespace.
type namespacedResource struct {
	resource  schema.GroupResource
	namespace string
}

// queue is a work queue of quotas.
type queue = workqueue.TypedRateLimitingInterface[cache.ObjectName]

// Controller computes quotas. It is used once.
type Controller struct {
	Config
	evaluators map[schema.GroupResource]*quota.Evaluator
	quotas     cache.SharedIndexInformer
	// recomputeQueue holds quotas with a complete status.
	recomputeQueue queue
	// incompleteQueue holds quotas without a complete status.
	incompleteQueue queue
	// releasedQueue holds resources whose usage may have decreased.
	releasedQueue workqueue.TypedRateLimitingInterface[namespacedResource]
}

// New returns an idle controller.
func New(config Config) *Controller {
	named := func(name string) queue {
		return workers.NewQueue(workers.QueueConfig[cache.ObjectName]{
			Name: name, Metrics: config.Queues, Workers: config.Workers, Namespace: func(n cache.ObjectName) string { return n.Namespace },
		})
	}
	return &Controller{
		Config: config, evaluators: quota.Evaluators(config.Gates, time.Now),
		quotas: workers.NewInformer(config.Clients.Quotas(metav1.NamespaceAll), &corev1.ResourceQuota{}, "",
			informerResync, cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc}),
		recomputeQueue: named("resourcequota_primary"), incompleteQueue: named("resourcequota_priority"),
		releasedQueue: workers.NewQueue(workers.QueueConfig[namespacedResource]{
			Name:      "resource_quota_controller_resource_changes",
			Metrics:   config.Queues,
			Workers:   1,
			Namespace: func(p namespacedResource) string { return p.namespace },
		}),
	}
}

// Changed reports that an object has changed or was deleted. It does not block. Changes of most
// resources do not affect usage.
func (c *Controller) Changed(resource *resources.Resource, namespace string, deleted bool) {
	if namespace == "" {
		return
	}
	if deleted || c.changeReleasesUsage(resource.GroupResource()) {
		c.releasedQueue.Add(namespacedResource{resource.GroupResource(), namespace})
	}
}

// changeReleasesUsage reports whether a change of an object can reduce its usage. The usage of
// uniform resources is constant. Pods release usage when they end, which newTerminalPodInformer
// follows.
func (c *Controller) changeReleasesUsage(r schema.GroupResource) bool {
	e := c.evaluators[r]
	return e != nil && !e.Uniform && r != podsResource()
}

// Run works until ctx ends, and returns when its goroutines have ended. listed is closed once
// Counter is complete.
func (c *Controller) Run(ctx context.Context, listed <-chan struct{}) error {
	// 1. Register the event handlers.
	for _, q := range []interface{ ShutDown() }{c.recomputeQueue, c.incompleteQueue, c.releasedQueue} {
		defer q.ShutDown()
	}
	if err := c.quotas.SetTransform(workers.StripMetadata); err != nil {
		return err
	}
	handler, err := c.quotas.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: func(obj any) { c.enqueueChanged(nil, obj) },
		// The status is written by this controller and by API servers.
		UpdateFunc: c.enqueueChanged,
	})
	if err != nil {
		return err
	}
	ended, err := c.newTerminalPodInformer()
	if err != nil {
		return err
	}

	// 2. Start the informers, and wait until quotas and counts are complete.
	var group sync.WaitGroup
	defer group.Wait()
	group.Go(func() { c.quotas.RunWithContext(ctx) })
	group.Go(func() { ended.RunWithContext(ctx) })
	select {
	case <-ctx.Done():
		return nil
	case <-listed:
	}
	if !cache.WaitForCacheSync(ctx.Done(), handler.HasSynced) {
		return nil
	}

	// 3. Process the queues.
	for _, q := range []queue{c.incompleteQueue, c.recomputeQueue} {
		group.Go(func() {
			workers.Run(ctx, workers.Config[cache.ObjectName]{Name: Name, Queue: q, Count: c.Workers, Log: c.Log, Sync: c.sync})
		})
	}
	group.Go(func() {
		workers.Run(ctx, workers.Config[namespacedResource]{
			Name:  Name,
			Queue: c.releasedQueue,
			Count: 1,
			Log:   c.Log,
			Sync:  c.enqueueForResource,
		})
	})
	c.enqueueAllPeriodically(ctx)
	return nil
}

// enqueueAllPeriodically queues all quotas periodically.
func (c *Controller) enqueueAllPeriodically(ctx context.Context) {
	ticker := time.NewTicker(c.Resync)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		for _, obj := range c.quotas.GetStore().List() {
			if q, ok := obj.(*corev1.ResourceQuota); ok {
				c.enqueue(q)
			}
		}
	}
}

// newTerminalPodInformer returns an informer of the pods that have ended. A pod that appears
// releases usage.
func (c *Controller) newTerminalPodInformer() (cache.SharedIndexInformer, error) {
	const terminal = "status.phase!=Pending,status.phase!=Running,status.phase!=Unknown"
	informer := workers.NewInformer(c.Clients.Pods(metav1.NamespaceAll), &corev1.Pod{}, terminal, informerResync,
		cache.Indexers{})
	if err := informer.SetTransform(stripPod); err != nil {
		return nil, err
	}
	_, err := informer.AddEventHandler(cache.ResourceEventHandlerDetailedFuncs{AddFunc: func(obj any, initial bool) {
		if p, ok := obj.(*corev1.Pod); ok && !initial {
			c.releasedQueue.Add(namespacedResource{podsResource(), p.Namespace})
		}
	}})
	return informer, err
}

// stripPod is a transform function. It keeps the identity of a pod.
func stripPod(obj any) (any, error) {
	pod, ok := obj.(*corev1.Pod)
	if !ok {
		return obj, nil
	}
	stripped := &corev1.Pod{}
	stripped.Namespace = pod.Namespace
	stripped.Name = pod.Name
	stripped.UID = pod.UID
	stripped.ResourceVersion = pod.ResourceVersion
	return stripped, nil
}

// enqueueChanged queues a quota that is new or whose specification has changed.
func (c *Controller) enqueueChanged(before, obj any) {
	quota, ok := obj.(*corev1.ResourceQuota)
	if !ok {
		return
	}
	if old, ok := before.(*corev1.ResourceQuota); ok && equality.Semantic.DeepEqual(old.Spec, quota.Spec) {
		return
	}
	c.enqueue(quota)
}

// enqueue queues a quota. A quota whose status lacks limits or usage goes to the incompleteQueue,
// because API servers reject requests until its status is complete.
func (c *Controller) enqueue(quota *corev1.ResourceQuota) {
	target := c.recomputeQueue
	if !equality.Semantic.DeepEqual(quota.Spec.Hard, quota.Status.Hard) {
		target = c.incompleteQueue
	}
	for name := range quota.Status.Hard {
		if _, ok := quota.Status.Used[name]; !ok && c.computesUsage(name) {
			target = c.incompleteQueue
		}
	}
	target.Add(cache.MetaObjectToName(quota))
}

// enqueueForResource queues the quotas of a namespace that limit a resource.
func (c *Controller) enqueueForResource(_ context.Context, p namespacedResource) error {
	objs, err := c.quotas.GetIndexer().ByIndex(cache.NamespaceIndex, p.namespace)
	if err != nil {
		return err
	}
	e := c.evaluatorFor(p.resource)
	for _, obj := range objs {
		if q, ok := obj.(*corev1.ResourceQuota); ok && len(quota.SelectNames(q.Status.Hard, e.MatchesResource)) > 0 {
			c.enqueue(q)
		}
	}
	return nil
}

// sync computes a quota and writes its status if it has changed.
func (c *Controller) sync(ctx context.Context, name cache.ObjectName) error {
	obj, ok, err := c.quotas.GetStore().GetByKey(name.String())
	if err != nil || !ok {
		return err
	}
	resourceQuota, ok := obj.(*corev1.ResourceQuota)
	if !ok {
		return nil
	}
	// 1. Compute the usage. Names whose usage cannot be computed keep the known usage.
	usage, complete, errs := c.totalUsage(ctx, resourceQuota)
	if !complete {
		defer c.recomputeQueue.AddAfter(name, unservedRetry)
	}
	used := quota.FilterNames(quota.Plus(nil, resourceQuota.Status.Used), resourceQuota.Spec.Hard)
	for name, amount := range usage {
		used[name] = amount
	}

	// 2. Write the status if it differs. DeepEqual takes nil for empty, but a status without fields
	// must be written.
	hasStatus := resourceQuota.Status.Hard != nil && resourceQuota.Status.Used != nil
	if hasStatus && equality.Semantic.DeepEqual(resourceQuota.Spec.Hard, resourceQuota.Status.Hard) &&
		equality.Semantic.DeepEqual(used, resourceQuota.Status.Used) {
		return errors.Join(errs...)
	}
	resourceQuota = resourceQuota.DeepCopy()
	resourceQuota.Status = corev1.ResourceQuotaStatus{Hard: quota.Plus(nil, resourceQuota.Spec.Hard), Used: used}
	_, err = c.Clients.Status(resourceQuota.Namespace).UpdateStatus(ctx, resourceQuota, metav1.UpdateOptions{})
	if apierrors.IsNotFound(err) {
		err = nil
	}
	return errors.Join(append(errs, err)...)
}
