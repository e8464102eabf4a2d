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

// everything returns the permissions that an aggregated role may gain.
func everything() []rbacv1.PolicyRule {
	all := []string{rbacv1.VerbAll}
	return []rbacv1.PolicyRule{{Verbs: all, APIGroups: all, Resources: all}, {Verbs: all, NonResourceURLs: all}}
}

var (
	errAggregation = errors.New("must have cluster-admin privileges to use the aggregationRule")
	errNoUser      = errors.New("the request has no user")
)

// Validate implements admission.Validator.
func (p *Plugin) Validate(ctx context.Context, a *admission.Request) error {
	if a.Resource.Group != rbacv1.GroupName || a.Subresource != "" || a.Operation != admission.Create && a.Operation != admission.Update {
		return nil
	}
	if a.User == nil {
		return forbidden(a, errNoUser)
	}
	if a.User.InGroup(api.GroupMasters) || a.Housekeeping() {
		return nil
	}
	switch o := a.Object.(type) {
	case *rbacv1.Role:
		return p.role(ctx, a, o.Rules, false)
	case *rbacv1.ClusterRole:
		old, _ := a.OldObject.(*rbacv1.ClusterRole)
		return p.role(ctx, a, o.Rules, o.AggregationRule != nil || old != nil && old.AggregationRule != nil)
	case *rbacv1.RoleBinding:
		return p.binding(ctx, a, o.RoleRef)
	case *rbacv1.ClusterRoleBinding:
		return p.binding(ctx, a, o.RoleRef)
	}
	return nil
}

// role checks that the user holds the rules of a role, or may escalate.
func (p *Plugin) role(ctx context.Context, a *admission.Request, rules []rbacv1.PolicyRule, aggregated bool) error {
	escalate := &authz.Attributes{
		User: a.User, Verb: "escalate", Resource: true, Group: a.Resource.Group, Version: "*",
		ResourceName: a.Resource.Resource, Namespace: a.Namespace,
	}
	if op := requestinfo.From(ctx); op != nil {
		escalate.Name = op.Name // name in the URL; a creation by POST has none
	}
	if p.may(ctx, escalate) {
		return nil
	}
	s := p.Policy.Snapshot()
	if err := escalation(ctx, s, a, rules); err != nil {
		return err
	}
	if aggregated && s.Escalation(a.User, "", everything()) != nil {
		return forbidden(a, errAggregation)
	}
	return nil
}

// binding checks that the user holds the rules of the role, or may bind it.
func (p *Plugin) binding(ctx context.Context, a *admission.Request, ref rbacv1.RoleRef) error {
	bind := &authz.Attributes{
		User: a.User, Verb: "bind", Resource: true, Group: ref.APIGroup, Version: "*", Namespace: a.Namespace, Name: ref.Name,
	}
	switch ref.Kind {
	case rbac.KindClusterRole:
		bind.ResourceName = "clusterroles"
	case rbac.KindRole:
		bind.ResourceName = "roles"
	}
	if p.may(ctx, bind) {
		return nil
	}
	s := p.Policy.Snapshot()
	rules, err := s.RulesOf(ref, a.Namespace)
	if err != nil {
		// As in Kubernetes, the error names the resource that is written.
		return apierrors.NewNotFound(a.Resource.GroupResource(), ref.Name)
	}
	return escalation(ctx, s, a, rules)
}

// escalation returns an error if the user does not hold the rules. The comparison is large work if
// the user or the role has many names, even if the request is small.
func escalation(ctx context.Context, s *rbac.Snapshot, a *admission.Request, rules []rbacv1.PolicyRule) error {
	if err := request.Estimate(ctx, request.PerValue*s.EscalationValues(a.User, a.Namespace, rules)); err != nil {
		return err
	}
	if err := s.Escalation(a.User, a.Namespace, rules); err != nil {
		return forbidden(a, err)
	}
	return nil
}

// may reports whether the authorizer allows an action. An error grants nothing. The caller's error
// then names the missing permissions.
func (p *Plugin) may(ctx context.Context, want *authz.Attributes) bool {
	d, _, _ := p.Authorizer.Authorize(ctx, want)
	return d == authz.Allow
}

func forbidden(a *admission.Request, err error) error {
	name := a.Name
	if o, ok := a.Object.(registry.Object); ok && o.GetName() != "" {
		name = o.GetName()
	}
	return apierrors.NewForbidden(a.Resource.GroupResource(), name, err)
}
