package deviceadmin_test

import (
	"context"
	"errors"
	"testing"

	resourcev1beta1 "k8s.io/api/resource/v1beta1"
	resourcev1beta2 "k8s.io/api/resource/v1beta2"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"

	"binnacle/services/apiserver/internal/admission"
	"binnacle/services/apiserver/internal/admission/plugins/deviceadmin"
	"binnacle/services/apiserver/internal/registry"
)

// namespaces looks up labels. The namespace "admins" has the label admin-access: true, "false" has
// admin-access: false, and "users" has no label. The lookup of any other name fails.
type namespaces struct{}

func (namespaces) Labels(_ context.Context, name string) (map[string]string, error) {
	switch name {
	case "admins":
		return map[string]string{"resource.k8s.io/admin-access": "true"}, nil
	case "false":
		return map[string]string{"resource.k8s.io/admin-access": "false"}, nil
	case "users":
		return nil, nil
	}
	return map[string]string{"resource.k8s.io/admin-access": "true"}, errors.New("no answer")
}

// Values of adminAccess.
var yes, no = true, false

// The functions below return objects with one device request, or one allocation result, for each
// value of adminAccess. Functions with Beta2 in their names return objects of v1beta2, the others
// of v1beta1.

func beta1Requests(access ...*bool) (out []resourcev1beta1.DeviceRequest) {
	for _, a := range access {
		out = append(out, resourcev1beta1.DeviceRequest{AdminAccess: a})
	}
	return out
}

func beta2Requests(access ...*bool) (out []resourcev1beta2.DeviceRequest) {
	for _, a := range access {
		out = append(out, resourcev1beta2.DeviceRequest{Exactly: &resourcev1beta2.ExactDeviceRequest{AdminAccess: a}})
	}
	return append(out, resourcev1beta2.DeviceRequest{})
}

func claim(access ...*bool) runtime.Object {
	c := &resourcev1beta1.ResourceClaim{}
	c.Spec.Devices.Requests = beta1Requests(access...)
	return c
}

func claimBeta2(access ...*bool) runtime.Object {
	c := &resourcev1beta2.ResourceClaim{}
	c.Spec.Devices.Requests = beta2Requests(access...)
	return c
}

func template(access ...*bool) runtime.Object {
	c := &resourcev1beta1.ResourceClaimTemplate{}
	c.Spec.Spec.Devices.Requests = beta1Requests(access...)
	return c
}

func templateBeta2(access ...*bool) runtime.Object {
	c := &resourcev1beta2.ResourceClaimTemplate{}
	c.Spec.Spec.Devices.Requests = beta2Requests(access...)
	return c
}

func allocated(access ...*bool) runtime.Object {
	resourceClaim := &resourcev1beta1.ResourceClaim{
		Status: resourcev1beta1.ResourceClaimStatus{Allocation: &resourcev1beta1.AllocationResult{}},
	}
	for _, a := range access {
		resourceClaim.Status.Allocation.Devices.Results = append(resourceClaim.Status.Allocation.Devices.Results,
			resourcev1beta1.DeviceRequestAllocationResult{AdminAccess: a})
	}
	return resourceClaim
}

func allocatedBeta2(access ...*bool) runtime.Object {
	resourceClaim := &resourcev1beta2.ResourceClaim{
		Status: resourcev1beta2.ResourceClaimStatus{Allocation: &resourcev1beta2.AllocationResult{}},
	}
	for _, a := range access {
		resourceClaim.Status.Allocation.Devices.Results = append(resourceClaim.Status.Allocation.Devices.Results,
			resourcev1beta2.DeviceRequestAllocationResult{AdminAccess: a})
	}
	return resourceClaim
}

