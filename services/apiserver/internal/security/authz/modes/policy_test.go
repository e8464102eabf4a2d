package modes_test

import (
	"context"
	"encoding/json"
	"log/slog"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"binnacle/libs/authorizer"
	"binnacle/libs/rbac"
	"binnacle/services/apiserver/internal/cache/attributes"
	"binnacle/services/apiserver/internal/cache/objects"
	"binnacle/services/apiserver/internal/cache/watchcache"
	"binnacle/services/apiserver/internal/security/authz"
	"binnacle/services/apiserver/internal/security/authz/authzconfig"
	"binnacle/services/apiserver/internal/security/authz/modes"
	"binnacle/services/apiserver/internal/storage"
)

// source is a store without initial objects. Events that a test sends to batches reach its
// followers.
type source struct{ batches chan storage.Batch }

func (s source) Load(context.Context, func([]storage.KeyValue) error) (storage.Position, error) {
	return storage.Position{Revision: 1}, nil
}

func (s source) Follow(ctx context.Context, _ storage.Position, apply func(storage.Batch) error) error {
	for {
		select {
		case batch := <-s.batches:
			if err := apply(batch); err != nil {
				return err
			}
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (source) Progress(context.Context) error { return nil }

func (source) VerifyHistory(context.Context, storage.Position) (int64, error) { return 1, nil }

// newPolicy returns a policy that follows the roles of a store.
func newPolicy(t *testing.T, roles source) *authz.LocalPolicy {
	t.Helper()
	const prefix = "/registry/roles/"
	namespaceAndName := func(key string, _ []byte) (attributes.Attributes, error) {
		namespace, name, _ := strings.Cut(strings.TrimPrefix(key, prefix), "/")
		return attributes.Attributes{Namespace: namespace, Name: name}, nil
	}
	cache, err := watchcache.New(watchcache.Config{
		Source:          roles,
		CurrentRevision: roles,
		Resources:       []watchcache.ResourceConfig{{Name: "roles", Prefix: prefix, Attributes: namespaceAndName}},
	})
	if err != nil {
		t.Fatal(err)
	}
	decodeRole := func(e *objects.Entry) (metav1.Object, error) {
		role := &rbacv1.Role{}
		err := json.Unmarshal(e.Stored(), role)
		role.SetResourceVersion(strconv.FormatInt(e.Revision, 10))
		return role, err
	}
	policy := authz.NewPolicy(authz.PolicyConfig{
		Cache:  cache,
		Logger: slog.New(slog.DiscardHandler),
		Rules:  map[string]authz.Source{rbac.KindRole: {Store: cache.Store("roles"), Decode: decodeRole}},
	})
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() { _ = cache.Run(ctx) })
	wg.Go(func() { _ = policy.Run(ctx) })
	t.Cleanup(func() { cancel(); wg.Wait() })
	return policy
}

// TestPolicyChangeInvalidatesWebhookCache checks that decisions of a webhook are cached until a
// role changes.
func TestPolicyChangeInvalidatesWebhookCache(t *testing.T) {
	var webhookCalls atomic.Int64
	kubeconfig := startWebhook(t, func(string) bool { webhookCalls.Add(1); return true })
	builder, roles := newBuilderWithoutNodes(t), source{make(chan storage.Batch)}
	builder.Policy = newPolicy(t, roles)
	parsed, err := authzconfig.Parse([]byte(webhookFile(kubeconfig)), builder.Conditions)
	if err != nil {
		t.Fatal(err)
	}
	authorizers, err := modes.New(builder, parsed)
	if err != nil {
		t.Fatal(err)
	}
	defer authorizers.Close()
	getPod := newGetRequest("alice")
	getPod.Path = ""
	getPod.Resource = true
	getPod.Namespace = "ns"
	getPod.ResourceName = "pods"
	requireAllowed := func() {
		t.Helper()
		if decision, _, err := authorizers.Authorize(t.Context(), getPod); decision != authorizer.Allow || err != nil {
			t.Fatalf("Authorize(get pods in ns) = %v, %v, want Allow", decision, err)
		}
	}
	requireAllowed()
	requireAllowed()
	if n := webhookCalls.Load(); n != 1 {
		t.Errorf("got %d webhook calls for two equal requests, want 1: the second decision is cached", n)
	}
	roles.batches <- storage.Batch{
		Revision: 2,
		Events: []storage.Event{{
			Type:           storage.Created,
			Key:            "/registry/roles/ns/r",
			Revision:       2,
			CreateRevision: 2,
			Value:          []byte(`{"metadata":{"namespace":"ns","name":"r"}}`),
		}},
	}
	for deadline := time.Now().Add(30 * time.Second); webhookCalls.Load() < 2; runtime.Gosched() {
		if time.Now().After(deadline) {
			t.Fatal("30s after a role was created, decisions still come from the cache, want another webhook call")
		}
		requireAllowed()
	}
}
