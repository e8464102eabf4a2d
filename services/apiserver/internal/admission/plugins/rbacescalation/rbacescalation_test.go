package rbacescalation_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"binnacle/libs/authorizer"
	"binnacle/libs/rbac"
	"binnacle/services/apiserver/internal/admission"
	"binnacle/services/apiserver/internal/admission/plugins/rbacescalation"
	"binnacle/services/apiserver/internal/api/requestinfo"
	"binnacle/services/apiserver/internal/registry"
	"binnacle/services/apiserver/internal/request"
	"binnacle/services/apiserver/internal/request/requesttest"
)

// rule returns a rule. The elements of each list are separated by commas.
func rule(groups, resources, verbs string) rbacv1.PolicyRule {
	return rbacv1.PolicyRule{
		APIGroups: strings.Split(groups, ","),
		Resources: strings.Split(resources, ","),
		Verbs:     strings.Split(verbs, ","),
	}
}

func named(ns, name string) metav1.ObjectMeta { return metav1.ObjectMeta{Namespace: ns, Name: name} }

func ref(kind, name string) rbacv1.RoleRef {
	return rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: kind, Name: name}
}

func subjectsFor(user string) []rbacv1.Subject { return []rbacv1.Subject{{Kind: "User", Name: user}} }

// policy returns an engine with these permissions: In namespace a, alice may read pods, bob may bind
// the role reader and escalate all roles, and dan may escalate the role new. carl may do everything.
func policy() *rbac.Engine {
	engine := rbac.New()
	all := rule("*", "*", "*")
	engine.Update(func(tx *rbac.Tx) {
		for _, object := range []metav1.Object{
			&rbacv1.ClusterRole{ObjectMeta: named("", "reader"), Rules: []rbacv1.PolicyRule{rule("", "pods", "get,list")}},
			&rbacv1.ClusterRole{ObjectMeta: named("", "all"), Rules: []rbacv1.PolicyRule{all, {NonResourceURLs: []string{"*"}, Verbs: []string{"*"}}}},
			&rbacv1.Role{ObjectMeta: named("a", "writer"), Rules: []rbacv1.PolicyRule{rule("", "pods", "create")}},
			&rbacv1.ClusterRole{ObjectMeta: named("", "special"), Rules: []rbacv1.PolicyRule{
				{
					APIGroups: []string{rbacv1.GroupName}, Resources: []string{"clusterroles"},
					Verbs: []string{"bind"}, ResourceNames: []string{"reader"},
				},
				rule(rbacv1.GroupName, "roles", "escalate"),
			}},
			&rbacv1.RoleBinding{ObjectMeta: named("a", "alice"), RoleRef: ref("ClusterRole", "reader"), Subjects: subjectsFor("alice")},
			&rbacv1.RoleBinding{ObjectMeta: named("a", "bob"), RoleRef: ref("ClusterRole", "special"), Subjects: subjectsFor("bob")},
			&rbacv1.ClusterRole{ObjectMeta: named("", "named"), Rules: []rbacv1.PolicyRule{
				{APIGroups: []string{rbacv1.GroupName}, Resources: []string{"roles"}, Verbs: []string{"escalate"}, ResourceNames: []string{"new"}},
			}},
			&rbacv1.RoleBinding{ObjectMeta: named("a", "dan"), RoleRef: ref("ClusterRole", "named"), Subjects: subjectsFor("dan")},
			&rbacv1.ClusterRoleBinding{ObjectMeta: named("", "carl"), RoleRef: ref("ClusterRole", "all"), Subjects: subjectsFor("carl")},
		} {
			tx.Set(object)
		}
	})
	return engine
}

