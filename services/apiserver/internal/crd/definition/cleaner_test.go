package definition

import (
	"context"
	"log/slog"
	"slices"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "binnacle/services/apiserver/internal/registry/apis/apiextensions/v1"
	"binnacle/services/apiserver/internal/storage"
)

// noInstances is a store without instances.
type noInstances struct{ precondition storage.Precondition }

func (n noInstances) Count(context.Context, string, string) (int64, error) { return 0, nil }
func (n noInstances) Delete(context.Context, string, string) error         { return nil }
func (n noInstances) RequireNoInstances(group, resource string) (storage.Precondition, error) {
	return n.precondition, nil
}

// recordedWrites records the preconditions of each status write.
type recordedWrites [][]storage.Precondition

func (w *recordedWrites) PatchStatus(_ context.Context, _ string, _ any, preconditions ...storage.Precondition) error {
	*w = append(*w, preconditions)
	return nil
}

// TestReleaseRequiresNoInstances checks that the finalizer is removed under the precondition that
// no instance was created since the count.
func TestReleaseRequiresNoInstances(t *testing.T) {
	noObjects := storage.Precondition{Key: "/registry/example.com/things/", Prefix: true}
	var writes recordedWrites
	cleaner := newCleaner(Config{
		Client: &writes, Instances: noInstances{noObjects}, Logger: slog.New(slog.DiscardHandler), Now: time.Now,
		Definable: func(string, string) bool { return true },
	})
	definition := &v1.CustomResourceDefinition{}
	definition.Finalizers = []string{v1.CustomResourceCleanupFinalizer}
	definition.Spec.Group, definition.Spec.Names.Plural = "example.com", "things"
	SetCondition(&definition.Status, *newCondition(v1.Terminating, true, "InstanceDeletionInProgress", ""), metav1.Now())
	if err := (&cleanup{cleaner: cleaner, established: true}).runStep(t.Context(), definition, 5); err != nil {
		t.Fatal(err)
	}
	if len(writes) != 1 || !slices.Equal(writes[0], []storage.Precondition{noObjects}) {
		t.Errorf("got writes with preconditions %+v, want one with %+v", writes, noObjects)
	}
}
