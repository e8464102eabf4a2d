package objects

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"time"

	"golang.org/x/time/rate"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"

	"binnacle/libs/bootstraptoken"
	"binnacle/libs/kubeclient"
)

const (
	// lookupTimeout bounds one request to the API server.
	lookupTimeout = 3 * time.Second
	// guessesPerSecond and guessesBurst bound the requests to the API server for bootstrap tokens
	// that may not exist. Any client can send such tokens.
	guessesPerSecond = 10
	guessesBurst     = 50
)

// Config configures the lookups.
type Config struct {
	// Client is the client configuration for the API server. Its rate limit applies to watches;
	// lookups are limited by the callers of reviews.
	Client *rest.Config
	// ServiceAccounts watches the objects that service account tokens depend on.
	ServiceAccounts bool
	// BootstrapTokens watches the secrets of bootstrap tokens.
	BootstrapTokens bool
	// Confirm confirms objects in the watch with the API server.
	Confirm bool
	Logger  *slog.Logger
}

// Objects implements satoken.Objects, and bootstraptoken.Secrets.
type Objects struct {
	confirm bool
	log     *slog.Logger

	secrets  *secretReader
	metadata metadata.Interface
	watches  []*objectWatch

	serviceAccounts, pods, nodes *objectWatch
	tokenSecrets                 *objectWatch  // secrets of service account tokens
	bootstrapSecrets             *objectWatch  // secrets of bootstrap tokens
	guessLimiter                 *rate.Limiter // see isGuess
}

// New creates the clients. It sends no requests before Run. Lookups have no rate limit.
func New(config Config) (*Objects, error) {
	lookups := rest.CopyConfig(config.Client)
	lookups.QPS = -1
	lookups.Burst = 0
	secrets, err := newSecretReader(lookups)
	if err != nil {
		return nil, fmt.Errorf("client for look-ups: %w", err)
	}
	partial, err := metadata.NewForConfig(metadata.ConfigFor(lookups))
	if err != nil {
		return nil, fmt.Errorf("client for look-ups: %w", err)
	}
	created := &Objects{
		confirm: config.Confirm, log: config.Logger, secrets: secrets, metadata: partial,
		guessLimiter: rate.NewLimiter(guessesPerSecond, guessesBurst),
	}
	if err := created.addWatches(config); err != nil {
		return nil, fmt.Errorf("client for watches: %w", err)
	}
	return created, nil
}

// addWatches creates the watches of all resources that tokens depend on.
func (o *Objects) addWatches(config Config) error {
	secrets, err := kubeclient.NewClient(config.Client, corev1.AddToScheme)
	if err != nil {
		return err
	}
	partial, err := metadata.NewForConfig(metadata.ConfigFor(config.Client))
	if err != nil {
		return err
	}
	add := func(watch *objectWatch) *objectWatch {
		o.watches = append(o.watches, watch)
		return watch
	}
	if config.ServiceAccounts {
		o.serviceAccounts = add(watchMetadata(partial, "serviceaccounts", o.log))
		o.pods = add(watchMetadata(partial, "pods", o.log))
		o.nodes = add(watchMetadata(partial, "nodes", o.log))
		watch, err := watchSecrets(secrets, metav1.NamespaceAll, corev1.SecretTypeServiceAccountToken, o.log)
		if err != nil {
			return err
		}
		o.tokenSecrets = add(watch)
	}
	if config.BootstrapTokens {
		watch, err := watchSecrets(secrets, bootstraptoken.Namespace, bootstraptoken.SecretType, o.log)
		if err != nil {
			return err
		}
		o.bootstrapSecrets = add(watch)
	}
	return nil
}

// Check is a health check. It fails with the reason for waiting.
func (o *Objects) Check(*http.Request) error {
	for _, w := range o.watches {
		if !w.reflector.Synced() {
			return fmt.Errorf("waiting for the list of %s", w.name)
		}
	}
	return nil
}

// Run watches until ctx ends, and returns the error of ctx.
func (o *Objects) Run(ctx context.Context) error {
	var all sync.WaitGroup
	for _, w := range o.watches {
		all.Go(func() { _ = w.reflector.Run(ctx) }) // ends with ctx
	}
	all.Wait()
	<-ctx.Done()
	return ctx.Err()
}

