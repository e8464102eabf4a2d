// Package serviceaccounts creates the service account "default" in every active namespace, and
// creates it again after it was deleted.
//
// Package app runs a Controller on the leader.
package serviceaccounts

import (
	"context"
	"log/slog"
	"sync"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"

	"binnacle/libs/kubeclient"
	"binnacle/services/controllers/internal/workers"
)

// Name is the name of the controller in --controllers.
const Name = "serviceaccount-controller"

// accountName is the name of the service accounts.
const accountName = "default"

// Config configures a Controller.
type Config struct {
	Accounts kubeclient.Namespaced[*corev1.ServiceAccount, *corev1.ServiceAccountList]
	// Namespaces is started and stopped by the caller.
	Namespaces cache.SharedIndexInformer
	Log        *slog.Logger
	// Queues provides the metrics of the work queue; may be nil.
	Queues workqueue.MetricsProvider
}

// Controller creates service accounts. It is used once.
type Controller struct {
	Config
	accounts cache.SharedIndexInformer
	queue    workqueue.TypedRateLimitingInterface[string] // of namespaces
}

// New returns an idle controller.
func New(c Config) *Controller {
	named := fields.OneTermEqualSelector(metav1.ObjectNameField, accountName).String()
	accounts := workers.NewInformer(c.Accounts(metav1.NamespaceAll), &corev1.ServiceAccount{}, named, 0, cache.Indexers{})
	queue := workqueue.NewTypedRateLimitingQueueWithConfig(
		workqueue.DefaultTypedControllerRateLimiter[string](),
		workqueue.TypedRateLimitingQueueConfig[string]{Name: "serviceaccount", MetricsProvider: c.Queues})
	return &Controller{Config: c, accounts: accounts, queue: queue}
}

// Run works until ctx ends, and returns when its goroutines have ended.
func (c *Controller) Run(ctx context.Context) error {
	defer c.queue.ShutDown()
	if err := c.accounts.SetTransform(workers.StripMetadata); err != nil {
		return err
	}
	deleted, err := c.accounts.AddEventHandler(cache.ResourceEventHandlerFuncs{DeleteFunc: func(obj any) {
		if namespace, name, err := workers.SplitKey(obj); err == nil && name == accountName {
			c.queue.Add(namespace)
		}
	}})
	if err != nil {
		return err
	}
	seen, err := c.Namespaces.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    c.enqueue,
		UpdateFunc: func(_, obj any) { c.enqueue(obj) },
	})
	if err != nil {
		return err
	}
	var group sync.WaitGroup
	defer group.Wait()
	group.Go(func() { c.accounts.RunWithContext(ctx) })
	if cache.WaitForCacheSync(ctx.Done(), seen.HasSynced, deleted.HasSynced) {
		workers.Run(ctx, workers.Config[string]{Name: Name, Queue: c.queue, Count: 1, Log: c.Log, Sync: c.sync})
	}
	return c.Namespaces.RemoveEventHandler(seen)
}

// enqueue queues a namespace.
func (c *Controller) enqueue(obj any) {
	if ns, ok := obj.(*corev1.Namespace); ok {
		c.queue.Add(ns.Name)
	}
}

// sync creates the service account of a namespace if it is missing.
func (c *Controller) sync(ctx context.Context, namespace string) error {
	if active, err := workers.Active(c.Namespaces.GetStore(), namespace); err != nil || !active {
		return err
	}
	if _, ok, err := c.accounts.GetStore().GetByKey(namespace + "/" + accountName); err != nil || ok {
		return err
	}
	_, err := c.Accounts(namespace).Create(ctx, &corev1.ServiceAccount{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: accountName},
	}, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) || apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
		return nil
	}
	return err
}
