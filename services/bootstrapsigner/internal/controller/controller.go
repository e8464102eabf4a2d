package controller

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"

	"binnacle/libs/bootstraptoken"
	"binnacle/libs/clusterinfo"
)

const (
	queueName = "bootstrap_signer_queue"
	mapKey    = clusterinfo.Namespace + "/" + clusterinfo.Name
	// resync is the maximum interval between two checks of the map.
	resync = 10 * time.Minute
	// patchTimeout bounds one request.
	patchTimeout = 30 * time.Second
)

// Backoff of failed patches.
const (
	firstRetry = 100 * time.Millisecond
	lastRetry  = time.Minute
)

// Config configures a Controller.
type Config struct {
	Client kubernetes.Interface
	Log    *slog.Logger
	// Queues provides the metrics of the work queue; may be nil.
	Queues workqueue.MetricsProvider
}

// Controller maintains the signatures.
type Controller struct {
	Config
	listing atomic.Bool
}

// New returns an idle controller.
func New(c Config) *Controller { return &Controller{Config: c} }

// Check is a health check. It fails with the reason for waiting.
func (c *Controller) Check(*http.Request) error {
	if c.listing.Load() {
		return fmt.Errorf("waiting for %s and the bootstrap tokens in %s to be listed", mapKey, bootstraptoken.Namespace)
	}
	return nil
}

// run is one run of a Controller.
type run struct {
	*Controller
	queue         workqueue.TypedRateLimitingInterface[string]
	maps, secrets cache.Store
	missing       bool // whether the config map was missing at the last check
}

// Run works until ctx ends, and returns when all its goroutines have ended.
func (c *Controller) Run(ctx context.Context) error {
	secrets, err := newSecretInformer(c.Client)
	if err != nil {
		return err
	}
	maps := newMapInformer(c.Client)
	c.listing.Store(true)
	defer c.listing.Store(false)
	r := &run{Controller: c, secrets: secrets.GetStore(), maps: maps.GetStore(), queue: workqueue.NewTypedRateLimitingQueueWithConfig(
		workqueue.NewTypedItemExponentialFailureRateLimiter[string](firstRetry, lastRetry),
		workqueue.TypedRateLimitingQueueConfig[string]{Name: queueName, MetricsProvider: c.Queues})}
	look := func(any) { r.queue.Add(mapKey) }
	handler := cache.ResourceEventHandlerFuncs{AddFunc: look, DeleteFunc: look, UpdateFunc: func(_, obj any) { look(obj) }}
	var group sync.WaitGroup
	defer group.Wait()
	defer r.queue.ShutDown()
	synced := make([]cache.InformerSynced, 0, 2)
	for _, informer := range []cache.SharedIndexInformer{secrets, maps} {
		registered, err := informer.AddEventHandler(handler)
		if err != nil {
			return fmt.Errorf("follow %s: %w", mapKey, err)
		}
		synced = append(synced, registered.HasSynced)
	}
	group.Go(func() { secrets.RunWithContext(ctx) })
	group.Go(func() { maps.RunWithContext(ctx) })
	if !cache.WaitForCacheSync(ctx.Done(), synced...) {
		return ctx.Err()
	}
	c.listing.Store(false)
	r.queue.Add(mapKey)
	group.Go(func() {
		for r.next(ctx) {
		}
	})
	<-ctx.Done()
	return ctx.Err()
}

// next checks the map once. It returns false when the queue has shut down.
func (r *run) next(ctx context.Context) bool {
	key, shutdown := r.queue.Get()
	if shutdown {
		return false
	}
	defer r.queue.Done(key)
	if ctx.Err() != nil {
		return true // the rest of the queue is dropped
	}
	again, err := r.sign(ctx)
	if err != nil {
		if !errors.Is(err, context.Canceled) && !apierrors.IsConflict(err) {
			r.Log.Warn("signing failed, trying again", "configmap", mapKey, "error", err)
		}
		r.queue.AddRateLimited(key)
		return true
	}
	r.queue.Forget(key)
	r.queue.AddAfter(key, again)
	return true
}

// sign updates the signatures and returns when to check again.
func (r *run) sign(ctx context.Context) (again time.Duration, err error) {
	obj, ok, err := r.maps.GetByKey(mapKey)
	if err != nil {
		return 0, err
	}
	if r.noteMissing(!ok); !ok {
		return resync, nil
	}
	m, ok := obj.(*corev1.ConfigMap)
	if !ok {
		return 0, fmt.Errorf("a %T in the store", obj)
	}
	want, again := r.signatures(m, time.Now().Round(0))
	changes := difference(m.Data, want)
	if len(changes) == 0 {
		return again, nil
	}
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"resourceVersion": m.ResourceVersion},
		"data":     changes,
	})
	if err != nil {
		return 0, err
	}
	ctx, cancel := context.WithTimeout(ctx, patchTimeout)
	defer cancel()
	_, err = r.Client.CoreV1().ConfigMaps(m.Namespace).Patch(ctx, m.Name, types.MergePatchType, patch, metav1.PatchOptions{})
	if apierrors.IsNotFound(err) {
		return again, nil
	}
	if err != nil {
		return 0, err
	}
	r.Log.Info("signatures changed", "configmap", mapKey, "changed", len(changes), "signatures", len(want))
	return again, nil
}

// noteMissing logs when the map becomes missing.
func (r *run) noteMissing(missing bool) {
	if missing && !r.missing {
		r.Log.Info("waiting for the config map", "configmap", mapKey)
	}
	r.missing = missing
}

// signatures returns the signatures that a map should have, by key, and how long they are valid. A
// map without a kubeconfig has none.
func (r *run) signatures(m *corev1.ConfigMap, now time.Time) (map[string]string, time.Duration) {
	want, again := map[string]string{}, resync
	kubeconfig, ok := m.Data[clusterinfo.KeyKubeconfig]
	if !ok {
		return want, again
	}
	for _, obj := range r.secrets.List() {
		e, ok := obj.(*entry)
		if !ok || e.token == nil || e.token.Expired(now) {
			continue
		}
		want[clusterinfo.SignatureKey(e.token.ID)] = clusterinfo.Sign(kubeconfig, e.token.ID, e.token.Secret)
		if !e.token.Expires.IsZero() {
			again = min(again, e.token.Expires.Sub(now))
		}
	}
	return want, again
}

// difference returns the fields of a merge patch from the actual to the wanted signatures. nil
// removes a key.
func difference(data, want map[string]string) map[string]any {
	changes := map[string]any{}
	for key := range data {
		if _, ok := want[key]; !ok && strings.HasPrefix(key, clusterinfo.SignaturePrefix) {
			changes[key] = nil
		}
	}
	for key, signature := range want {
		if got, ok := data[key]; !ok || got != signature {
			changes[key] = signature
		}
	}
	return changes
}
