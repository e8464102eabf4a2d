package writes_test

import (
	"context"
	"errors"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"binnacle/services/apiserver/internal/registry"
	"binnacle/services/apiserver/internal/rest/writes"
)

// TestServerUpdatesRetry checks that UpdateStored and UpdateUnvalidated repeat a change on the
// current object after a conflict, return an error of the change, and write nothing in a dry run.
func TestServerUpdatesRetry(t *testing.T) {
	b := newBase(t)
	setData := func(o registry.Object) error {
		o.(*corev1.ConfigMap).Data["b"] = "1"
		return nil
	}
	for name, write := range map[string]func(
		*writes.Writer,
		context.Context,
		*writes.Request,
		func(registry.Object) error,
	) (writes.Result, error){
		"UpdateStored":      (*writes.Writer).UpdateStored,
		"UpdateUnvalidated": (*writes.Writer).UpdateUnvalidated,
	} {
		t.Run(name, func(t *testing.T) {
			f := b.fixture(t)
			f.storeDirectly(f.kind("configmaps"), storedConfigMap("a", "0"))
			f.syncCache()
			f.store.beforeSwap = func(n int, key string, _ []byte) (bool, error) {
				if n == 1 {
					overwriteWith(storedConfigMap("a", "5"))(f, key)
				}
				return false, nil
			}
			if _, err := write(f.writer, context.Background(), f.requestFor("c"), setData); err != nil {
				t.Fatal(err)
			}
			if got := summarize(f.storedObject(f.kind("configmaps"), "c")); got != "a=5 b=1" {
				t.Errorf("got %q, want a=5 b=1", got)
			}
			if called := len(f.validated) > 0; called != (name == "UpdateStored") {
				t.Errorf("%s called admission: %t, want only UpdateStored to call it", name, called)
			}
			rejection := errors.New("no")
			if _, err := write(f.writer, context.Background(), f.requestFor("c"),
				func(registry.Object) error { return rejection }); !errors.Is(err, rejection) {
				t.Errorf("got %v, want the error of the change", err)
			}
			r := f.requestFor("c")
			r.DryRun = true
			f.store.swaps = 0
			if _, err := write(f.writer, context.Background(), r, func(o registry.Object) error {
				o.(*corev1.ConfigMap).Data["b"] = "2"
				return nil
			}); err != nil || f.store.swaps != 0 {
				t.Errorf("dry run: got %v, %d swaps, want 0", err, f.store.swaps)
			}
		})
	}
}
