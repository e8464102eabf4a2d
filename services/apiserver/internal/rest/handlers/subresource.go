package handlers

import (
	"cmp"
	"context"
	"fmt"
	"net/http"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/duration"

	"binnacle/libs/api"
	"binnacle/services/apiserver/internal/admission"
	"binnacle/services/apiserver/internal/api/apiset"
	"binnacle/services/apiserver/internal/codec"
	"binnacle/services/apiserver/internal/registry"
	"binnacle/services/apiserver/internal/rest/responsewriters"
	"binnacle/services/apiserver/internal/rest/writes"
	"binnacle/services/apiserver/internal/status"
)

// subresourceHandler returns the handler of a path below an object.
func (a *API) subresourceHandler(call *Call) handler {
	get, update, patch := a.get, a.update, a.patch
	switch {
	case call.Sub.Scale != nil:
		get = a.getScale
		update = a.updateScale
		patch = a.patchScale
	case call.isParentView():
	default:
		return a.operationHandler(call)
	}
	handle := map[string]handler{"get": get, "update": update, "patch": patch}[call.Info.Verb]
	if handle != nil && call.Sub.Scale != nil {
		return a.requireView(handle, true)
	}
	return handle
}

// requireView returns a handler that first rejects an Accept header that its view does not satisfy;
// see responsewriters.View.
func (a *API) requireView(handle handler, table bool) handler {
	return func(call *Call) error {
		if err := a.AcceptsView(call.R, table); err != nil {
			return err
		}
		return handle(call)
	}
}

// isParentView reports whether a subresource is a view of the parent object itself.
func (c *Call) isParentView() bool {
	return c.Sub.New == nil && (c.Sub.GVK.Kind == "" || c.Sub.GVK.Kind == c.Kind.Kind)
}

// virtualHandler returns the handler of a kind that stores nothing.
func (a *API) virtualHandler(call *Call) handler {
	components := call.Resource == "componentstatuses"
	verb := call.Info.Verb
	switch {
	case components && (verb == "list" || verb == "watch"):
		return a.listComponents
	case components && verb == "get":
		return a.getComponent
	case verb != "create" || !call.HasVerb(verb) || !call.allowsCreate():
		return nil
	}
	return a.operationHandler(call)
}

var scaleGVK = autoscalingv1.SchemeGroupVersion.WithKind("Scale")

// getScale serves GET of the scale subresource.
func (a *API) getScale(call *Call) error {
	if err := rejectExport(call.R.URL.RawQuery); err != nil {
		return err
	}
	version, _ := api.Parameter(call.R.URL.RawQuery, "resourceVersion")
	revision, err := parseRevision(version)
	if err != nil {
		return err
	}
	if err := call.waitForCache(call.Context(), revision); err != nil {
		return err
	}
	entry, ok := call.Store.Get(call.objectKey())
	if !ok {
		return apierrors.NewNotFound(call.GroupResource(), call.Info.Name)
	}
	if entry, err = a.intactEntry(call, entry, revision); err != nil {
		return err
	}
	obj, err := call.Coder.DecodeItem(call.Context(), codec.Item{Stored: entry.Stored(), Revision: entry.Revision})
	if err != nil {
		return a.objectError(entry, err)
	}
	if missing := call.Sub.Scale.Validate; missing != nil {
		if err := missing(obj); err != nil {
			return apierrors.NewInternalError(err)
		}
	}
	return a.writeScaleObject(call, call.Sub.Scale.FromObject(obj))
}

// writeScaleObject writes a scale in the negotiated form.
func (a *API) writeScaleObject(call *Call, scale *autoscalingv1.Scale) error {
	view := responsewriters.View{Object: scale, GVK: scaleGVK, InternalName: "*autoscaling.Scale"}
	nameFormat := ""
	if call.Custom() {
		view.InternalName, nameFormat = "*v1.Scale", "name"
	}
	doc, columns := metav1.ObjectMeta{}.SwaggerDoc(), call.Sub.Scale.Columns
	view.Columns = []metav1.TableColumnDefinition{
		{Name: "Name", Type: "string", Format: nameFormat, Description: doc["name"]},
		{Name: "Desired", Type: "integer", Description: cmp.Or(columns.Desired, autoscalingv1.ScaleSpec{}.SwaggerDoc()["replicas"])},
		{
			Name:        "Available",
			Type:        "integer",
			Description: cmp.Or(columns.Available, autoscalingv1.ScaleStatus{}.SwaggerDoc()["replicas"]),
		},
		{Name: "Age", Type: cmp.Or(columns.AgeType, "string"), Description: doc["creationTimestamp"]},
	}
	view.Cells = []any{
		scale.Name, int64(scale.Spec.Replicas), int64(scale.Status.Replicas),
		duration.HumanDuration(a.Now().Sub(scale.CreationTimestamp.Time)),
	}
	return a.WriteView(call.W, call.R, http.StatusOK, view)
}

// updateScale serves PUT of the scale subresource.
func (a *API) updateScale(call *Call) error {
	req, err := call.UpdateRequest()
	if err != nil {
		return err
	}
	body, media, err := a.readMediaBody(call)
	if err != nil {
		return err
	}
	obj, err := a.decodeAs(call, scaleGVK, body, media, req.FieldValidation)
	if err != nil {
		return err
	}
	scale, ok := obj.(*autoscalingv1.Scale)
	if !ok {
		return fmt.Errorf("%T is not a Scale", obj)
	}
	req.Object = scale
	return a.writeScale(call, req, a.Writer.Update)
}