// ServiceAccount implements satoken.Objects. It returns only the metadata of the account.
func (o *Objects) ServiceAccount(ctx context.Context, namespace, name string) (*corev1.ServiceAccount, error) {
	object, err := o.lookUpMetadata(ctx, o.serviceAccounts, "serviceaccounts", namespace, name)
	if err != nil {
		return nil, err
	}
	return &corev1.ServiceAccount{ObjectMeta: object.ObjectMeta}, nil
}

// Pod implements satoken.Objects. It returns only the metadata of the pod.
func (o *Objects) Pod(ctx context.Context, namespace, name string) (*corev1.Pod, error) {
	object, err := o.lookUpMetadata(ctx, o.pods, "pods", namespace, name)
	if err != nil {
		return nil, err
	}
	return &corev1.Pod{ObjectMeta: object.ObjectMeta}, nil
}

// Node implements satoken.Objects. It returns only the metadata of the node.
func (o *Objects) Node(ctx context.Context, name string) (*corev1.Node, error) {
	object, err := o.lookUpMetadata(ctx, o.nodes, "nodes", "", name)
	if err != nil {
		return nil, err
	}
	return &corev1.Node{ObjectMeta: object.ObjectMeta}, nil
}

// lookUpMetadata returns the metadata of an object: from the watch w, or from the API server if the
// watch does not have it or Config.Confirm is set.
func (o *Objects) lookUpMetadata(ctx context.Context, w *objectWatch,
	resource, namespace, name string) (*metav1.PartialObjectMetadata, error) {
	watched, ok := w.get(namespace, name).(*metav1.PartialObjectMetadata)
	if ok && !o.confirm {
		return watched, nil
	}
	return readWithTimeout(ctx, func(ctx context.Context) (*metav1.PartialObjectMetadata, error) {
		return o.metadata.Resource(coreResource(resource)).Namespace(namespace).Get(ctx, name, metav1.GetOptions{})
	})
}

// Secret implements satoken.Objects and bootstraptoken.Secrets.
func (o *Objects) Secret(ctx context.Context, namespace, name string) (*corev1.Secret, error) {
	watched := o.knownSecret(namespace, name)
	if watched != nil && !o.confirm {
		return watched, nil
	}
	if watched == nil && o.isGuess(namespace, name) && !o.guessLimiter.Allow() {
		return nil, apierrors.NewNotFound(corev1.Resource("secrets"), name)
	}
	return readWithTimeout(ctx, func(ctx context.Context) (*corev1.Secret, error) {
		return o.secrets.get(ctx, namespace, name)
	})
}

// knownSecret returns a secret from the watches, or nil.
func (o *Objects) knownSecret(namespace, name string) *corev1.Secret {
	for _, w := range []*objectWatch{o.tokenSecrets, o.bootstrapSecrets} {
		if s, ok := w.get(namespace, name).(*corev1.Secret); ok {
			return s
		}
	}
	return nil
}

// isGuess reports whether a client may have made up the name of a secret. All other names come from
// signed tokens.
func (o *Objects) isGuess(namespace, name string) bool {
	id, hasPrefix := strings.CutPrefix(name, bootstraptoken.SecretPrefix)
	return namespace == bootstraptoken.Namespace && hasPrefix && id != ""
}

// readWithTimeout calls get, which reads an object from the API server, with a timeout of
// lookupTimeout. If the timeout was exceeded, the error says so.
func readWithTimeout[T any](ctx context.Context, get func(context.Context) (T, error)) (T, error) {
	bounded, cancel := context.WithTimeout(ctx, lookupTimeout)
	defer cancel()
	found, err := get(bounded)
	if err != nil && ctx.Err() == nil && errors.Is(bounded.Err(), context.DeadlineExceeded) {
		err = fmt.Errorf("the API server did not answer within %v: %w", lookupTimeout, err)
	}
	return found, err
}

// coreResource returns a resource of the core group.
func coreResource(name string) schema.GroupVersionResource {
	return corev1.SchemeGroupVersion.WithResource(name)
}