// TestAdminAccessRequiresNamespaceLabel checks that admin access to devices can be requested and
// allocated only in a namespace with the label resource.k8s.io/admin-access: true.
func TestAdminAccessRequiresNamespaceLabel(t *testing.T) {
	const (
		labelRequired = "Forbidden: admin access to devices requires the `resource.k8s.io/admin-access: true` label on the containing namespace"
		lookupFailed  = "Internal error: could not retrieve namespace to verify admin access: no answer"
	)
	plugin := &deviceadmin.Plugin{Namespaces: namespaces{}}
	for name, test := range map[string]struct {
		namespace, group, subresource string
		op                            admission.Operation
		obj, old                      runtime.Object
		wantField, wantMessage        string // of the only cause; no error if empty
	}{
		"label is true": {namespace: "admins", op: admission.Create, obj: claim(&yes)},
		"without a label": {
			namespace: "users", op: admission.Create, obj: claim(nil, &no, &yes),
			wantField: "spec.devices.requests[2].adminAccess", wantMessage: labelRequired,
		},
		"label is false": {
			namespace: "false", op: admission.Create, obj: claim(&yes, &yes),
			wantField: "spec.devices.requests[0].adminAccess", wantMessage: labelRequired,
		},
		"namespace lookup fails": {
			namespace: "lost", op: admission.Create, obj: claim(&yes),
			wantField: "spec.devices.requests[0].adminAccess", wantMessage: lookupFailed,
		},
		"no admin access requested": {namespace: "lost", op: admission.Create, obj: claim(nil, &no)},
		"v1beta2": {
			namespace: "users", op: admission.Create, obj: claimBeta2(&yes),
			wantField: "spec.devices.requests[0].adminAccess", wantMessage: labelRequired,
		},
		"v1beta2, no admin access requested": {namespace: "users", op: admission.Create, obj: claimBeta2(nil)},
		"template": {
			namespace: "users", op: admission.Create, obj: template(&yes),
			wantField: "spec.devices.requests[0].adminAccess", wantMessage: labelRequired,
		},
		"template, v1beta2": {
			namespace: "users", op: admission.Create, obj: templateBeta2(&yes),
			wantField: "spec.devices.requests[0].adminAccess", wantMessage: labelRequired,
		},
		"update: the create was checked":      {namespace: "users", op: admission.Update, obj: claim(&yes), old: claim(&yes)},
		"device class, which has no requests": {namespace: "users", op: admission.Create, obj: &resourcev1beta1.DeviceClass{}},
		"other group":                         {namespace: "users", group: "example.com", op: admission.Create, obj: claim(&yes)},
		"allocation, label is true":           {namespace: "admins", subresource: "status", op: admission.Update, obj: allocated(&yes), old: claim(&yes)},
		"allocation without a label": {
			namespace: "users", subresource: "status", op: admission.Update, obj: allocated(&no, &yes), old: claim(&yes),
			wantField: "status.allocation.devices.results[1].adminAccess", wantMessage: labelRequired,
		},
		"allocation, namespace lookup fails": {
			namespace: "lost", subresource: "status", op: admission.Update, obj: allocated(&yes), old: allocated(&no),
			wantField: "status.allocation.devices.results[0].adminAccess", wantMessage: lookupFailed,
		},
		"allocation, v1beta2": {
			namespace: "users", subresource: "status", op: admission.Update, obj: allocatedBeta2(&yes),
			old: claimBeta2(&yes), wantField: "status.allocation.devices.results[0].adminAccess",
			wantMessage: labelRequired,
		},
		"unchanged allocation": {namespace: "users", subresource: "status", op: admission.Update, obj: allocated(&yes), old: allocated(&yes)},
		"unchanged allocation, v1beta2": {
			namespace: "users", subresource: "status", op: admission.Update, obj: allocatedBeta2(&yes),
			old: allocatedBeta2(&no, &yes),
		},
		"status without allocation": {namespace: "users", subresource: "status", op: admission.Update, obj: claimBeta2(&yes), old: claimBeta2(&yes)},
		"delete":                    {namespace: "users", op: admission.Delete, old: claim(&yes)},
	} {
		t.Run(name, func(t *testing.T) {
			kind := &registry.Kind{
				Names: registry.Names{
					Group:    resourcev1beta1.GroupName,
					Version:  "v1beta1",
					Resource: "resourceclaims",
					Kind:     "ResourceClaim",
				},
			}
			if test.group != "" {
				kind.Group = test.group
			}
			err := plugin.Validate(context.Background(), &admission.Request{
				Operation: test.op, Resource: kind, Subresource: test.subresource, Namespace: test.namespace, Name: "c", Object: test.obj, OldObject: test.old,
			})
			if test.wantMessage == "" {
				if err != nil {
					t.Errorf("got error %v, want none", err)
				}
				return
			}
			var apiStatus apierrors.APIStatus
			if !errors.As(err, &apiStatus) || !apierrors.IsInvalid(err) {
				t.Fatalf("got error %v, want an Invalid status", err)
			}
			causes := apiStatus.Status().Details.Causes
			if len(causes) != 1 || causes[0].Field != test.wantField || causes[0].Message != test.wantMessage {
				t.Errorf("got causes %+v, want %s: %s", causes, test.wantField, test.wantMessage)
			}
		})
	}
}
