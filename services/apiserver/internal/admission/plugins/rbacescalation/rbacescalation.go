// Package rbacescalation prevents users from granting permissions that they do not hold
// (specification: "Authorization", RBAC). The writer of a role needs all its permissions at its
// scope, or the verb escalate. The writer of a binding needs the permissions of its role, or the
// verb bind on it. The plugin keeps no state and reads the RBAC policy in process.
package rbacescalation

import (
	"context"
	"errors"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"binnacle/libs/api"
	"binnacle/libs/rbac"
	"binnacle/services/apiserver/internal/admission"
	"binnacle/services/apiserver/internal/api/requestinfo"
	"binnacle/services/apiserver/internal/registry"
	"binnacle/services/apiserver/internal/request"
	"binnacle/services/apiserver/internal/security/authz"
)

// Name is the name of the plugin. Flags cannot disable it.
const Name = "RBACEscalation"

// Policy gives access to the RBAC policy.
type Policy interface{ Snapshot() *rbac.Snapshot }

// Plugin implements admission.Validator, because it checks the object to be stored.
type Plugin struct {
	Policy     Policy
	Authorizer authz.Authorizer
}

// allRules returns rules that permit everything, because the controller may add any rule to an
// aggregated role.
func allRules() []rbacv1.PolicyRule {
	all := []string{rbacv1.VerbAll}
	return []rbacv1.PolicyRule{{Verbs: all, APIGroups: all, Resources: all}, {Verbs: all, NonResourceURLs: all}}
}

var (
	errAggregation = errors.New("must have cluster-admin privileges to use the aggregationRule")
	errNoUser      = errors.New("the request has no user")
)

// Validate implements admission.Validator.
func (p *Plugin) Validate(ctx context.Context, req *admission.Request) error {
	if req.Resource.Group != rbacv1.GroupName || req.Subresource != "" ||
		req.Operation != admission.Create && req.Operation != admission.Update {
		return nil
	}
	if req.User == nil {
		return forbidden(req, errNoUser)
	}
	if req.User.InGroup(api.GroupMasters) || req.IsMetadataOnlyUpdate() {
		return nil
	}
	switch o := req.Object.(type) {
	case *rbacv1.Role:
		return p.checkRole(ctx, req, o.Rules, false)
	case *rbacv1.ClusterRole:
		old, _ := req.OldObject.(*rbacv1.ClusterRole)
		return p.checkRole(ctx, req, o.Rules, o.AggregationRule != nil || old != nil && old.AggregationRule != nil)
	case *rbacv1.RoleBinding:
		return p.checkBinding(ctx, req, o.RoleRef)
	case *rbacv1.ClusterRoleBinding:
		return p.checkBinding(ctx, req, o.RoleRef)
	}
	return nil
}

// checkRole returns an error unless the user holds all permissions in rules, or has the verb
// escalate on the role. The writer of an aggregated role needs all permissions.
func (p *Plugin) checkRole(ctx context.Context, req *admission.Request, rules []rbacv1.PolicyRule, aggregated bool) error {
	escalate := &authz.Attributes{
		User: req.User, Verb: "escalate", Resource: true, Group: req.Resource.Group, Version: "*",
		ResourceName: req.Resource.Resource, Namespace: req.Namespace,
	}
	if info := requestinfo.FromContext(ctx); info != nil {
		escalate.Name = info.Name // the name in the URL, which is empty for a POST
	}
	if p.allowed(ctx, escalate) {
		return nil
	}
	snapshot := p.Policy.Snapshot()
	if err := checkRules(ctx, snapshot, req, rules); err != nil {
		return err
	}
	if aggregated && snapshot.CheckEscalation(req.User, "", allRules()) != nil {
		return forbidden(req, errAggregation)
	}
	return nil
}

// checkBinding returns an error unless the user holds all permissions of the role that a binding
// names, or has the verb bind on that role.
func (p *Plugin) checkBinding(ctx context.Context, req *admission.Request, ref rbacv1.RoleRef) error {
	bind := &authz.Attributes{
		User: req.User, Verb: "bind", Resource: true, Group: ref.APIGroup, Version: "*", Namespace: req.Namespace, Name: ref.Name,
	}
	switch ref.Kind {
	case rbac.KindClusterRole:
		bind.ResourceName = "clusterroles"
	case rbac.KindRole:
		bind.ResourceName = "roles"
	}
	if p.allowed(ctx, bind) {
		return nil
	}
	snapshot := p.Policy.Snapshot()
	rules, err := snapshot.RulesOf(ref, req.Namespace)
	if err != nil {
		// As in Kubernetes, the error names the resource that is written.
		return apierrors.NewNotFound(req.Resource.GroupResource(), ref.Name)
	}
	return checkRules(ctx, snapshot, req, rules)
}

// checkRules returns an error if the user does not hold all permissions in rules. It acquires the
// limiter for large requests if needed, because a small request can cause a comparison with many
// rules of the user.
func checkRules(ctx context.Context, snapshot *rbac.Snapshot, req *admission.Request, rules []rbacv1.PolicyRule) error {
	if err := request.Estimate(ctx, request.PerValue*snapshot.EscalationValues(req.User, req.Namespace, rules)); err != nil {
		return err
	}
	if err := snapshot.CheckEscalation(req.User, req.Namespace, rules); err != nil {
		return forbidden(req, err)
	}
	return nil
}

// allowed reports whether the authorizer allows an action. If the authorizer fails, it returns
// false. The caller's own error then says which permissions are missing.
func (p *Plugin) allowed(ctx context.Context, expected *authz.Attributes) bool {
	d, _, _ := p.Authorizer.Authorize(ctx, expected)
	return d == authz.Allow
}

func forbidden(req *admission.Request, err error) error {
	name := req.Name
	if o, ok := req.Object.(registry.Object); ok && o.GetName() != "" {
		name = o.GetName()
	}
	return apierrors.NewForbidden(req.Resource.GroupResource(), name, err)
}
