package writes_test

import (
	"context"
	"errors"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"binnacle/services/apiserver/internal/registry"
	"binnacle/services/apiserver/internal/rest/writes"
)

// TestModifyAndAlterRetry checks that changes computed by the server are repeated on the current
// object after a conflict.
func TestModifyAndAlterRetry(t *testing.T) {
	b := newBase(t)
	set := func(o registry.Object) error {
		o.(*corev1.ConfigMap).Data["b"] = "1"
		return nil
	}
	for name, write := range map[string]func(
		*writes.Writer,
		context.Context,
		*writes.Request,
		func(registry.Object) error,
	) (writes.Result, error){
		"Modify": (*writes.Writer).UpdateStored, "Alter": (*writes.Writer).UpdateUnvalidated,
	} {
		t.Run(name, func(t *testing.T) {
			w := b.fixture(t)
			w.storeDirectly(w.kind("configmaps"), storedConfigMap("a", "0"))
			w.syncCache()
			w.store.before = func(n int, key string, _ []byte) (bool, error) {
				if n == 1 {
					overwriteFirst(storedConfigMap("a", "5"))(w, key)
				}
				return false, nil
			}
			if _, err := write(w.writer, context.Background(), w.requestFor("c"), set); err != nil {
				t.Fatal(err)
			}
			if got := summarize(w.storedObject(w.kind("configmaps"), "c")); got != "a=5 b=1" {
				t.Errorf("got %q, want a=5 b=1", got)
			}
			if called := len(w.requests) > 0; called != (name == "Modify") {
				t.Errorf("%s: got admission called: %t, want only for Modify", name, called)
			}
			rejection := errors.New("no")
			if _, err := write(w.writer, context.Background(), w.requestFor("c"),
				func(registry.Object) error { return rejection }); !errors.Is(err, rejection) {
				t.Errorf("got %v, want the error of the change", err)
			}
			r := w.requestFor("c")
			r.DryRun = true
			w.store.swaps = 0
			if _, err := write(w.writer, context.Background(), r, func(o registry.Object) error {
				o.(*corev1.ConfigMap).Data["b"] = "2"
				return nil
			}); err != nil || w.store.swaps != 0 {
				t.Errorf("dry run: got %v, %d swaps, want 0", err, w.store.swaps)
			}
		})
	}
}
