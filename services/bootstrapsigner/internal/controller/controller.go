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
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/util/workqueue"

	"binnacle/libs/bootstraptoken"
	"binnacle/libs/clusterinfo"
	"binnacle/libs/reflector"
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
	minRetry = 100 * time.Millisecond
	maxRetry = time.Minute
)

// Secrets sends requests for the secrets in the namespace of bootstrap tokens.
type Secrets interface {
	List(ctx context.Context, o metav1.ListOptions) (*corev1.SecretList, error)
	Watch(ctx context.Context, o metav1.ListOptions) (watch.Interface, error)
}

// ConfigMaps sends requests for the config maps in the namespace of cluster-info.
type ConfigMaps interface {
	List(ctx context.Context, o metav1.ListOptions) (*corev1.ConfigMapList, error)
	Watch(ctx context.Context, o metav1.ListOptions) (watch.Interface, error)
	Patch(ctx context.Context, name string, t types.PatchType, data []byte, o metav1.PatchOptions, subresources ...string) (*corev1.ConfigMap, error)
}

// Config configures a Controller.
type Config struct {
	Secrets    Secrets
	ConfigMaps ConfigMaps
	Log        *slog.Logger
	// Queues provides the metrics of the work queue; may be nil.
	Queues workqueue.MetricsProvider
}

// Controller maintains the signatures.
type Controller struct {
	Config
	listing atomic.Bool // Run waits for the first lists
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
	queue   workqueue.TypedRateLimitingInterface[string]
	maps    *reflector.Store[*corev1.ConfigMap]
	secrets *reflector.Store[*bootstraptoken.Token]
	missing bool // the config map was missing at the last check
}

// Run works until ctx ends, and returns when all its goroutines have ended.
func (c *Controller) Run(ctx context.Context) error {
	// 1. Create the queue, and the stores that put the map into it when they change.
	c.listing.Store(true)
	defer c.listing.Store(false)
	state := &run{Controller: c, queue: workqueue.NewTypedRateLimitingQueueWithConfig(
		workqueue.NewTypedItemExponentialFailureRateLimiter[string](minRetry, maxRetry),
		workqueue.TypedRateLimitingQueueConfig[string]{Name: queueName, MetricsProvider: c.Queues})}
	state.secrets = reflector.NewStore(signingToken, func(_, _ **bootstraptoken.Token) { state.queue.Add(mapKey) })
	state.maps = reflector.NewStore(asConfigMap, func(_, _ **corev1.ConfigMap) { state.queue.Add(mapKey) })

	// 2. Follow the map and the secrets, and wait until both are listed.
	var group sync.WaitGroup
	defer group.Wait()
	defer state.queue.ShutDown()
	reflectors := []*reflector.Reflector{c.newSecretReflector(state.secrets), c.newMapReflector(state.maps)}
	for _, f := range reflectors {
		group.Go(func() { _ = f.Run(ctx) }) // ends with ctx
	}
	for _, f := range reflectors {
		select {
		case <-f.InitialListDone():
		case <-ctx.Done():
			return ctx.Err()
		}
	}

	// 3. Process the queue.
	c.listing.Store(false)
	state.queue.Add(mapKey)
	group.Go(func() {
		for state.processNext(ctx) {
		}
	})
	<-ctx.Done()
	return ctx.Err()
}

// processNext checks the map once. It returns false when the queue has shut down.
func (r *run) processNext(ctx context.Context) bool {
	key, shutdown := r.queue.Get()
	if shutdown {
		return false
	}
	defer r.queue.Done(key)
	if ctx.Err() != nil {
		return true // the rest of the queue is dropped
	}
	checkAfter, err := r.updateSignatures(ctx)
	if err != nil {
		if !errors.Is(err, context.Canceled) && !apierrors.IsConflict(err) {
			r.Log.Warn("failed to sign cluster-info; retrying", "configmap", mapKey, "error", err)
		}
		r.queue.AddRateLimited(key)
		return true
	}
	r.queue.Forget(key)
	r.queue.AddAfter(key, checkAfter)
	return true
}

// updateSignatures updates the signatures and returns when to check again.
func (r *run) updateSignatures(ctx context.Context) (checkAfter time.Duration, err error) {
	// 1. Compare the signatures with the wanted ones.
	configMap, ok := r.maps.Get(clusterinfo.Namespace, clusterinfo.Name)
	r.logMissing(!ok)
	if !ok {
		return resync, nil
	}
	now := time.Now().Round(0) // expirations are wall clock times
	expected, checkAfter := r.wantedSignatures(configMap, now)
	changes := mergePatch(configMap.Data, expected)
	if len(changes) == 0 {
		return checkAfter, nil
	}

	// 2. Patch the difference, if the map is unchanged.
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"resourceVersion": configMap.ResourceVersion},
		"data":     changes,
	})
	if err != nil {
		return 0, err
	}
	ctx, cancel := context.WithTimeout(ctx, patchTimeout)
	defer cancel()
	_, err = r.ConfigMaps.Patch(ctx, configMap.Name, types.MergePatchType, patch, metav1.PatchOptions{})
	if apierrors.IsNotFound(err) {
		return checkAfter, nil
	}
	if err != nil {
		return 0, err
	}
	r.Log.Info("signatures changed", "configmap", mapKey, "changed", len(changes), "signatures", len(expected))
	return checkAfter, nil
}

// logMissing logs when the map becomes missing.
func (r *run) logMissing(missing bool) {
	if missing && !r.missing {
		r.Log.Info("waiting for the config map", "configmap", mapKey)
	}
	r.missing = missing
}

// wantedSignatures returns the signatures that a map should have, by key, and how long they are
// valid. A map without a kubeconfig has none.
func (r *run) wantedSignatures(m *corev1.ConfigMap, now time.Time) (map[string]string, time.Duration) {
	expected, checkAfter := map[string]string{}, resync
	kubeconfig, ok := m.Data[clusterinfo.KeyKubeconfig]
	if !ok {
		return expected, checkAfter
	}
	for _, t := range r.secrets.All() {
		if t == nil || t.Expired(now) {
			continue
		}
		expected[clusterinfo.SignatureKey(t.ID)] = clusterinfo.Sign(kubeconfig, t.ID, t.Secret)
		if !t.Expires.IsZero() {
			checkAfter = min(checkAfter, t.Expires.Sub(now))
		}
	}
	return expected, checkAfter
}

// mergePatch returns the fields of a merge patch from the actual to the wanted signatures. nil
// removes a key.
func mergePatch(data, expected map[string]string) map[string]any {
	changes := map[string]any{}
	for key := range data {
		if _, ok := expected[key]; !ok && strings.HasPrefix(key, clusterinfo.SignaturePrefix) {
			changes[key] = nil
		}
	}
	for key, signature := range expected {
		if got, ok := data[key]; !ok || got != signature {
			changes[key] = signature
		}
	}
	return changes
}
