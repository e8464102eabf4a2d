package endpoints

import (
	"context"
	"errors"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/validation/field"

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
type Claim interface {
	Keep(ctx context.Context) // the object was written
	Drop(ctx context.Context) // it was not, and never will be
}

// complete runs the first step of a kind that has an Allocator.
func (a *API) complete(c *call, obj, old registry.Object) error {
	if c.allocator == nil || c.sub != nil {
		return nil
	}
	if errs := c.allocator.Complete(obj, old); len(errs) > 0 {
		return apierrors.NewInvalid(c.GroupKind(), obj.GetName(), errs)
	}
	return nil
}

// allocate runs the second step.
func (a *API) allocate(c *call, obj, old registry.Object, o *writeOptions) (Claim, error) {
	if c.allocator == nil || c.sub != nil {
		return noClaim{}, nil
	}
	return c.allocator.Allocate(c.ctx(), obj, old, o.dryRun)
}

// settle ends a claim by what came of the write. When nobody knows, nothing is
// given back: the repair finds what is not in use.
func settle(ctx context.Context, claim Claim, err error) {
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

// drop gives back what an outcome has taken that is not written.
func (o *outcome) drop(ctx context.Context) {
	if o.claim != nil {
		o.claim.Drop(ctx)
	}
}
