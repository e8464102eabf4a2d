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

func (g noInstances) Count(context.Context, string, string) (int64, error) { return 0, nil }
func (g noInstances) Delete(context.Context, string, string) error         { return nil }
func (g noInstances) None(group, resource string) (storage.Precondition, error) {
	return g.precondition, nil
}

// recordedWrites records the preconditions of each status write.
type recordedWrites [][]storage.Precondition

func (p *recordedWrites) PatchStatus(_ context.Context, _ string, _ any, while ...storage.Precondition) error {
	*p = append(*p, while)
	return nil
}

// TestReleaseRequiresNoInstances: the finalizer is removed on the condition that no instance was
// created since the count.
func TestReleaseRequiresNoInstances(t *testing.T) {
	none := storage.Precondition{Key: "/registry/example.com/things/", Prefix: true}
	var wrote recordedWrites
	c := newCleaner(Config{
		Client: &wrote, Instances: noInstances{none}, Logger: slog.New(slog.DiscardHandler), Now: time.Now,
		Definable: func(string, string) bool { return true },
	})
	d := &v1.CustomResourceDefinition{}
	d.Finalizers = []string{v1.CustomResourceCleanupFinalizer}
	d.Spec.Group, d.Spec.Names.Plural = "example.com", "things"
	SetCondition(&d.Status, *condition(v1.Terminating, true, "InstanceDeletionInProgress", ""), metav1.Now())
	if err := (&job{cleaner: c, established: true}).step(t.Context(), d, 5); err != nil {
		t.Fatal(err)
	}
	if len(wrote) != 1 || !slices.Equal(wrote[0], []storage.Precondition{none}) {
		t.Errorf("got writes %+v", wrote)
	}
}