// TestGrantsBeyondOwnRightsAreRejected checks that a user cannot write a role or binding that grants
// more than the user has, unless the verbs escalate or bind allow it.
func TestGrantsBeyondOwnRightsAreRejected(t *testing.T) {
	e := policy()
	plugin := &rbacescalation.Plugin{Policy: e, Authorizer: e}
	role := func(rules ...rbacv1.PolicyRule) *rbacv1.Role {
		return &rbacv1.Role{ObjectMeta: named("a", "new"), Rules: rules}
	}
	clusterRole := func(rules ...rbacv1.PolicyRule) *rbacv1.ClusterRole {
		return &rbacv1.ClusterRole{ObjectMeta: named("", "new"), Rules: rules}
	}
	aggregatedRole := func(rules ...rbacv1.PolicyRule) *rbacv1.ClusterRole {
		r := clusterRole(rules...)
		r.AggregationRule = &rbacv1.AggregationRule{}
		return r
	}
	binding := func(r rbacv1.RoleRef) *rbacv1.RoleBinding {
		return &rbacv1.RoleBinding{ObjectMeta: named("a", "new"), RoleRef: r, Subjects: subjectsFor("eve")}
	}
	clusterBinding := func(r rbacv1.RoleRef) *rbacv1.ClusterRoleBinding {
		return &rbacv1.ClusterRoleBinding{ObjectMeta: named("", "new"), RoleRef: r, Subjects: subjectsFor("eve")}
	}
	applied := &rbacv1.Role{} // empty, as for an apply that creates
	reads, creates := rule("", "pods", "get"), rule("", "pods", "create")
	const ok = ""
	for _, test := range []struct {
		name, user string
		obj, old   registry.Object
		want       string
	}{
		{name: "role within the own permissions", user: "alice", obj: role(reads), old: nil, want: ok},
		{
			name: "role beyond the own permissions", user: "alice", obj: role(reads, creates), old: nil,
			want: "roles.rbac.authorization.k8s.io \"new\" is forbidden: user \"alice\" (groups=[\"dev\"]) is attempting to grant RBAC permissions not currently held:\n{APIGroups:[\"\"], Resources:[\"pods\"], Verbs:[\"create\"]}",
		},
		{
			name: "cluster role with permissions of a namespace", user: "alice", obj: clusterRole(reads),
			old: nil, want: "clusterroles.rbac.authorization.k8s.io \"new\" is forbidden: user \"alice\"",
		},
		{name: "with escalate", user: "bob", obj: role(reads), old: nil, want: ok},
		{name: "with escalate for roles alone", user: "bob", obj: clusterRole(reads), old: nil, want: "is attempting to grant"},
		{name: "everything", user: "carl", obj: aggregatedRole(reads), old: nil, want: ok},
		{name: "removed rules", user: "alice", obj: clusterRole(), old: clusterRole(reads), want: ok},
		{
			name: "with escalate for a role by its name", user: "dan",
			obj: func() registry.Object { r := role(creates); r.Labels = map[string]string{"x": "y"}; return r }(),
			old: role(creates), want: ok,
		},
		{name: "create with escalate for a role by its name", user: "dan", obj: role(creates), old: nil, want: "is attempting to grant"},
		{name: "create by apply with escalate for a role by its name", user: "dan", obj: role(creates), old: applied, want: ok},
		{name: "old object of another kind", user: "alice", obj: role(creates), old: clusterRole(creates), want: "is attempting to grant"},
		{name: "aggregation", user: "alice", obj: aggregatedRole(), old: nil, want: "must have cluster-admin privileges to use the aggregationRule"},
		{
			name: "aggregation that was there", user: "alice", obj: clusterRole(), old: aggregatedRole(),
			want: "must have cluster-admin privileges to use the aggregationRule",
		},
		{name: "an update that grants nothing new", user: "alice", obj: role(creates), old: role(reads, creates), want: "is attempting to grant"},
		{
			name: "finalizers alone", user: "alice",
			obj: func() registry.Object { r := role(creates); r.Finalizers = []string{"x/y"}; return r }(),
			old: role(creates), want: ok,
		},
		{
			name: "changed labels", user: "alice",
			obj: func() registry.Object { r := role(creates); r.Labels = map[string]string{"x": "y"}; return r }(),
			old: role(creates), want: "is attempting to grant",
		},
		{name: "binding within the own permissions", user: "alice", obj: binding(ref("ClusterRole", "reader")), old: nil, want: ok},
		{
			name: "cluster binding", user: "alice", obj: clusterBinding(ref("ClusterRole", "reader")), old: nil,
			want: "clusterrolebindings.rbac.authorization.k8s.io \"new\" is forbidden: user \"alice\"",
		},
		{
			name: "binding beyond the own permissions", user: "alice", obj: binding(ref("Role", "writer")),
			old: nil, want: "rolebindings.rbac.authorization.k8s.io \"new\" is forbidden: user \"alice\"",
		},
		{name: "with bind", user: "bob", obj: binding(ref("ClusterRole", "reader")), old: nil, want: ok},
		{name: "with bind for another role", user: "bob", obj: binding(ref("ClusterRole", "all")), old: nil, want: "is attempting to grant"},
		{
			name: "missing role", user: "alice", obj: binding(ref("Role", "none")), old: nil,
			want: `rolebindings.rbac.authorization.k8s.io "none" not found`,
		},
		{name: "masters", user: "root", obj: clusterBinding(ref("ClusterRole", "none")), old: nil, want: ok},
	} {
		kind := rbac.KindOf(test.obj)
		req := &admission.Request{
			Operation: admission.Create,
			Namespace: test.obj.GetNamespace(),
			Name:      "new",
			Object:    test.obj,
			Resource: &registry.Kind{
				Names: registry.Names{
					Group: rbacv1.GroupName, Version: "v1", Kind: kind, Resource: strings.ToLower(kind) + "s",
				},
			},
			User: &request.User{Name: test.user, Groups: []string{"dev"}},
		}
		if test.user == "root" {
			req.User.Groups = []string{"system:masters"}
		}
		op := &requestinfo.Info{}
		if test.old != nil {
			op.Name = "new"
		}
		if test.old != nil && test.old != applied {
			req.Operation, req.OldObject = admission.Update, test.old
		}
		err := plugin.Validate(requesttest.WithInfo(context.Background(), op), req)
		if (err == nil) != (test.want == ok) || err != nil && !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s by %s: got error %v\nwant one that contains %q, or none if that is empty", test.name, test.user, err, test.want)
		}
	}
}

