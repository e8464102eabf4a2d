package endpoints

import (
	"context"
	"fmt"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"binnacle/services/apiserver/internal/admission"
	"binnacle/services/apiserver/internal/registry"
	"binnacle/services/apiserver/internal/served"
	"binnacle/services/apiserver/internal/status"
)

// operation finds what answers a kind or sub-resource; nil when nobody does.
func (a *API) operation(c *Call) *Operation {
	k := operationKey{of: c.GroupResource()}
	if c.Sub != nil {
		k.sub = c.Sub.Name
	}
	return a.operations[k]
}

// serving is the handler of an operation. One that nobody has is told to be absent.
func (a *API) serving(c *Call) handler {
	if o := a.operation(c); o != nil {
		return o.Serve
	}
	return a.absentOperation
}

// absentOperation says that this server has no such operation.
func (a *API) absentOperation(c *Call) error {
	name := c.Resource
	if c.Sub != nil {
		name += "/" + c.Sub.Name
	}
	return status.Error(http.StatusNotImplemented, "NotImplemented",
		"the server does not offer "+name, &metav1.StatusDetails{Group: c.Group, Kind: c.Resource, Name: c.Op.Name})
}

// carriedOn is the handler of a sub-resource that is carried on to a kubelet, a pod or
// a service: it takes and gives any media type, and ends when the server has to stop. One
// for which there is no place is refused before anything is read for it.
func (a *API) carriedOn(o *Operation) handler {
	if o == nil {
		return a.absentOperation
	}
	return func(c *Call) error {
		ctx, cancel := context.WithCancel(c.Context())
		defer cancel()
		if a.Stopping != nil {
			defer context.AfterFunc(a.Stopping, cancel)()
		}
		c.R = c.R.WithContext(ctx)
		leave, err := a.Carried.Enter(c.R)
		if err != nil {
			return err
		}
		defer leave()
		return o.Serve(c)
	}
}

// Body reads an object of a type from the request's body, as one of kinds that differ
// in their version alone; unknown and duplicate fields are refused, told or ignored.
func (c *Call) Body(validation string, kinds ...schema.GroupVersionKind) (runtime.Object, error) {
	body, media, err := c.api.body(c)
	if err != nil {
		return nil, err
	}
	obj, err := c.api.decodeAs(c, kinds[0], body, media, validation)
	for _, other := range kinds[1:] {
		if err == nil {
			break
		}
		if o, failed := c.api.decodeAs(c, other, body, media, validation); failed == nil {
			obj, err = o, nil
		}
	}
	return obj, err
}

// Admit asks all of admission.
func (c *Call) Admit(ask *admission.Request) error {
	return c.AdmitValid(ask, func() error { return nil })
}

// AdmitValid is Admit of what has rules of its own: valid looks at what those made of it who change
// it, before those are asked who only refuse.
func (c *Call) AdmitValid(ask *admission.Request, valid func() error) error {
	chain := c.api.Writes.Admission
	if err := chain.Mutate(c.Context(), ask); err != nil {
		return err
	}
	if err := valid(); err != nil {
		return err
	}
	return chain.Validate(c.Context(), ask)
}

// Connecting is what admission is asked of a connection.
func (c *Call) Connecting(options runtime.Object) *admission.Request {
	return c.write(nil, nil, "", "").Admission(admission.Connect, options, nil)
}

// Newest waits until what is read of the call's kind is the newest, NewestOf of another
// one, which another store may keep.
func (c *Call) Newest() error                     { return c.newest(c.Context(), c.Store) }
func (c *Call) NewestOf(k *served.Resource) error { return c.newest(c.Context(), k.Store) }

// Kept is a kind that the server keeps, also where clients may not use it.
func (c *Call) Kept(gvr schema.GroupVersionResource) *served.Resource { return c.api.kind(gvr) }

// Fail answers with an error on the way to somebody else (upstream.Responder).
func (c *Call) Fail(w http.ResponseWriter, r *http.Request, err error) { c.api.fail(w, r, err) }

// Newest reads an object as it is now, in the call's namespace if its kind has one.
func Newest[T registry.Object](c *Call, gvr schema.GroupVersionResource, name string) (obj T, err error) {
	k := c.Kept(gvr)
	if err := c.NewestOf(k); err != nil {
		return obj, err
	}
	e, ok := k.Store.Get(k.Key(c.Op.Namespace, name))
	if !ok {
		return obj, apierrors.NewNotFound(k.GroupResource(), name)
	}
	any, err := k.Coder.DecodeStored(e.Stored(), e.Revision)
	if err != nil {
		return obj, err
	}
	if obj, ok = any.(T); !ok {
		return obj, fmt.Errorf("%s %q is a %T", k.Resource, name, any)
	}
	return obj, nil
}
