// Package deviceadmin restricts administrative access to devices (KEP-5018) to namespaces with a
// label that allows it. A new claim or claim template may request such access only in these
// namespaces. A status update may allocate it only there. A claim keeps its access when the label
// is removed. The plugin keeps no state.
package deviceadmin

import (
	"context"
	"fmt"

	resourcev1beta1 "k8s.io/api/resource/v1beta1"
	resourcev1beta2 "k8s.io/api/resource/v1beta2"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"binnacle/services/apiserver/internal/admission"
	"binnacle/services/apiserver/internal/status"
)

// Name is the name of the plugin. Flags cannot disable it.
const Name = "DeviceAdminAccess"

// Namespaces looks up the labels of namespaces. A missing namespace is an error.
type Namespaces interface {
	Labels(ctx context.Context, name string) (map[string]string, error)
}

// Plugin implements admission.Validator.
type Plugin struct{ Namespaces Namespaces }

// Validate implements admission.Validator. Specs cannot change, so it checks them on create only.
// If the feature gate DRAAdminAccess is off, the strategy clears the field before admission.
func (p *Plugin) Validate(ctx context.Context, req *admission.Request) error {
	if req.Resource.Group != resourcev1beta1.GroupName {
		return nil
	}
	var path *field.Path
	switch {
	case req.Operation == admission.Create && req.Subresource == "":
		path = requestedPath(req.Object)
	case req.Operation == admission.Update && req.Subresource == "status" && allocatedPath(req.OldObject) == nil:
		path = allocatedPath(req.Object)
	}
	if path == nil {
		return nil
	}
	labels, err := p.Namespaces.Labels(ctx, req.Namespace)
	switch {
	case err != nil:
		return invalid(req, field.InternalError(path, fmt.Errorf("could not retrieve namespace to verify admin access: %w", err)))
	case labels[resourcev1beta1.DRAAdminNamespaceLabelKey] != "true":
		return invalid(
			req,
			field.Forbidden(path, fmt.Sprintf("admin access to devices requires the `%s: true` label on the containing namespace",
				resourcev1beta1.DRAAdminNamespaceLabelKey)),
		)
	}
	return nil
}

// invalid returns an Invalid error for the object of a request.
func invalid(req *admission.Request, err *field.Error) error {
	return status.Invalid(req.Resource.GroupKind(), req.ObjectName(), field.ErrorList{err})
}

// isTrue reports whether an optional field is set and true.
func isTrue(value *bool) bool { return value != nil && *value }

// adminAccessPath returns the path of the field adminAccess in the first element with
// administrative access, or nil. listPath is the path of the list.
func adminAccessPath[T any](list []T, hasAccess func(*T) bool, listPath ...string) *field.Path {
	for i := range list {
		if hasAccess(&list[i]) {
			return field.NewPath(listPath[0], listPath[1:]...).Index(i).Child("adminAccess")
		}
	}
	return nil
}

// requestedPath returns the path of the field with which a new claim or template requests
// administrative access, or nil. The path is the same in all versions and in templates.
func requestedPath(obj runtime.Object) *field.Path {
	pathInBeta1 := func(list []resourcev1beta1.DeviceRequest) *field.Path {
		return adminAccessPath(
			list,
			func(r *resourcev1beta1.DeviceRequest) bool { return isTrue(r.AdminAccess) },
			"spec",
			"devices",
			"requests",
		)
	}
	pathInBeta2 := func(list []resourcev1beta2.DeviceRequest) *field.Path {
		return adminAccessPath(
			list,
			func(r *resourcev1beta2.DeviceRequest) bool { return r.Exactly != nil && isTrue(r.Exactly.AdminAccess) },
			"spec",
			"devices",
			"requests",
		)
	}
	switch o := obj.(type) {
	case *resourcev1beta1.ResourceClaim:
		return pathInBeta1(o.Spec.Devices.Requests)
	case *resourcev1beta1.ResourceClaimTemplate:
		return pathInBeta1(o.Spec.Spec.Devices.Requests)
	case *resourcev1beta2.ResourceClaim:
		return pathInBeta2(o.Spec.Devices.Requests)
	case *resourcev1beta2.ResourceClaimTemplate:
		return pathInBeta2(o.Spec.Spec.Devices.Requests)
	}
	return nil
}

// allocatedPath returns the path of the field with which the status of a claim allocates
// administrative access, or nil.
func allocatedPath(obj runtime.Object) *field.Path {
	path := []string{"status", "allocation", "devices", "results"}
	switch o := obj.(type) {
	case *resourcev1beta1.ResourceClaim:
		if allocation := o.Status.Allocation; allocation != nil {
			return adminAccessPath(allocation.Devices.Results, func(r *resourcev1beta1.DeviceRequestAllocationResult) bool { return isTrue(r.AdminAccess) }, path...)
		}
	case *resourcev1beta2.ResourceClaim:
		if allocation := o.Status.Allocation; allocation != nil {
			return adminAccessPath(allocation.Devices.Results, func(r *resourcev1beta2.DeviceRequestAllocationResult) bool { return isTrue(r.AdminAccess) }, path...)
		}
	}
	return nil
}
