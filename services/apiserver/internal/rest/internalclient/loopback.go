// Package internalclient sends typed requests of the server to itself without a network connection.
// A Client passes them to a Door. The Door of the server, Server, performs writes like those of
// clients, with admission, field ownership and the rules of the kind.
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

// Ref is the target of a call: a collection, an object or a subresource.
type Ref struct {
	schema.GroupVersionResource
	Namespace, Name, Sub string
}

// Of returns a collection. namespace is empty for all namespaces and for cluster-scoped resources.
func Of(group, version, resource, namespace string) Ref {
	return Ref{GroupVersionResource: schema.GroupVersionResource{Group: group, Version: version, Resource: resource}, Namespace: namespace}
}

// Named returns an object of the collection.
func (r Ref) Named(name string) Ref {
	r.Name = name
	return r
}

// Under returns a subresource of the object.
func (r Ref) Under(sub string) Ref {
	r.Sub = sub
	return r
}

func (r Ref) String() string {
	return fmt.Sprintf("%s %s/%s/%s", r.GroupResource(), r.Namespace, r.Name, r.Sub)
}

// Client makes calls with the identity of the server.
type Client struct {
	Door Door
	// Manager is the field manager of writes. The default is the name of the server.
	Manager string
}

// As returns a client with another field manager.
func (c *Client) As(manager string) *Client {
	as := *c
	as.Manager = manager
	return &as
}

func (c *Client) do(ctx context.Context, call Call, out any) error {
	call.Manager = cmp.Or(c.Manager, request.SelfManager)
	return c.Door.Do(ctx, call, out)
}

// Get reads the newest state of an object.
func (c *Client) Get(ctx context.Context, ref Ref, out any) error {
	return c.do(ctx, Call{Verb: Get, Ref: ref}, out)
}

// Known reads an object as the cache has it; out may be nil.
func (c *Client) Known(ctx context.Context, ref Ref, out any) error {
	return c.do(ctx, Call{Verb: Get, Ref: ref, Known: true}, out)
}

// List reads the newest state of a collection; labels nil selects all.
func (c *Client) List(ctx context.Context, ref Ref, labels map[string]string, out any) error {
	return c.do(ctx, Call{Verb: List, Ref: ref, Labels: labels}, out)
}

// ListKnown is List of what the cache has.
func (c *Client) ListKnown(ctx context.Context, ref Ref, labels map[string]string, out any) error {
	return c.do(ctx, Call{Verb: List, Ref: ref, Labels: labels, Known: true}, out)
}

// Create creates an object in a collection.
func (c *Client) Create(ctx context.Context, ref Ref, obj any) error {
	return c.do(ctx, Call{Verb: Create, Ref: ref, Sent: obj}, nil)
}

// Update replaces an object; out may be nil.
func (c *Client) Update(ctx context.Context, ref Ref, obj, out any) error {
	return c.do(ctx, Call{Verb: Update, Ref: ref, Sent: obj}, out)
}

// Delete deletes an object; o may be nil.
func (c *Client) Delete(ctx context.Context, ref Ref, o *metav1.DeleteOptions) error {
	return c.do(ctx, Call{Verb: Delete, Ref: ref, Delete: o}, nil)
}

// Patch sends a JSON merge patch, which is made only while all premises hold: it is a
// conflict otherwise.
func (c *Client) Patch(ctx context.Context, ref Ref, patch any, while ...storage.Premise) error {
	return c.do(ctx, Call{Verb: Patch, Ref: ref, Sent: patch, Patch: types.MergePatchType, While: while}, nil)
}

// Apply applies what its manager wants of an object, also against others.
func (c *Client) Apply(ctx context.Context, ref Ref, wanted any) error {
	return c.do(ctx, Call{Verb: Patch, Ref: ref, Sent: wanted, Patch: types.ApplyPatchType, Force: true}, nil)
}

// Ensure creates an object that does not exist.
func (c *Client) Ensure(ctx context.Context, collection Ref, obj registry.Object) error {
	if err := c.Known(ctx, collection.Named(obj.GetName()), nil); err == nil {
		return nil
	}
	if err := c.Create(ctx, collection, obj); !apierrors.IsAlreadyExists(err) {
		return err
	}
	return nil
}

// Put creates an object, or updates the live object with change. change returns false if there is
// nothing to update.
func Put[T registry.Object](ctx context.Context, c *Client, collection Ref, fresh T, change func(live T) bool) error {
	at := collection.Named(fresh.GetName())
	for range 5 {
		live := fresh.DeepCopyObject().(T)
		err := c.Get(ctx, at, live)
		switch {
		case apierrors.IsNotFound(err):
			err = c.Create(ctx, collection, fresh)
		case err != nil:
			return err
		case !change(live):
			return nil
		default:
			err = c.Update(ctx, at, live, nil)
		}
		if err == nil || !apierrors.IsConflict(err) && !apierrors.IsAlreadyExists(err) {
			return err
		}
	}
	return fmt.Errorf("%s: too many conflicting updates", at)
}

// LabelSecret sets a label of an existing secret.
func (c *Client) LabelSecret(ctx context.Context, namespace, name, label, value string) error {
	at := Of("", "v1", "secrets", namespace).Named(name)
	for range 5 {
		var s corev1.Secret
		if err := c.Get(ctx, at, &s); err != nil {
			return err
		}
		if s.Labels[label] == value {
			return nil
		}
		metav1.SetMetaDataLabel(&s.ObjectMeta, label, value)
		if err := c.Update(ctx, at, &s, nil); !apierrors.IsConflict(err) {
			return err
		}
	}
	return fmt.Errorf("%s: too many conflicting updates", at)
}
