package writes

import (
	"context"
	"errors"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"binnacle/services/apiserver/internal/admission"
	"binnacle/services/apiserver/internal/registry"
	"binnacle/services/apiserver/internal/storage"
)

// Allocator gives the objects of one kind what is unique in the cluster.
type Allocator interface {
	// Complete fills in what follows from the object, the live one (nil at
	// creation) and the cluster's configuration. It takes nothing.
	Complete(obj, old registry.Object) field.ErrorList
	// Allocate takes what the object lacks, or pretends to. The Claim has to be
	// settled.
	Allocate(ctx context.Context, obj, old registry.Object, dryRun bool) (Claim, error)
	// Release gives back what an object held that has been removed.
	Release(ctx context.Context, obj registry.Object)
}

// Claim is what an object takes by being written, and gives up by it.
type Claim = admission.Claim

// settleClaim ends a claim by what came of the write. When nobody knows, nothing is
// given back: the repair finds what is not in use.
func settleClaim(ctx context.Context, claim Claim, err error) {
	var exists *storage.ExistsError
	var conflict *storage.ConflictError
	switch {
	case err == nil:
		claim.Keep(ctx)
	case errors.As(err, &exists), errors.As(err, &conflict), errors.Is(err, storage.ErrNotFound), errors.Is(err, storage.ErrTooLarge):
		claim.Drop(ctx)
	}
}

// noClaim is that of kinds which take nothing.
type noClaim struct{}

func (noClaim) Keep(context.Context) {}

func (noClaim) Drop(context.Context) {}
