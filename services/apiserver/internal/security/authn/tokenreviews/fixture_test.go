package tokenreviews_test

import (
	"context"
	"errors"
	"log/slog"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"binnacle/libs/authenticator"
	"binnacle/libs/satoken"
	"binnacle/services/apiserver/internal/cache/attributes"
	"binnacle/services/apiserver/internal/cache/watchcache"
	"binnacle/services/apiserver/internal/security/authn"
	"binnacle/services/apiserver/internal/security/authn/tokenreviews"
	"binnacle/services/apiserver/internal/storage"
)

// TestMain fails if a test leaves goroutines behind.
func TestMain(m *testing.M) {
	// The sweepers of the LRU library run until the process exits.
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("github.com/hashicorp/golang-lru/v2/expirable.NewLRU[...].func1"))
}

// source sends the batches of a test to the watch cache.
type source struct {
	batches  chan storage.Batch
	applied  chan struct{}
	broken   chan error    // ends the stream
	gate     chan struct{} // Load blocks until the test receives from gate
	mu       sync.Mutex
	revision int64
}

func (s *source) Load(ctx context.Context, _ func([]storage.KeyValue) error) (storage.Position, error) {
	select {
	case s.gate <- struct{}{}:
	case <-ctx.Done():
		return storage.Position{}, ctx.Err()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return storage.Position{Revision: s.revision}, nil
}

func (s *source) Follow(ctx context.Context, _ storage.Position, apply func(storage.Batch) error) error {
	for {
		select {
		case b := <-s.batches:
			if err := apply(b); err != nil {
				return err
			}
			s.applied <- struct{}{}
		case err := <-s.broken:
			return err
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (s *source) Progress(context.Context) error { return nil }

func (s *source) VerifyHistory(context.Context, storage.Position) (int64, error) { return 1, nil }

// objects are the existing objects by kind/namespace/name.
type objects struct {
	mu      sync.Mutex
	objects map[string]metav1.ObjectMeta
}

func (o *objects) find(kind satoken.Kind, ns, name string) (metav1.ObjectMeta, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if m, ok := o.objects[string(kind)+"/"+ns+"/"+name]; ok {
		return m, nil
	}
	return metav1.ObjectMeta{}, apierrors.NewNotFound(corev1.Resource("x"), name)
}

func (o *objects) ServiceAccount(_ context.Context, ns, name string) (*corev1.ServiceAccount, error) {
	m, err := o.find(satoken.KindServiceAccount, ns, name)
	return &corev1.ServiceAccount{ObjectMeta: m}, err
}
func (o *objects) Pod(_ context.Context, ns, name string) (*corev1.Pod, error) {
	m, err := o.find(satoken.KindPod, ns, name)
	return &corev1.Pod{ObjectMeta: m}, err
}
func (o *objects) Secret(_ context.Context, ns, name string) (*corev1.Secret, error) {
	m, err := o.find(satoken.KindSecret, ns, name)
	return &corev1.Secret{ObjectMeta: m}, err
}
func (o *objects) Node(_ context.Context, name string) (*corev1.Node, error) {
	m, err := o.find(satoken.KindNode, "", name)
	return &corev1.Node{ObjectMeta: m}, err
}

// reviewer responds from a table and counts its calls.
type reviewer struct {
	mu       sync.Mutex
	reviews  map[string]int
	resultOf func(ctx context.Context, token string) (*authenticator.Response, bool, error)
}

func (r *reviewer) AuthenticateToken(ctx context.Context, token string, _ []string) (*authenticator.Response, bool, error) {
	r.mu.Lock()
	r.reviews[token]++
	r.mu.Unlock()
	return r.resultOf(ctx, token)
}

func (r *reviewer) reviewsOf(token string) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.reviews[token]
}

// fixture is a cache of token reviews with its reviewer, and the objects on which tokens depend.
type fixture struct {
	t        testing.TB
	cache    *tokenreviews.Cache
	reviewer *reviewer
	objects  *objects
	source   *source
	created  map[string]int64
	now      time.Time
	mu       sync.Mutex // guards now
	stop     func()     // stops the watch cache
}

// stores maps the kinds of objects to the prefixes of their keys.
var stores = map[satoken.Kind]string{
	satoken.KindServiceAccount: "/registry/serviceaccounts/", satoken.KindPod: "/registry/pods/",
	satoken.KindSecret: "/registry/secrets/", satoken.KindNode: "/registry/minions/",
}

// newFixtureWithoutObjects returns a cache that follows no objects, so it does not keep reviews.
// change adjusts the configuration; nil keeps it.
func newFixtureWithoutObjects(t testing.TB, change func(*tokenreviews.Config)) *fixture {
	t.Helper()
	f := &fixture{
		t:       t,
		objects: &objects{objects: map[string]metav1.ObjectMeta{}},
		created: map[string]int64{},
		now:     time.Now(),
		source: &source{
			batches:  make(chan storage.Batch),
			applied:  make(chan struct{}, 1),
			broken:   make(chan error),
			gate:     make(chan struct{}),
			revision: 1,
		},
		reviewer: &reviewer{reviews: map[string]int{}, resultOf: reviewerByName},
	}
	cfg := tokenreviews.Config{
		Token:      f.reviewer,
		Audiences:  []string{"api"},
		SuccessTTL: time.Hour,
		FailureTTL: time.Hour,
		Timeout:    time.Minute,
		Objects:    f.objects,
		Logger:     slog.New(slog.DiscardHandler),
		Registerer: prometheus.NewPedanticRegistry(),
		Now:        func() time.Time { f.mu.Lock(); defer f.mu.Unlock(); return f.now },
	}
	if change != nil {
		change(&cfg)
	}
	var err error
	if f.cache, err = tokenreviews.New(cfg); err != nil {
		t.Fatal(err)
	}
	return f
}

// newFixture returns a cache that follows the objects of the fixture until the test ends. change
// adjusts the configuration; nil keeps it.
func newFixture(t testing.TB, change func(*tokenreviews.Config)) *fixture {
	t.Helper()
	f := newFixtureWithoutObjects(t, change)

	// 1. Create a watch cache over the source.
	var resources []watchcache.ResourceConfig
	for _, prefix := range stores {
		resources = append(resources,
			watchcache.ResourceConfig{
				Name:   prefix,
				Prefix: prefix,
				Attributes: func(key string, _ []byte) (attributes.Attributes, error) {
					ns, name, ok := strings.Cut(strings.TrimPrefix(key, prefix), "/")
					if !ok {
						ns, name = "", ns
					}
					return attributes.Attributes{Namespace: ns, Name: name}, nil
				},
			})
	}
	cache, err := watchcache.New(watchcache.Config{Source: f.source, CurrentRevision: f.source, Resources: resources})
	if err != nil {
		t.Fatal(err)
	}
	var followed []tokenreviews.CachedKind
	for kind, prefix := range stores {
		followed = append(followed, tokenreviews.CachedKind{Kind: kind, Store: cache.Store(prefix)})
	}

	// 2. Run both until the test ends.
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 2)
	var watchCacheCtx context.Context
	watchCacheCtx, f.stop = context.WithCancel(ctx)
	go func() { done <- cache.Run(watchCacheCtx) }()
	go func() { done <- f.cache.Run(ctx, followed) }()
	t.Cleanup(func() {
		cancel()
		for range 2 {
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
	})
	<-f.source.gate
	f.awaitTrue("following", func() bool { return f.isCached("bad-probe") })
	return f
}

// reviewerByName rejects tokens that start with "bad", is unavailable for tokens that start with
// "down", and accepts all other tokens with the token as user name.
func reviewerByName(_ context.Context, token string) (*authenticator.Response, bool, error) {
	switch {
	case strings.HasPrefix(token, "bad"):
		return nil, false, errors.New("no good")
	case strings.HasPrefix(token, "down"):
		return nil, false, authenticator.Unavailable(errors.New("no service"))
	}
	return &authenticator.Response{User: authenticator.User{Name: token}}, true, nil
}

// awaitTrue waits until condition returns true.
func (f *fixture) awaitTrue(description string, condition func() bool) {
	f.t.Helper()
	for end := time.Now().Add(30 * time.Second); !condition(); runtime.Gosched() {
		if time.Now().After(end) {
			f.t.Fatalf("timed out waiting until %s", description)
		}
	}
}

// review reviews a token and fails the test if there is no result.
func (f *fixture) review(token string, audiences ...string) *authn.Review {
	f.t.Helper()
	rev, err := f.cache.Review(f.t.Context(), token, audiences)
	if err != nil {
		f.t.Fatalf("Review(%q): got error %v, want none", token, err)
	}
	return rev
}

// isCached reports whether a token is answered from the cache after a review. Responses whose
// objects are missing are cached only briefly, so two cached responses are required.
func (f *fixture) isCached(token string) bool {
	f.t.Helper()
	_, _ = f.cache.Review(f.t.Context(), token, nil)
	runtime.Gosched()
	n := f.reviewer.reviewsOf(token)
	for range 2 {
		_, _ = f.cache.Review(f.t.Context(), token, nil)
	}
	return f.reviewer.reviewsOf(token) == n
}

// putObject creates or updates an object.
func (f *fixture) putObject(kind satoken.Kind, ns, name, uid string) {
	f.t.Helper()
	f.putMeta(kind, metav1.ObjectMeta{Namespace: ns, Name: name, UID: types.UID(uid)})
}

// putTerminating creates or updates an object that is being deleted.
func (f *fixture) putTerminating(kind satoken.Kind, ns, name, uid string) {
	f.t.Helper()
	f.putMeta(kind, metav1.ObjectMeta{
		Namespace:         ns,
		Name:              name,
		UID:               types.UID(uid),
		DeletionTimestamp: &metav1.Time{Time: time.Now()},
	})
}

func (f *fixture) putMeta(kind satoken.Kind, m metav1.ObjectMeta) {
	f.t.Helper()
	f.objects.mu.Lock()
	f.objects.objects[string(kind)+"/"+m.Namespace+"/"+m.Name] = m
	f.objects.mu.Unlock()
	f.sendEvent(kind, m.Namespace, m.Name, true)
}

// delete deletes an object.
func (f *fixture) delete(kind satoken.Kind, ns, name string) {
	f.t.Helper()
	f.objects.mu.Lock()
	delete(f.objects.objects, string(kind)+"/"+ns+"/"+name)
	f.objects.mu.Unlock()
	f.sendEvent(kind, ns, name, false)
}

func (f *fixture) sendEvent(kind satoken.Kind, namespace, name string, exists bool) {
	key := stores[kind] + name
	if namespace != "" {
		key = stores[kind] + namespace + "/" + name
	}
	f.source.mu.Lock()
	f.source.revision++
	rev := f.source.revision
	f.source.mu.Unlock()
	event := storage.Event{Type: storage.Updated, Key: key, Revision: rev}
	switch {
	case !exists:
		event.Type = storage.Deleted
		delete(f.created, key)
	case f.created[key] == 0:
		event.Type = storage.Created
		f.created[key] = rev
	}
	if exists {
		event.Value, event.CreateRevision = []byte("x"), f.created[key]
	}
	f.source.batches <- storage.Batch{Events: []storage.Event{event}, Revision: rev}
	<-f.source.applied
}
