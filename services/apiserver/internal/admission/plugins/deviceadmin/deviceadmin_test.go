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

// namespaces has one namespace with the label, one with the value false and one without. Others are
// unknown.
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

var yes, no = true, false

func beta1(access ...*bool) (out []resourcev1beta1.DeviceRequest) {
	for _, a := range access {
		out = append(out, resourcev1beta1.DeviceRequest{AdminAccess: a})
	}
	return out
}

func beta2(access ...*bool) (out []resourcev1beta2.DeviceRequest) {
	for _, a := range access {
		out = append(out, resourcev1beta2.DeviceRequest{Exactly: &resourcev1beta2.ExactDeviceRequest{AdminAccess: a}})
	}
	return append(out, resourcev1beta2.DeviceRequest{})
}

func claim(access ...*bool) runtime.Object {
	c := &resourcev1beta1.ResourceClaim{}
	c.Spec.Devices.Requests = beta1(access...)
	return c
}

func claimBeta2(access ...*bool) runtime.Object {
	c := &resourcev1beta2.ResourceClaim{}
	c.Spec.Devices.Requests = beta2(access...)
	return c
}

func template(access ...*bool) runtime.Object {
	c := &resourcev1beta1.ResourceClaimTemplate{}
	c.Spec.Spec.Devices.Requests = beta1(access...)
	return c
}

func templateBeta2(access ...*bool) runtime.Object {
	c := &resourcev1beta2.ResourceClaimTemplate{}
	c.Spec.Spec.Devices.Requests = beta2(access...)
	return c
}

func allocated(access ...*bool) runtime.Object {
	c := &resourcev1beta1.ResourceClaim{
		Status: resourcev1beta1.ResourceClaimStatus{Allocation: &resourcev1beta1.AllocationResult{}},
	}
	for _, a := range access {
		c.Status.Allocation.Devices.Results = append(c.Status.Allocation.Devices.Results,
			resourcev1beta1.DeviceRequestAllocationResult{AdminAccess: a})
	}
	return c
}

func allocatedBeta2(access ...*bool) runtime.Object {
	c := &resourcev1beta2.ResourceClaim{
		Status: resourcev1beta2.ResourceClaimStatus{Allocation: &resourcev1beta2.AllocationResult{}},
	}
	for _, a := range access {
		c.Status.Allocation.Devices.Results = append(c.Status.Allocation.Devices.Results,
			resourcev1beta2.DeviceRequestAllocationResult{AdminAccess: a})
	}
	return c
}

// TestAdminAccess allows admin access to devices only in labeled namespaces.
func TestAdminAccess(t *testing.T) {
	const (
		needs   = "admin access to devices requires the `resource.k8s.io/admin-access: true` label on the containing namespace"
		unknown = "Internal error: could not retrieve namespace to verify admin access: no answer"
	)
	plugin := &deviceadmin.Plugin{Namespaces: namespaces{}}
	for name, c := range map[string]struct {
		namespace, group, sub string
		op                    admission.Operation
		o, old                runtime.Object
		field, message        string
	}{
		"allowed": {namespace: "admins", op: admission.Create, o: claim(&yes)},
		"without a label": {
			namespace: "users", op: admission.Create, o: claim(nil, &no, &yes),
			field: "spec.devices.requests[2].adminAccess", message: "Forbidden: " + needs,
		},
		"a label of another value": {
			namespace: "false", op: admission.Create, o: claim(&yes, &yes),
			field: "spec.devices.requests[0].adminAccess", message: "Forbidden: " + needs,
		},
		"unknown namespace": {
			namespace: "lost", op: admission.Create, o: claim(&yes),
			field: "spec.devices.requests[0].adminAccess", message: unknown,
		},
		"no admin access requested": {namespace: "lost", op: admission.Create, o: claim(nil, &no)},
		"the newest version": {
			namespace: "users", op: admission.Create, o: claimBeta2(&yes),
			field: "spec.devices.requests[0].adminAccess", message: "Forbidden: " + needs,
		},
		"the newest version, no admin access requested": {namespace: "users", op: admission.Create, o: claimBeta2(nil)},
		"a template": {
			namespace: "users", op: admission.Create, o: template(&yes),
			field: "spec.devices.requests[0].adminAccess", message: "Forbidden: " + needs,
		},
		"a template of the newest version": {
			namespace: "users", op: admission.Create, o: templateBeta2(&yes),
			field: "spec.devices.requests[0].adminAccess", message: "Forbidden: " + needs,
		},
		"changed: it was looked at before": {namespace: "users", op: admission.Update, o: claim(&yes), old: claim(&yes)},
		"a class has no requests":          {namespace: "users", op: admission.Create, o: &resourcev1beta1.DeviceClass{}},
		"another group":                    {namespace: "users", group: "example.com", op: admission.Create, o: claim(&yes)},
		"allocated":                        {namespace: "admins", sub: "status", op: admission.Update, o: allocated(&yes), old: claim(&yes)},
		"allocated without a label": {
			namespace: "users", sub: "status", op: admission.Update, o: allocated(&no, &yes), old: claim(&yes),
			field: "status.allocation.devices.results[1].adminAccess", message: "Forbidden: " + needs,
		},
		"allocated in an unknown namespace": {
			namespace: "lost", sub: "status", op: admission.Update, o: allocated(&yes), old: allocated(&no),
			field: "status.allocation.devices.results[0].adminAccess", message: unknown,
		},
		"allocated in the newest version": {
			namespace: "users", sub: "status", op: admission.Update, o: allocatedBeta2(&yes),
			old: claimBeta2(&yes), field: "status.allocation.devices.results[0].adminAccess",
			message: "Forbidden: " + needs,
		},
		"unchanged allocation": {namespace: "users", sub: "status", op: admission.Update, o: allocated(&yes), old: allocated(&yes)},
		"unchanged allocation in the newest": {
			namespace: "users", sub: "status", op: admission.Update, o: allocatedBeta2(&yes),
			old: allocatedBeta2(&no, &yes),
		},
		"a status without allocation": {namespace: "users", sub: "status", op: admission.Update, o: claimBeta2(&yes), old: claimBeta2(&yes)},
		"deleted":                     {namespace: "users", op: admission.Delete, old: claim(&yes)},
	} {
		t.Run(name, func(t *testing.T) {
			k := &registry.Kind{
				Names: registry.Names{
					Group:    resourcev1beta1.GroupName,
					Version:  "v1beta1",
					Resource: "resourceclaims",
					Kind:     "ResourceClaim",
				},
			}
			if c.group != "" {
				k.Group = c.group
			}
			err := plugin.Validate(context.Background(), &admission.Request{
				Operation: c.op, Resource: k, Subresource: c.sub, Namespace: c.namespace, Name: "c", Object: c.o, OldObject: c.old,
			})
			if c.message == "" {
				if err != nil {
					t.Errorf("got %v, want no error", err)
				}
				return
			}
			var st apierrors.APIStatus
			if !errors.As(err, &st) || !apierrors.IsInvalid(err) {
				t.Fatalf("got error %v, want an Invalid status", err)
			}
			causes := st.Status().Details.Causes
			if len(causes) != 1 || causes[0].Field != c.field || causes[0].Message != c.message {
				t.Errorf("got causes %+v, want %s: %s", causes, c.field, c.message)
			}
		})
	}
}
