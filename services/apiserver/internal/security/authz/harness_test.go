package authz_test

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"maps"
	"strconv"
	"strings"
	"sync"
	"testing"

	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"binnacle/libs/node"
	"binnacle/libs/rbac"
	cacheattributes "binnacle/services/apiserver/internal/cache/attributes"
	"binnacle/services/apiserver/internal/cache/objects"
	"binnacle/services/apiserver/internal/cache/watchcache"
	"binnacle/services/apiserver/internal/security/authz"
	"binnacle/services/apiserver/internal/storage"
)

// TestMain fails if a test leaves goroutines behind.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// source is a stream of changes that a test makes.
type source struct {
	mu       sync.Mutex
	revision int64
	stored   map[string]storage.KeyValue
	events   []storage.Event
	wake     chan struct{}
	lost     bool // the stream reports a compaction
}

func newSource() *source {
	return &source{revision: 1, stored: map[string]storage.KeyValue{}, wake: make(chan struct{})}
}

// putObject stores an object, or deletes it if obj is nil.
func (s *source) putObject(key string, obj any) int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.revision++
	event := storage.Event{Key: "/registry/" + key, Revision: s.revision, Type: storage.Deleted}
	_, exists := s.stored[event.Key]
	if obj == nil {
		delete(s.stored, event.Key)
	} else {
		var err error
		if event.Value, err = json.Marshal(obj); err != nil {
			panic(err)
		}
		event.Type = storage.Created
		if exists {
			event.Type = storage.Updated
		}
		s.stored[event.Key] = storage.KeyValue{Key: event.Key, Value: event.Value, ModRevision: s.revision, CreateRevision: s.revision}
	}
	s.events = append(s.events, event)
	close(s.wake)
	s.wake = make(chan struct{})
	return s.revision
}

// restore resets the source to a saved state, without events for the changes since.
func (s *source) restore(revision int64, state map[string]storage.KeyValue) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.revision, s.stored, s.events = revision, state, nil
}

// savedState returns the arguments of restore.
func (s *source) savedState() (int64, map[string]storage.KeyValue) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.revision, maps.Clone(s.stored)
}

// loseStream restarts the stream.
func (s *source) loseStream() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lost = true
	s.events = nil
	close(s.wake)
	s.wake = make(chan struct{})
}

func (s *source) VerifyHistory(_ context.Context, at storage.Position) (int64, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if at.Revision > s.revision {
		return 0, at.HistoryReplaced(s.revision, "it is behind")
	}
	return s.revision, nil
}

func (s *source) Load(_ context.Context, page func([]storage.KeyValue) error) (storage.Position, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lost = false
	var values []storage.KeyValue
	for _, kv := range s.stored {
		values = append(values, kv)
	}
	return storage.Position{Revision: s.revision}, page(values)
}

func (s *source) Progress(context.Context) error { return nil }

func (s *source) Follow(ctx context.Context, from storage.Position, apply func(storage.Batch) error) error {
	after := from.Revision
	for {
		s.mu.Lock()
		batch := storage.Batch{Revision: s.revision}
		for _, ev := range s.events {
			if ev.Revision > after {
				batch.Events = append(batch.Events, ev)
			}
		}
		lost, wake := s.lost, s.wake
		s.mu.Unlock()
		if lost {
			return &storage.CompactedError{}
		}
		if batch.Revision > after {
			if err := apply(batch); err != nil {
				return err
			}
			after = batch.Revision
			continue
		}
		select {
		case <-wake:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// fixture is a policy over a watch cache.
type fixture struct {
	*authz.LocalPolicy
	source    *source
	cache     *watchcache.Cache
	mu        sync.Mutex
	positions []rbac.Position
}

func newFixture(t *testing.T, prepare func(*source)) *fixture {
	t.Helper()
	started := newStoppedFixture(t, prepare)
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() { _ = started.cache.Run(ctx) })
	wg.Go(func() {
		if err := started.Run(ctx); err != nil && !errors.Is(err, context.Canceled) {
			t.Errorf("policy: %v, want none or %v", err, context.Canceled)
		}
	})
	t.Cleanup(func() { cancel(); wg.Wait() })
	return started
}

// newStoppedFixture is newFixture without running goroutines.
func newStoppedFixture(t *testing.T, prepare func(*source)) *fixture {
	t.Helper()
	created := &fixture{source: newSource()}
	if prepare != nil {
		prepare(created.source)
	}
	names := []string{"roles", "clusterroles", "rolebindings", "clusterrolebindings", "pods"}
	var resources []watchcache.ResourceConfig
	for _, n := range names {
		prefix := "/registry/" + n + "/"
		resources = append(resources,
			watchcache.ResourceConfig{
				Name:   n,
				Prefix: prefix,
				Attributes: func(key string, _ []byte) (cacheattributes.Attributes, error) {
					ns, name, ok := strings.Cut(strings.TrimPrefix(key, prefix), "/")
					if !ok {
						ns, name = "", ns
					}
					return cacheattributes.Attributes{Namespace: ns, Name: name}, nil
				},
			})
	}
	cache, err := watchcache.New(watchcache.Config{Source: created.source, CurrentRevision: created.source, Resources: resources})
	if err != nil {
		t.Fatal(err)
	}
	created.cache = cache
	sourceOf := func(name string, object func() metav1.Object) authz.Source {
		return authz.Source{
			Store: cache.Store(name),
			Decode: func(e *objects.Entry) (metav1.Object, error) {
				o := object()
				err := json.Unmarshal(e.Stored(), o)
				o.SetResourceVersion(strconv.FormatInt(e.Revision, 10))
				return o, err
			},
		}
	}
	created.LocalPolicy = authz.NewPolicy(authz.PolicyConfig{
		Cache:  cache,
		Logger: slog.New(slog.DiscardHandler),
		Rules: map[string]authz.Source{
			rbac.KindRole:               sourceOf("roles", func() metav1.Object { return &rbacv1.Role{} }),
			rbac.KindClusterRole:        sourceOf("clusterroles", func() metav1.Object { return &rbacv1.ClusterRole{} }),
			rbac.KindRoleBinding:        sourceOf("rolebindings", func() metav1.Object { return &rbacv1.RoleBinding{} }),
			rbac.KindClusterRoleBinding: sourceOf("clusterrolebindings", func() metav1.Object { return &rbacv1.ClusterRoleBinding{} }),
		},
		Nodes: map[node.Kind]authz.Source{node.Pod: sourceOf("pods", func() metav1.Object { return &corev1.Pod{} })},
	})
	created.OnChange(func(c rbac.Change) {
		created.mu.Lock()
		defer created.mu.Unlock()
		created.positions = append(created.positions, c.Position)
	})
	return created
}

// lastNotified returns the newest position that listeners were notified of.
func (f *fixture) lastNotified() rbac.Position {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.positions[len(f.positions)-1]
}
