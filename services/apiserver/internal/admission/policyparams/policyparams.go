// Package policyparams prevents users from reading objects through admission policies that they may
// not read directly. The results of a policy reveal the contents of its parameters. Therefore, the
// writer of a policy needs the verb get on all objects of its parameter kind. The writer of a binding
// needs it on the objects to which the binding refers. The plugin keeps no state.
package policyparams

import (
	"context"
	"errors"
	"fmt"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	alphav1 "k8s.io/api/admissionregistration/v1alpha1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"binnacle/libs/api"
	"binnacle/libs/authorizer"
	"binnacle/services/apiserver/internal/admission"
	"binnacle/services/apiserver/internal/cel/policyform"
	"binnacle/services/apiserver/internal/registry"
	"binnacle/services/apiserver/internal/status"
)

// Name is the name of the plugin. Flags cannot disable it.
const Name = "PolicyParameters"

// Plugin implements admission.Validator, because it checks the object to be stored.
type Plugin struct {
	Authorizer authorizer.Authorizer
	// Resource returns the resource of a served kind, or "".
	Resource func(schema.GroupVersionKind) string
	// ParamKind returns the parameter kind of a policy, which is a MutatingAdmissionPolicy if
	// mutates is set, and a ValidatingAdmissionPolicy otherwise. It returns nil if the policy has
	// no parameters or does not exist.
	ParamKind func(ctx context.Context, name string, mutates bool) (*admissionregistrationv1.ParamKind, error)
}

// Validate implements admission.Validator.
func (p *Plugin) Validate(ctx context.Context, req *admission.Request) error {
	if req.Resource.Group != admissionregistrationv1.GroupName || req.Subresource != "" {
		return nil
	}
	if req.Operation != admission.Create && req.Operation != admission.Update {
		return nil
	}
	if req.User != nil && req.User.InGroup(api.GroupMasters) || req.IsMetadataOnlyUpdate() {
		return nil
	}
	switch o := req.Object.(type) {
	case *admissionregistrationv1.ValidatingAdmissionPolicy:
		var old *admissionregistrationv1.ParamKind
		if oldPolicy, ok := req.OldObject.(*admissionregistrationv1.ValidatingAdmissionPolicy); ok {
			old = oldPolicy.Spec.ParamKind
		}
		return p.checkPolicy(ctx, req, o.Spec.ParamKind, old)
	case *alphav1.MutatingAdmissionPolicy:
		var old *admissionregistrationv1.ParamKind
		if oldPolicy, ok := req.OldObject.(*alphav1.MutatingAdmissionPolicy); ok {
			old = (*admissionregistrationv1.ParamKind)(oldPolicy.Spec.ParamKind)
		}
		return p.checkPolicy(ctx, req, (*admissionregistrationv1.ParamKind)(o.Spec.ParamKind), old)
	case *admissionregistrationv1.ValidatingAdmissionPolicyBinding:
		return p.checkBinding(ctx, req, o.Spec.PolicyName, false, o.Spec.ParamRef)
	case *alphav1.MutatingAdmissionPolicyBinding:
		return p.checkBinding(ctx, req, o.Spec.PolicyName, true, policyform.ParamRef(o.Spec.ParamRef))
	}
	return nil
}

// checkPolicy returns an error unless the writer of a policy may get all objects of its parameter
// kind. An update that does not change the kind needs no permission.
func (p *Plugin) checkPolicy(ctx context.Context, req *admission.Request, kind, old *admissionregistrationv1.ParamKind) error {
	if kind == nil || old != nil && *old == *kind {
		return nil
	}
	target := p.readAttributes(req, kind)
	target.Namespace = "*"
	target.Name = "*"
	permission := fmt.Sprintf(`must have "get" permission on all objects of the referenced paramKind (kind=%s, apiVersion=%s)`,
		kind.Kind, kind.APIVersion)
	return p.requirePermission(ctx, req, target, "paramKind", permission)
}

// checkBinding returns an error unless the writer of a binding may read the parameters to which it
// refers. mutates is passed to ParamKind.
func (p *Plugin) checkBinding(
	ctx context.Context,
	req *admission.Request,
	policy string,
	mutates bool,
	ref *admissionregistrationv1.ParamRef,
) error {
	if ref == nil {
		return nil
	}
	kind, err := p.ParamKind(ctx, policy, mutates)
	if err != nil {
		return apierrors.NewInternalError(err)
	}
	target := p.readAttributes(req, kind)
	target.Namespace = ref.Namespace
	target.Name = ref.Name
	if ref.Name == "" { // a selector lists objects
		target.Verb = "list"
	}
	permission := fmt.Sprintf("does not have %q permission on the object referenced by paramRef", target.Verb)
	return p.requirePermission(ctx, req, target, "paramRef", permission)
}

// readAttributes returns the authorization attributes for reading parameters of a kind. If the kind
// is nil or not served, the user needs access to all resources.
func (p *Plugin) readAttributes(r *admission.Request, kind *admissionregistrationv1.ParamKind) *authorizer.Attributes {
	target := &authorizer.Attributes{User: r.User, Verb: "get", Resource: true, Group: "*", Version: "*", ResourceName: "*"}
	if kind == nil {
		return target
	}
	if gv, err := schema.ParseGroupVersion(kind.APIVersion); err == nil {
		target.Group = gv.Group
		target.Version = gv.Version
		if resource := p.Resource(gv.WithKind(kind.Kind)); resource != "" {
			target.ResourceName = resource
		}
	}
	return target
}

// requirePermission returns a Status that rejects the request unless the authorizer allows target.
// fieldName is the field of the spec that the Status names. permission is the missing permission in
// its message, such as "does not have ... permission".
func (p *Plugin) requirePermission(
	ctx context.Context,
	req *admission.Request,
	target *authorizer.Attributes,
	fieldName, permission string,
) error {
	err := p.authorize(ctx, req.User, target, permission)
	if err == nil {
		return nil
	}
	name := req.Name
	if o, ok := req.Object.(registry.Object); ok && o.GetName() != "" {
		name = o.GetName()
	}
	return status.Invalid(req.Kind.GroupKind(), name, field.ErrorList{field.Forbidden(field.NewPath("spec", fieldName), err.Error())})
}

// authorize returns an error that contains permission unless the authorizer allows target, the
// attributes of a request of user.
func (p *Plugin) authorize(ctx context.Context, user *authorizer.User, target *authorizer.Attributes, permission string) error {
	if user == nil {
		return errors.New("cannot identify user to authorize read access to parameters")
	}
	decision, _, err := p.Authorizer.Authorize(ctx, target)
	if err != nil {
		return err
	}
	if decision != authorizer.Allow {
		return fmt.Errorf("user %v %s", user, permission) // with all fields of the user, as in Kubernetes
	}
	return nil
}
