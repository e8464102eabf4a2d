// Package rootca publishes the CA certificates of the API server in every namespace, in the config
// map kube-root-ca.crt, so that pods can verify the API server.
//
// Changed or deleted config maps are restored. New certificates are published everywhere.
//
// Package app runs a Controller on the leader.
package rootca

import (
	"bytes"
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
const Name = "root-ca-certificate-publisher-controller"

// The config map, and the annotation that describes it.
const (
	configMap   = "kube-root-ca.crt"
	caKey       = "ca.crt"
	annotation  = "kubernetes.io/description"
	description = "Contains a CA bundle that can be used to verify the kube-apiserver when using internal endpoints such as the internal service IP or kubernetes.default.svc. " +
		"No other usage is guaranteed across distributions of Kubernetes clusters."
)

// Config configures a Controller.
type Config struct {
	ConfigMaps kubeclient.Namespaced[*corev1.ConfigMap, *corev1.ConfigMapList]
	// Namespaces is started and stopped by the caller.
	Namespaces cache.SharedIndexInformer
	Log        *slog.Logger
	// Queues provides the metrics of the work queue; may be nil.
	Queues workqueue.MetricsProvider
	// CA holds the certificates in PEM.
	CA []byte
}

// Controller publishes certificates. It is used once.
type Controller struct {
	Config
	maps  cache.SharedIndexInformer
	queue workqueue.TypedRateLimitingInterface[string] // of namespaces

	mu sync.Mutex // leaf lock
	ca []byte
}

// New returns an idle controller.
func New(c Config) *Controller {
	named := fields.OneTermEqualSelector(metav1.ObjectNameField, configMap).String()
	maps := workers.NewInformer(c.ConfigMaps(metav1.NamespaceAll), &corev1.ConfigMap{}, named, 0, cache.Indexers{})
	queue := workqueue.NewTypedRateLimitingQueueWithConfig(
		workqueue.DefaultTypedControllerRateLimiter[string](),
		workqueue.TypedRateLimitingQueueConfig[string]{Name: "root_ca_cert_publisher", MetricsProvider: c.Queues})
	return &Controller{Config: c, ca: c.CA, maps: maps, queue: queue}
}

// SetCA publishes other certificates.
func (c *Controller) SetCA(ca []byte) {
	c.mu.Lock()
	changed := !bytes.Equal(c.ca, ca)
	c.ca = ca
	c.mu.Unlock()
	if changed {
		for _, name := range c.Namespaces.GetStore().ListKeys() {
			c.queue.Add(name)
		}
	}
}

// Run works until ctx ends, and returns when its goroutines have ended.
func (c *Controller) Run(ctx context.Context) error {
	defer c.queue.ShutDown()
	if err := c.maps.SetTransform(workers.StripMetadata); err != nil {
		return err
	}
	enqueueNamespaceOf := func(obj any) {
		if namespace, name, err := workers.SplitKey(obj); err == nil && name == configMap {
			c.queue.Add(namespace)
		}
	}
	changed, err := c.maps.AddEventHandler(cache.ResourceEventHandlerFuncs{
		UpdateFunc: func(_, obj any) { enqueueNamespaceOf(obj) },
		DeleteFunc: enqueueNamespaceOf,
	})
	if err != nil {
		return err
	}
	enqueueNamespace := func(obj any) {
		if ns, ok := obj.(*corev1.Namespace); ok {
			c.queue.Add(ns.Name)
		}
	}
	seen, err := c.Namespaces.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    enqueueNamespace,
		UpdateFunc: func(_, obj any) { enqueueNamespace(obj) },
	})
	if err != nil {
		return err
	}
	var group sync.WaitGroup
	defer group.Wait()
	group.Go(func() { c.maps.RunWithContext(ctx) })
	if cache.WaitForCacheSync(ctx.Done(), seen.HasSynced, changed.HasSynced) {
		workers.Run(ctx, workers.Config[string]{Name: Name, Queue: c.queue, Count: 1, Log: c.Log, Sync: c.sync})
	}
	return c.Namespaces.RemoveEventHandler(seen)
}

// sync creates or restores the config map of a namespace.
func (c *Controller) sync(ctx context.Context, namespace string) error {
	if active, err := workers.Active(c.Namespaces.GetStore(), namespace); err != nil || !active {
		return err
	}
	c.mu.Lock()
	ca := string(c.ca)
	c.mu.Unlock()
	obj, ok, err := c.maps.GetStore().GetByKey(namespace + "/" + configMap)
	if err != nil {
		return err
	}
	if !ok {
		_, err := c.ConfigMaps(namespace).Create(ctx, &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{
				Namespace:   namespace,
				Name:        configMap,
				Annotations: map[string]string{annotation: description},
			},
			Data: map[string]string{caKey: ca},
		}, metav1.CreateOptions{})
		// A namespace that is missing or terminating needs no config map. The retry after a
		// conflict with an existing config map finds it in the store.
		if apierrors.IsNotFound(err) || apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
			return nil
		}
		return err
	}
	m, ok := obj.(*corev1.ConfigMap)
	if !ok || isUpToDate(m, ca) {
		return nil
	}
	m = m.DeepCopy()
	m.Data = map[string]string{caKey: ca}
	if m.Annotations[annotation] == "" {
		metav1.SetMetaDataAnnotation(&m.ObjectMeta, annotation, description)
	}
	_, err = c.ConfigMaps(namespace).Update(ctx, m, metav1.UpdateOptions{})
	return err
}

// isUpToDate reports whether a config map contains the certificates, nothing else, and any
// description.
func isUpToDate(m *corev1.ConfigMap, ca string) bool {
	return len(m.Data) == 1 && m.Data[caKey] == ca && m.Annotations[annotation] != ""
}
