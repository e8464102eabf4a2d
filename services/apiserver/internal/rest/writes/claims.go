package writes

import (
	"context"
	"errors"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"binnacle/services/apiserver/internal/admission"
	"binnacle/services/apiserver/internal/registry"
	"binnacle/services/apiserver/internal/storage"
)

// Allocator allocates cluster-wide unique values to the objects of one kind.
type Allocator interface {
	// Complete fills in values that follow from the object, the live object (nil at creation) and
	// the cluster's configuration. It allocates nothing.
	Complete(obj, old registry.Object) field.ErrorList
	// Allocate allocates the values that the object lacks; a dry run allocates nothing. The caller
	// must settle the Claim.
	Allocate(ctx context.Context, obj, old registry.Object, dryRun bool) (Claim, error)
	// Release frees the values of an object that has been removed.
	Release(ctx context.Context, obj registry.Object)
}

// Claim holds the values that an object acquires or frees with its write.
type Claim = admission.Claim

// settleClaim keeps or drops a claim according to the result of the write. If the result is
// unknown, nothing is dropped: the repair loop finds unused values.
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

// noClaim is the claim of kinds without an Allocator.
type noClaim struct{}

func (noClaim) Keep(context.Context) {}

func (noClaim) Drop(context.Context) {}
