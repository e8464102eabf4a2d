package garbagecollector

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/util/retry"

	"binnacle/services/controllers/internal/garbagecollector/graph"
	"binnacle/services/controllers/internal/resources"
)

const (
	// tableAge is the maximum age of the discovery data in Controller.Resources, which maps kinds to
	// resources. The graph refreshes it when definitions change.
	tableAge = time.Minute
	// parallelOrphans is the number of dependents of an owner that are orphaned at the same time. It
	// is small, because their requests wait in the same queue as those for other namespaces.
	parallelOrphans = 4
	// requestTimeout bounds one request.
	requestTimeout = 30 * time.Second
)

// resourceOf returns the resource of an object.
func (c *Controller) resourceOf(ctx context.Context, id graph.Identity) (*resources.Resource, error) {
	table, err := c.Resources.Get(ctx, tableAge)
	if err != nil {
		return nil, err
	}
	return table.ByKind(id.APIVersion, id.Kind)
}

// clientFor returns the client of an object's resource in its namespace. A cluster-scoped dependent
// may refer to an owner of a namespaced kind. Such an owner cannot be looked up, so its absence
// cannot be verified either.
func (c *Controller) clientFor(ctx context.Context, id graph.Identity) (metadata.ResourceInterface, error) {
	resource, err := c.resourceOf(ctx, id)
	if err != nil {
		return nil, err
	}
	client := c.Client.Resource(resource.GroupVersionResource)
	if !resource.Namespaced { // id may have a namespace nevertheless: that of a virtual node is a guess
		return client, nil
	}
	if id.Namespace == "" {
		return nil, errNamespacedOwner
	}
	return client.Namespace(id.Namespace), nil
}

// getObject reads an object.
func (c *Controller) getObject(ctx context.Context, id graph.Identity) (*metav1.PartialObjectMetadata, error) {
	client, err := c.clientFor(ctx, id)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	return client.Get(ctx, id.Name, metav1.GetOptions{})
}

// deleteUnchanged deletes an object if its owner references are those of latest. It requires the
// resource version of latest first. On a conflict it reads the object, and deletes it without that
// precondition if only other fields have changed.
func (c *Controller) deleteUnchanged(ctx context.Context, id graph.Identity, latest *metav1.PartialObjectMetadata,
	policy metav1.DeletionPropagation) error {
	client, err := c.clientFor(ctx, id)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	options := metav1.DeleteOptions{
		Preconditions:     &metav1.Preconditions{UID: &id.UID, ResourceVersion: &latest.ResourceVersion},
		PropagationPolicy: &policy,
	}
	err = client.Delete(ctx, id.Name, options)
	if !apierrors.IsConflict(err) {
		return err
	}

	live, liveErr := client.Get(ctx, id.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(liveErr) {
		return liveErr
	}
	if liveErr != nil || live.UID != id.UID || !reflect.DeepEqual(live.OwnerReferences, latest.OwnerReferences) {
		return err
	}
	options.Preconditions.ResourceVersion = nil
	return client.Delete(ctx, id.Name, options)
}

// isAbsent reports whether an error states that an object does not exist. A server that does not
// serve the resource at the moment also returns "not found", but names no object.
func isAbsent(err error) bool {
	var s apierrors.APIStatus
	if !apierrors.IsNotFound(err) || !errors.As(err, &s) {
		return false
	}
	details := s.Status().Details
	return details != nil && details.Name != ""
}

// patchObject patches the metadata of an object and returns the patched object.
func (c *Controller) patchObject(ctx context.Context, id graph.Identity, format types.PatchType,
	meta map[string]any) (*metav1.PartialObjectMetadata, error) {
	client, err := c.clientFor(ctx, id)
	if err != nil {
		return nil, err
	}
	body, err := json.Marshal(map[string]any{"metadata": meta})
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	return client.Patch(ctx, id.Name, format, body, metav1.PatchOptions{})
}

// removeOwners removes owner references. Resources without strategic merge patches need the
// complete list of references instead.
func (c *Controller) removeOwners(ctx context.Context, id graph.Identity, owners []types.UID) error {
	var refs []map[string]any
	for _, uid := range owners {
		refs = append(refs, map[string]any{"$patch": "delete", "uid": uid})
	}
	_, err := c.patchObject(ctx, id, types.StrategicMergePatchType, map[string]any{"uid": id.UID, "ownerReferences": refs})
	if !apierrors.IsUnsupportedMediaType(err) {
		return err
	}
	latest, err := c.getObject(ctx, id)
	if err != nil {
		return err
	}
	removed := sets.New(owners...)
	remaining := slices.DeleteFunc(latest.OwnerReferences, func(r metav1.OwnerReference) bool { return removed.Has(r.UID) })
	_, err = c.replaceOwners(ctx, id, latest, remaining)
	return err
}

// unblockOwners makes all owner references of an object non-blocking, and updates latest. It does
// not read the object again: the caller has looked up the owners in latest, and a new version could
// have other ones.
func (c *Controller) unblockOwners(ctx context.Context, id graph.Identity, latest *metav1.PartialObjectMetadata) error {
	refs := slices.Clone(latest.OwnerReferences)
	for i := range refs {
		refs[i].BlockOwnerDeletion = new(bool)
	}
	patched, err := c.replaceOwners(ctx, id, latest, refs)
	if err == nil {
		*latest = *patched
	}
	return err
}

// replaceOwners replaces the owner references of an object that is unchanged.
func (c *Controller) replaceOwners(ctx context.Context, id graph.Identity, latest *metav1.PartialObjectMetadata,
	refs []metav1.OwnerReference) (*metav1.PartialObjectMetadata, error) {
	if refs == nil {
		refs = []metav1.OwnerReference{}
	}
	return c.patchObject(ctx, id, types.MergePatchType, map[string]any{
		"uid": id.UID, "resourceVersion": latest.ResourceVersion, "ownerReferences": refs,
	})
}

// removeFinalizer removes a finalizer of an object, if it exists.
func (c *Controller) removeFinalizer(ctx context.Context, id graph.Identity, finalizer string) error {
	return retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		latest, err := c.getObject(ctx, id)
		if err != nil {
			return ignoreNotFound(err)
		}
		if latest.UID != id.UID || !slices.Contains(latest.Finalizers, finalizer) {
			return nil
		}
		remaining := slices.DeleteFunc(latest.Finalizers, func(f string) bool { return f == finalizer })
		_, err = c.patchObject(ctx, id, types.MergePatchType, map[string]any{
			"resourceVersion": latest.ResourceVersion, "finalizers": remaining,
		})
		return ignoreNotFound(err)
	})
}

// orphanDependents removes the references to an owner from its dependents.
func (c *Controller) orphanDependents(ctx context.Context, owner graph.Identity, dependents []graph.Dependent) error {
	errs := make([]error, len(dependents))
	var group errgroup.Group
	group.SetLimit(parallelOrphans)
	for i := range dependents {
		group.Go(func() error {
			errs[i] = ignoreNotFound(c.removeOwners(ctx, dependents[i].Identity, []types.UID{owner.UID}))
			return nil
		})
	}
	_ = group.Wait()
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("failed to orphan dependents of owner %s %s/%s: %w", owner.Kind, owner.Namespace, owner.Name, err)
	}
	return nil
}