// patchScale serves PATCH of the scale subresource.
func (a *API) patchScale(call *Call) error {
	req, err := a.patchRequest(call)
	if err != nil {
		return err
	}
	return a.writeScale(call, req, a.Writer.Patch)
}

// writeScale executes a write of a scale and writes the new scale.
func (a *API) writeScale(
	call *Call,
	req *writes.Request,
	write func(context.Context, *writes.Request) (writes.Result, error),
) error {
	res, err := write(call.Context(), req)
	if err != nil {
		return err
	}
	scale, ok := res.Object.(*autoscalingv1.Scale)
	if !ok {
		return fmt.Errorf("%T is not a Scale", res.Object)
	}
	return a.writeScaleObject(call, scale)
}

// operationOf returns the operation of a kind or subresource, or nil.
func (a *API) operationOf(call *Call) *Operation {
	key := operationKey{resource: call.GroupResource()}
	if call.Sub != nil {
		key.subresource = call.Sub.Name
	}
	return a.operations[key]
}

// operationHandler returns the handler of an operation. For a missing operation it returns
// operationNotOffered.
func (a *API) operationHandler(call *Call) handler {
	if operation := a.operationOf(call); operation != nil {
		return a.requireView(operation.Serve, false)
	}
	return a.operationNotOffered
}

// operationNotOffered returns the error that this server does not offer the operation.
func (a *API) operationNotOffered(call *Call) error {
	name := call.Resource
	if call.Sub != nil {
		name += "/" + call.Sub.Name
	}
	return status.Error(http.StatusNotImplemented, "NotImplemented",
		"the server does not offer "+name, &metav1.StatusDetails{Group: call.Group, Kind: call.Resource, Name: call.Info.Name})
}

// proxyHandler returns the handler of a subresource that is proxied to a kubelet, a pod or a
// service. It accepts and returns any media type, and ends when the server stops. Requests beyond
// the limit are rejected before anything is read for them.
func (a *API) proxyHandler(operation *Operation) handler {
	if operation == nil {
		return a.operationNotOffered
	}
	return func(call *Call) error {
		ctx, cancel := context.WithCancel(call.Context())
		defer cancel()
		if a.Stopping != nil {
			defer context.AfterFunc(a.Stopping, cancel)()
		}
		call.R = call.R.WithContext(ctx)
		release, err := a.ProxyLimit.Acquire(call.R)
		if err != nil {
			return err
		}
		defer release()
		return operation.Serve(call)
	}
}

// DecodeBody decodes an object from the request's body as one of the given kinds, which differ only
// in their version. Unknown and duplicate fields are rejected, reported as warnings, or ignored.
func (c *Call) DecodeBody(validation string, kinds ...schema.GroupVersionKind) (runtime.Object, error) {
	body, media, err := c.api.readMediaBody(c)
	if err != nil {
		return nil, err
	}
	obj, err := c.api.decodeAs(c, kinds[0], body, media, validation)
	for _, other := range kinds[1:] {
		if err == nil {
			break
		}
		if o, failed := c.api.decodeAs(c, other, body, media, validation); failed == nil {
			obj = o
			err = nil
		}
	}
	return obj, err
}

// Admit runs all phases of admission.
func (c *Call) Admit(req *admission.Request) error {
	return c.AdmitValid(req, func() error { return nil })
}

// AdmitValid is Admit with a validation between the phases: valid checks the result of mutating
// admission before validating admission runs.
func (c *Call) AdmitValid(req *admission.Request, valid func() error) error {
	chain := c.api.Writer.Admission
	if err := chain.Mutate(c.Context(), req); err != nil {
		return err
	}
	if err := valid(); err != nil {
		return err
	}
	return chain.Validate(c.Context(), req)
}

// ConnectRequest returns the admission request of a connection.
func (c *Call) ConnectRequest(options runtime.Object) *admission.Request {
	write := c.newWriteRequest(nil, nil, "", "") // only the target of the request matters
	return write.Admission(admission.Connect, options, nil)
}

// WaitForCurrent waits until reads of the call's kind return the current state.
func (c *Call) WaitForCurrent() error { return c.waitForCurrent(c.Context(), c.Store) }

// WaitForCurrentOf is WaitForCurrent for another kind, whose objects may be in another store.
func (c *Call) WaitForCurrentOf(kind *apiset.Resource) error {
	return c.waitForCurrent(c.Context(), kind.Store)
}

// StoredKind returns a kind that the server stores, even if clients cannot access it.
func (c *Call) StoredKind(gvr schema.GroupVersionResource) *apiset.Resource {
	return c.api.storedResource(gvr)
}

// WriteError writes an error in place of a kubelet's or a pod's response (kubeletproxy.Responder).
func (c *Call) WriteError(w http.ResponseWriter, r *http.Request, err error) {
	c.api.writeError(w, r, err)
}

// GetCurrent returns the current state of an object, in the call's namespace if its kind is
// namespaced.
func GetCurrent[T registry.Object](call *Call, gvr schema.GroupVersionResource, name string) (obj T, err error) {
	kind := call.StoredKind(gvr)
	if err := call.WaitForCurrentOf(kind); err != nil {
		return obj, err
	}
	entry, ok := kind.Store.Get(kind.Key(call.Info.Namespace, name))
	if !ok {
		return obj, apierrors.NewNotFound(kind.GroupResource(), name)
	}
	decoded, err := kind.Coder.DecodeStored(entry.Stored(), entry.Revision)
	if err != nil {
		return obj, err
	}
	obj, ok = decoded.(T)
	if !ok {
		return obj, fmt.Errorf("%s %q is a %T", kind.Resource, name, decoded)
	}
	return obj, nil
}
