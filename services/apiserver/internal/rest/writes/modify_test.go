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
	base := newBase(t)
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
			fixture := base.fixture(t)
			fixture.storeDirectly(fixture.kind("configmaps"), storedConfigMap("a", "0"))
			fixture.syncCache()
			fixture.store.beforeSwap = func(n int, key string, _ []byte) (bool, error) {
				if n == 1 {
					overwriteWith(storedConfigMap("a", "5"))(fixture, key)
				}
				return false, nil
			}
			if _, err := write(fixture.writer, context.Background(), fixture.requestFor("c"), setData); err != nil {
				t.Fatal(err)
			}
			if got := summarize(fixture.storedObject(fixture.kind("configmaps"), "c")); got != "a=5 b=1" {
				t.Errorf("got %q, want a=5 b=1", got)
			}
			if called := len(fixture.validated) > 0; called != (name == "UpdateStored") {
				t.Errorf("%s called admission: %t, want only UpdateStored to call it", name, called)
			}
			rejection := errors.New("no")
			if _, err := write(fixture.writer, context.Background(), fixture.requestFor("c"),
				func(registry.Object) error { return rejection }); !errors.Is(err, rejection) {
				t.Errorf("got %v, want the error of the change", err)
			}
			r := fixture.requestFor("c")
			r.DryRun = true
			fixture.store.swaps = 0
			if _, err := write(fixture.writer, context.Background(), r, func(o registry.Object) error {
				o.(*corev1.ConfigMap).Data["b"] = "2"
				return nil
			}); err != nil || fixture.store.swaps != 0 {
				t.Errorf("dry run: got %v, %d swaps, want 0", err, fixture.store.swaps)
			}
		})
	}
}
