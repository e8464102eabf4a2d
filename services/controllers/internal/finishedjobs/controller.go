// Package finishedjobs deletes finished jobs after the time to live that they set
// (ttlSecondsAfterFinished).
//
// An informer keeps only the identity and the expiration of jobs that have one. A job is due at its
// expiration. It is read again, and deleted with its dependents under the condition that it is
// unchanged.
//
// Package app runs a Controller on the leader.
package finishedjobs

import (
	"context"
	"log/slog"
	"sync"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"

	"binnacle/libs/kubeclient"
	"binnacle/services/controllers/internal/workers"
)

// Name is the name of the controller in --controllers.
const Name = "ttl-after-finished-controller"

const (
	// workerCount is the number of workers.
	workerCount = 5
	// resync is the interval of checks of all jobs.
	resync = 12 * time.Hour
)

// Config configures a Controller.
type Config struct {
	Jobs kubeclient.Namespaced[*batchv1.Job, *batchv1.JobList]
	Log  *slog.Logger
	// Queues provides the metrics of the work queue; may be nil.
	Queues workqueue.MetricsProvider
}

// Controller deletes finished jobs. It is used once.
type Controller struct {
	Config
	jobs  cache.SharedIndexInformer
	queue workqueue.TypedRateLimitingInterface[cache.ObjectName]
}

// New returns an idle controller.
func New(c Config) *Controller {
	jobs := workers.NewInformer(c.Jobs(metav1.NamespaceAll), &batchv1.Job{}, "", resync, cache.Indexers{})
	return &Controller{Config: c, jobs: jobs, queue: workers.NewQueue(workers.QueueConfig[cache.ObjectName]{
		Name:      "ttl_jobs_to_delete",
		Metrics:   c.Queues,
		Workers:   workerCount,
		Namespace: func(n cache.ObjectName) string { return n.Namespace },
	})}
}

// Run works until ctx ends, and returns when its goroutines have ended.
func (c *Controller) Run(ctx context.Context) error {
	defer c.queue.ShutDown()
	if err := c.jobs.SetTransform(stripJob); err != nil {
		return err
	}
	handler, err := c.jobs.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    c.enqueue,
		UpdateFunc: func(_, obj any) { c.enqueue(obj) },
	})
	if err != nil {
		return err
	}
	var group sync.WaitGroup
	defer group.Wait()
	group.Go(func() { c.jobs.RunWithContext(ctx) })
	if cache.WaitForCacheSync(ctx.Done(), handler.HasSynced) {
		workers.Run(ctx, workers.Config[cache.ObjectName]{
			Name:  Name,
			Queue: c.queue,
			Count: workerCount,
			Log:   c.Log,
			Sync:  c.sync,
		})
	}
	return nil
}

// stripJob is a transform function of informers. It removes the fields that expiration does not
// read.
func stripJob(obj any) (any, error) {
	j, ok := obj.(*batchv1.Job)
	if !ok {
		return obj, nil
	}
	stripped := &batchv1.Job{Status: batchv1.JobStatus{Conditions: j.Status.Conditions}}
	stripped.Namespace = j.Namespace
	stripped.Name = j.Name
	stripped.UID = j.UID
	stripped.ResourceVersion = j.ResourceVersion
	stripped.DeletionTimestamp = j.DeletionTimestamp
	stripped.Spec.TTLSecondsAfterFinished = j.Spec.TTLSecondsAfterFinished
	if stripped.Spec.TTLSecondsAfterFinished == nil {
		stripped.Status.Conditions = nil
	}
	return stripped, nil
}

// enqueue queues a job for its expiration.
func (c *Controller) enqueue(obj any) {
	if j, ok := obj.(*batchv1.Job); ok {
		if expires, ok := expirationOf(j); ok {
			c.queue.AddAfter(cache.MetaObjectToName(j), time.Until(expires))
		}
	}
}

// expirationOf returns when a job is to be deleted, and false if never.
func expirationOf(j *batchv1.Job) (time.Time, bool) {
	if j.DeletionTimestamp != nil || j.Spec.TTLSecondsAfterFinished == nil {
		return time.Time{}, false
	}
	for _, c := range j.Status.Conditions {
		finished := c.Type == batchv1.JobComplete || c.Type == batchv1.JobFailed
		if finished && c.Status == corev1.ConditionTrue && !c.LastTransitionTime.IsZero() {
			return c.LastTransitionTime.Add(time.Duration(*j.Spec.TTLSecondsAfterFinished) * time.Second), true
		}
	}
	return time.Time{}, false
}

// sync deletes a job if it has expired.
func (c *Controller) sync(ctx context.Context, name cache.ObjectName) error {
	jobs := c.Jobs(name.Namespace)
	// The informer may be behind, and the time to live can be extended.
	j, err := jobs.Get(ctx, name.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return err
	}
	expires, ok := expirationOf(j)
	if !ok {
		return nil
	}
	if wait := time.Until(expires); wait > 0 {
		return &workers.RequeueAfter{After: wait, Reason: "not expired yet"}
	}
	policy := metav1.DeletePropagationForeground
	err = jobs.Delete(ctx, name.Name, metav1.DeleteOptions{
		PropagationPolicy: &policy,
		Preconditions:     &metav1.Preconditions{UID: &j.UID, ResourceVersion: &j.ResourceVersion},
	})
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}
