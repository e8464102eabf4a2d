package build

import (
	"context"
	"log/slog"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"binnacle/libs/serving/metrics"
	"binnacle/services/apiserver/internal/storage"
)

// TestCachesReceiveStoredObjects checks that an object that is written to the stores appears in the
// caches, without the parts of the server that build creates later.
func TestCachesReceiveStoredObjects(t *testing.T) {
	t.Parallel()
	options := testOptions(t, t.TempDir())
	if err := options.Complete(); err != nil {
		t.Fatal(err)
	}
	life := &lifecycle{}
	t.Cleanup(life.close)
	base, err := newBase(t.Context(), options, slog.New(slog.DiscardHandler), metrics.New(), &listener{port: 1, address: "127.0.0.1:1"}, life)
	if err != nil {
		t.Fatal(err)
	}
	catalogs, err := newCatalogs(base, options)
	if err != nil {
		t.Fatal(err)
	}
	stores, err := newStores(t.Context(), base, options, catalogs, nil)
	if err != nil {
		t.Fatal(err)
	}
	caches, err := newCaches(base, options, catalogs, stores)
	if err != nil {
		t.Fatal(err)
	}
	life.whileServing("test", func(ctx context.Context) error { <-ctx.Done(); return nil })
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- life.run(ctx) }()
	defer func() {
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}()

	secrets := caches.core("secrets")
	value, err := secrets.Coder.EncodeStored(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "s"}})
	if err != nil {
		t.Fatal(err)
	}
	written, err := stores.values.Create(ctx, secrets.Prefix+"ns/s", value, storage.WriteOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if err := caches.cache.WaitReady(ctx); err != nil {
		t.Fatal(err)
	}
	if err := caches.cache.WaitFor(ctx, written); err != nil {
		t.Fatal(err)
	}
	if got, err := caches.objects(false).Secret(ctx, "ns", "s"); err != nil || got.Name != "s" {
		t.Errorf("got %v, %v, want the Secret s", got, err)
	}
}
