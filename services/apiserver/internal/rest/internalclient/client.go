// Package internalclient lets the server send requests to itself. A Client sends calls to a Doer.
// The Server executes them like requests of clients: admission, field management and validation
// apply. Transport sends plain HTTP requests.
package internalclient

import (
	"cmp"
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"binnacle/services/apiserver/internal/registry"
	"binnacle/services/apiserver/internal/request"
	"binnacle/services/apiserver/internal/storage"
)

// Ref names a collection, an object of it, or a subresource.
type Ref struct {
	schema.GroupVersionResource
	Namespace, Name, Sub string
}

// Collection returns a reference to a collection. namespace is empty for
// all namespaces and for cluster-scoped resources.
func Collection(group, version, resource, namespace string) Ref {
	return Ref{
		GroupVersionResource: schema.GroupVersionResource{Group: group, Version: version, Resource: resource},
		Namespace:            namespace,
	}
}

// Named returns a reference to an object of the collection.
func (r Ref) Named(name string) Ref {
	r.Name = name
	return r
}

// Subresource returns a reference to a subresource of the object.
func (r Ref) Subresource(sub string) Ref {
	r.Sub = sub
	return r
}

func (r Ref) String() string {
	return fmt.Sprintf("%s %s/%s/%s", r.GroupResource(), r.Namespace, r.Name, r.Sub)
}

// Client sends calls with the server's own identity.
type Client struct {
	Doer Doer
	// Manager is the field manager; empty means the server's own name.
	Manager string
}

// WithManager returns a client with another field manager.
func (c *Client) WithManager(manager string) *Client {
	withManager := *c
	withManager.Manager = manager
	return &withManager
}

// send executes a call as the client's field manager.
func (c *Client) send(ctx context.Context, call Call, out any) error {
	call.Manager = cmp.Or(c.Manager, request.SelfManager)
	return c.Doer.Do(ctx, call, out)
}

// Get reads the newest state of an object.
func (c *Client) Get(ctx context.Context, ref Ref, out any) error {
	return c.send(ctx, Call{Verb: Get, Ref: ref}, out)
}

// GetCached reads an object from the cache, which may be stale; out may be nil.
func (c *Client) GetCached(ctx context.Context, ref Ref, out any) error {
	return c.send(ctx, Call{Verb: Get, Ref: ref, Cached: true}, out)
}

// List reads the newest state of a collection. A nil labels selects all objects.
func (c *Client) List(ctx context.Context, ref Ref, labels map[string]string, out any) error {
	return c.send(ctx, Call{Verb: List, Ref: ref, Labels: labels}, out)
}

// ListCached reads a collection from the cache, which may be stale. A nil labels selects all
// objects.
func (c *Client) ListCached(ctx context.Context, ref Ref, labels map[string]string, out any) error {
	return c.send(ctx, Call{Verb: List, Ref: ref, Labels: labels, Cached: true}, out)
}

// Create creates an object in a collection.
func (c *Client) Create(ctx context.Context, ref Ref, obj any) error {
	return c.send(ctx, Call{Verb: Create, Ref: ref, Body: obj}, nil)
}

// Update replaces an object; out may be nil.
func (c *Client) Update(ctx context.Context, ref Ref, obj, out any) error {
	return c.send(ctx, Call{Verb: Update, Ref: ref, Body: obj}, out)
}

// Delete deletes an object; o may be nil.
func (c *Client) Delete(ctx context.Context, ref Ref, o *metav1.DeleteOptions) error {
	return c.send(ctx, Call{Verb: Delete, Ref: ref, Delete: o}, nil)
}

// Patch sends a JSON merge patch. It returns a conflict if a precondition does not hold.
func (c *Client) Patch(ctx context.Context, ref Ref, patch any, preconditions ...storage.Precondition) error {
	return c.send(ctx, Call{Verb: Patch, Ref: ref, Body: patch, Patch: types.MergePatchType, Preconditions: preconditions}, nil)
}

// Apply applies the desired state of the client's field manager, and takes over fields of other
// managers.
func (c *Client) Apply(ctx context.Context, ref Ref, desired any) error {
	return c.send(ctx, Call{Verb: Patch, Ref: ref, Body: desired, Patch: types.ApplyPatchType, Force: true}, nil)
}

// Status is desired state for Apply that consists of a status.
type Status struct {
	metav1.TypeMeta `json:",inline"`
	Metadata        StatusMetadata `json:"metadata"`
	Status          any            `json:"status"`
}

// StatusMetadata names the object of a Status. The write fails for another UID or resource version,
// unless they are empty.
type StatusMetadata struct {
	Name            string    `json:"name"`
	UID             types.UID `json:"uid,omitempty"`
	ResourceVersion string    `json:"resourceVersion,omitempty"`
}

// NewStatus returns the status of an object of a kind.
func NewStatus(kind schema.GroupVersionKind, object StatusMetadata, status any) *Status {
	apiVersion, name := kind.ToAPIVersionAndKind()
	return &Status{TypeMeta: metav1.TypeMeta{APIVersion: apiVersion, Kind: name}, Metadata: object, Status: status}
}

// Ensure creates an object if it does not exist.
func (c *Client) Ensure(ctx context.Context, collection Ref, obj registry.Object) error {
	if err := c.GetCached(ctx, collection.Named(obj.GetName()), nil); err == nil {
		return nil
	}
	if err := c.Create(ctx, collection, obj); !apierrors.IsAlreadyExists(err) {
		return err
	}
	return nil
}

// maxWriteAttempts is how often a write is attempted that conflicts with other writers.
const maxWriteAttempts = 5

// Put creates fresh, or updates the existing object with change. change returns false if no update is
// needed. Put retries conflicts, up to maxWriteAttempts attempts.
func Put[T registry.Object](ctx context.Context, client *Client, collection Ref, fresh T, change func(live T) bool) error {
	ref := collection.Named(fresh.GetName())
	for range maxWriteAttempts {
		live := fresh.DeepCopyObject().(T)
		err := client.Get(ctx, ref, live)
		switch {
		case apierrors.IsNotFound(err):
			err = client.Create(ctx, collection, fresh)
		case err != nil:
			return err
		case !change(live):
			return nil
		default:
			err = client.Update(ctx, ref, live, nil)
		}
		isConflict := apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err)
		if !isConflict {
			return err
		}
	}
	return fmt.Errorf("%s: too many conflicts with other writers", ref)
}

// LabelSecret sets a label of an existing secret. It retries conflicts like Put.
func (c *Client) LabelSecret(ctx context.Context, namespace, name, label, value string) error {
	ref := Collection("", "v1", "secrets", namespace).Named(name)
	for range maxWriteAttempts {
		var secret corev1.Secret
		if err := c.Get(ctx, ref, &secret); err != nil {
			return err
		}
		if secret.Labels[label] == value {
			return nil
		}
		metav1.SetMetaDataLabel(&secret.ObjectMeta, label, value)
		if err := c.Update(ctx, ref, &secret, nil); !apierrors.IsConflict(err) {
			return err
		}
	}
	return fmt.Errorf("%s: too many conflicts with other writers", ref)
}