// TestComparisonOfManyNamesIsLargeWork checks that a small request for a role with many names is
// limited like a large one.
func TestComparisonOfManyNamesIsLargeWork(t *testing.T) {
	engine := rbac.New()
	many := rule("", "pods", "get")
	for i := range 1000 {
		many.ResourceNames = append(many.ResourceNames, fmt.Sprint("p", i))
	}
	engine.Update(func(tx *rbac.Tx) {
		tx.Set(&rbacv1.Role{ObjectMeta: named("a", "many"), Rules: []rbacv1.PolicyRule{many}})
		tx.Set(&rbacv1.RoleBinding{ObjectMeta: named("a", "alice"), RoleRef: ref("Role", "many"), Subjects: subjectsFor("alice")})
	})
	plugin := &rbacescalation.Plugin{Policy: engine, Authorizer: engine}
	req := &admission.Request{
		Operation: admission.Create,
		Namespace: "a",
		Name:      "new",
		User:      &request.User{Name: "alice"},
		Resource: &registry.Kind{
			Names: registry.Names{Group: rbacv1.GroupName, Version: "v1", Kind: "RoleBinding", Resource: "rolebindings"},
		},
		Object: &rbacv1.RoleBinding{ObjectMeta: named("a", "new"), RoleRef: ref("Role", "many"), Subjects: subjectsFor("eve")},
	}
	isAdmitted := true // by the limiter for large requests
	work := requesttest.Work{OnEstimate: func(int) bool { return isAdmitted }}
	ctx := work.With(context.Background())
	if err := plugin.Validate(ctx, req); err != nil {
		t.Errorf("limiter admits: got error %v, want none", err)
	}
	isAdmitted = false
	if err := plugin.Validate(ctx, req); !apierrors.IsTooManyRequests(err) {
		t.Errorf("limiter rejects: got error %v, want TooManyRequests", err)
	}
}

// TestOtherRequestsAreSkipped checks that the plugin ignores subresources, other groups and deletes. A
// write of an RBAC object without a user is an error.
func TestOtherRequestsAreSkipped(t *testing.T) {
	plugin := &rbacescalation.Plugin{} // would panic if it were used
	rbacKind := &registry.Kind{Names: registry.Names{Group: rbacv1.GroupName}}
	appsKind := &registry.Kind{Names: registry.Names{Group: "apps"}}
	for name, req := range map[string]*admission.Request{
		"subresource": {Operation: admission.Create, Subresource: "status", Resource: rbacKind},
		"other group": {Operation: admission.Create, Resource: appsKind},
		"delete":      {Operation: admission.Delete, Resource: rbacKind},
	} {
		if err := plugin.Validate(t.Context(), req); err != nil {
			t.Errorf("%s: got error %v, want none", name, err)
		}
	}
	withoutUser := &admission.Request{Operation: admission.Create, Resource: rbacKind}
	if err := plugin.Validate(t.Context(), withoutUser); err == nil {
		t.Error("request without a user: got no error, want one")
	}
}

// denyAll is an authorizer that allows no request.
type denyAll struct{}

func (denyAll) Authorize(context.Context, *authorizer.Attributes) (authorizer.Decision, string, error) {
	return authorizer.NoOpinion, "", nil
}

// TestAggregationRequiresClusterAdmin checks that a user with all permissions may aggregate,
// without a call of the authorizer.
func TestAggregationRequiresClusterAdmin(t *testing.T) {
	e := policy()
	plugin := &rbacescalation.Plugin{Policy: e, Authorizer: denyAll{}}
	for user, want := range map[string]string{"carl": "", "alice": `clusterroles.rbac.authorization.k8s.io "generated" is forbidden`} {
		err := plugin.Validate(t.Context(), &admission.Request{
			Operation: admission.Create,
			Name:      "generated",
			Object:    &rbacv1.ClusterRole{AggregationRule: &rbacv1.AggregationRule{}},
			User:      &request.User{Name: user},
			Resource: &registry.Kind{
				Names: registry.Names{Group: rbacv1.GroupName, Version: "v1", Kind: "ClusterRole", Resource: "clusterroles"},
			},
		})
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got error %v, want one that contains %q, or none if that is empty", user, err, want)
		}
	}
}
