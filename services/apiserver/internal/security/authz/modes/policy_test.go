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

// source is a store without initial objects.
type source struct{ batches chan storage.Batch }

func (s source) Load(context.Context, func([]storage.KeyValue) error) (storage.Position, error) {
	return storage.Position{Revision: 1}, nil
}

func (s source) Follow(ctx context.Context, _ storage.Position, apply func(storage.Batch) error) error {
	for {
		select {
		case b := <-s.batches:
			if err := apply(b); err != nil {
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
func newPolicy(t *testing.T, s source) *authz.LocalPolicy {
	t.Helper()
	cache, err := watchcache.New(watchcache.Config{Source: s, CurrentRevision: s, Resources: []watchcache.ResourceConfig{{
		Name: "roles", Prefix: "/registry/roles/", Attributes: func(key string, _ []byte) (attributes.Attributes, error) {
			ns, name, _ := strings.Cut(strings.TrimPrefix(key, "/registry/roles/"), "/")
			return attributes.Attributes{Namespace: ns, Name: name}, nil
		},
	}}})
	if err != nil {
		t.Fatal(err)
	}
	p := authz.NewPolicy(authz.PolicyConfig{Cache: cache, Logger: slog.New(slog.DiscardHandler), Rules: map[string]authz.Source{
		rbac.KindRole: {Store: cache.Store("roles"), Decode: func(e *objects.Entry) (metav1.Object, error) {
			o := &rbacv1.Role{}
			err := json.Unmarshal(e.Stored(), o)
			o.SetResourceVersion(strconv.FormatInt(e.Revision, 10))
			return o, err
		}},
	}})
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() { _ = cache.Run(ctx) })
	wg.Go(func() { _ = p.Run(ctx) })
	t.Cleanup(func() { cancel(); wg.Wait() })
	return p
}

// TestPolicyChangeInvalidatesWebhookCache checks that after a change of the policy, webhooks are
// called again.
func TestPolicyChangeInvalidatesWebhookCache(t *testing.T) {
	var calls atomic.Int64
	file := startWebhook(t, func(string) bool { calls.Add(1); return true })
	b, s := newBuilder(t, false), source{make(chan storage.Batch)}
	b.Policy = newPolicy(t, s)
	parsed, err := authzconfig.Parse([]byte(webhookFile(file)), b.Conditions)
	if err != nil {
		t.Fatal(err)
	}
	r, err := modes.New(b, parsed)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	inNamespace := getX("alice")
	inNamespace.Path = ""
	inNamespace.Resource = true
	inNamespace.Namespace = "ns"
	inNamespace.ResourceName = "pods"
	decisionRevision := func() int64 {
		if d, _, err := r.Authorize(t.Context(), inNamespace); d != authorizer.Allow || err != nil {
			t.Fatalf("got decision %v, %v, want Allow", d, err)
		}
		return calls.Load()
	}
	if n := decisionRevision() + decisionRevision(); n != 2 {
		t.Errorf("got %d calls, want cached decisions", n)
	}
	s.batches <- storage.Batch{Revision: 2, Events: []storage.Event{{
		Type: storage.Created, Key: "/registry/roles/ns/r", Revision: 2, CreateRevision: 2, Value: []byte(`{"metadata":{"namespace":"ns","name":"r"}}`),
	}}}
	for end := time.Now().Add(30 * time.Second); decisionRevision() < 2; runtime.Gosched() {
		if time.Now().After(end) {
			t.Fatal("a decision from before the change is cached")
		}
	}
}
