package rbacescalation_test

import (
	"context"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"binnacle/libs/authorizer"
	"binnacle/libs/rbac"
	"binnacle/services/apiserver/internal/admission"
	"binnacle/services/apiserver/internal/admission/plugins/rbacescalation"
	"binnacle/services/apiserver/internal/api/requestinfo"
	"binnacle/services/apiserver/internal/registry"
	"binnacle/services/apiserver/internal/request"
)

func rule(groups, resources, verbs string) rbacv1.PolicyRule {
	return rbacv1.PolicyRule{APIGroups: strings.Split(groups, ","), Resources: strings.Split(resources, ","), Verbs: strings.Split(verbs, ",")}
}

func named(ns, name string) metav1.ObjectMeta { return metav1.ObjectMeta{Namespace: ns, Name: name} }

func ref(kind, name string) rbacv1.RoleRef {
	return rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: kind, Name: name}
}

func to(user string) []rbacv1.Subject { return []rbacv1.Subject{{Kind: "User", Name: user}} }

// policy: alice reads pods in a, bob may bind reader and escalate roles in a,
// carl may do everything.
func policy() *rbac.Engine {
	e := rbac.New()
	all := rule("*", "*", "*")
	e.Update(func(tx *rbac.Tx) {
		for _, o := range []metav1.Object{
			&rbacv1.ClusterRole{ObjectMeta: named("", "reader"), Rules: []rbacv1.PolicyRule{rule("", "pods", "get,list")}},
			&rbacv1.ClusterRole{ObjectMeta: named("", "all"), Rules: []rbacv1.PolicyRule{all, {NonResourceURLs: []string{"*"}, Verbs: []string{"*"}}}},
			&rbacv1.Role{ObjectMeta: named("a", "writer"), Rules: []rbacv1.PolicyRule{rule("", "pods", "create")}},
			&rbacv1.ClusterRole{ObjectMeta: named("", "special"), Rules: []rbacv1.PolicyRule{
				{APIGroups: []string{rbacv1.GroupName}, Resources: []string{"clusterroles"}, Verbs: []string{"bind"}, ResourceNames: []string{"reader"}},
				rule(rbacv1.GroupName, "roles", "escalate"),
			}},
			&rbacv1.RoleBinding{ObjectMeta: named("a", "alice"), RoleRef: ref("ClusterRole", "reader"), Subjects: to("alice")},
			&rbacv1.RoleBinding{ObjectMeta: named("a", "bob"), RoleRef: ref("ClusterRole", "special"), Subjects: to("bob")},
			&rbacv1.ClusterRole{ObjectMeta: named("", "named"), Rules: []rbacv1.PolicyRule{
				{APIGroups: []string{rbacv1.GroupName}, Resources: []string{"roles"}, Verbs: []string{"escalate"}, ResourceNames: []string{"new"}},
			}},
			&rbacv1.RoleBinding{ObjectMeta: named("a", "dan"), RoleRef: ref("ClusterRole", "named"), Subjects: to("dan")},
			&rbacv1.ClusterRoleBinding{ObjectMeta: named("", "carl"), RoleRef: ref("ClusterRole", "all"), Subjects: to("carl")},
		} {
			tx.Set(o)
		}
	})
	return e
}

func TestEscalation(t *testing.T) {
	e := policy()
	p := &rbacescalation.Plugin{Policy: e, Authorizer: e}
	role := func(rules ...rbacv1.PolicyRule) *rbacv1.Role {
		return &rbacv1.Role{ObjectMeta: named("a", "new"), Rules: rules}
	}
	clusterRole := func(aggregate bool, rules ...rbacv1.PolicyRule) *rbacv1.ClusterRole {
		r := &rbacv1.ClusterRole{ObjectMeta: named("", "new"), Rules: rules}
		if aggregate {
			r.AggregationRule = &rbacv1.AggregationRule{}
		}
		return r
	}
	binding := func(r rbacv1.RoleRef) *rbacv1.RoleBinding {
		return &rbacv1.RoleBinding{ObjectMeta: named("a", "new"), RoleRef: r, Subjects: to("eve")}
	}
	clusterBinding := func(r rbacv1.RoleRef) *rbacv1.ClusterRoleBinding {
		return &rbacv1.ClusterRoleBinding{ObjectMeta: named("", "new"), RoleRef: r, Subjects: to("eve")}
	}
	applied := &rbacv1.Role{} // told by its address, and not there yet
	reads, creates := rule("", "pods", "get"), rule("", "pods", "create")
	const ok = ""
	for _, c := range []struct {
		name, user string
		obj, old   registry.Object
		want       string
	}{
		{"a role within what is held", "alice", role(reads), nil, ok},
		{"a role beyond it", "alice", role(reads, creates), nil, "roles.rbac.authorization.k8s.io \"new\" is forbidden: user \"alice\" (groups=[\"dev\"]) is attempting to grant RBAC permissions not currently held:\n{APIGroups:[\"\"], Resources:[\"pods\"], Verbs:[\"create\"]}"},
		{"what is held in a namespace, for the cluster", "alice", clusterRole(false, reads), nil, "clusterroles.rbac.authorization.k8s.io \"new\" is forbidden: user \"alice\""},
		{"with escalate", "bob", role(reads), nil, ok},
		{"with escalate for roles alone", "bob", clusterRole(false, reads), nil, "is attempting to grant"},
		{"everything", "carl", clusterRole(true, reads), nil, ok},
		{"aggregation that never was", "alice", clusterRole(false), clusterRole(false, reads), ok},
		{"with escalate for a role by its name", "dan", func() registry.Object { r := role(creates); r.Labels = map[string]string{"x": "y"}; return r }(), role(creates), ok},
		{"which a new one does not have yet", "dan", role(creates), nil, "is attempting to grant"},
		{"but has in the address of an apply", "dan", role(creates), applied, ok},
		{"an object that became another", "alice", role(creates), clusterRole(false, creates), "is attempting to grant"},
		{"aggregation", "alice", clusterRole(true), nil, "must have cluster-admin privileges to use the aggregationRule"},
		{"aggregation that was there", "alice", clusterRole(false), clusterRole(true), "must have cluster-admin privileges to use the aggregationRule"},
		{"an update that grants nothing new still is looked at", "alice", role(creates), role(reads, creates), "is attempting to grant"},
		{"finalizers alone", "alice", func() registry.Object { r := role(creates); r.Finalizers = []string{"x/y"}; return r }(), role(creates), ok},
		{"labels are more than that", "alice", func() registry.Object { r := role(creates); r.Labels = map[string]string{"x": "y"}; return r }(), role(creates), "is attempting to grant"},
		{"a binding to what is held", "alice", binding(ref("ClusterRole", "reader")), nil, ok},
		{"for the cluster", "alice", clusterBinding(ref("ClusterRole", "reader")), nil, "clusterrolebindings.rbac.authorization.k8s.io \"new\" is forbidden: user \"alice\""},
		{"a binding beyond it", "alice", binding(ref("Role", "writer")), nil, "rolebindings.rbac.authorization.k8s.io \"new\" is forbidden: user \"alice\""},
		{"with bind", "bob", binding(ref("ClusterRole", "reader")), nil, ok},
		{"with bind for another role", "bob", binding(ref("ClusterRole", "all")), nil, "is attempting to grant"},
		{"a role that is not there", "alice", binding(ref("Role", "none")), nil, `rolebindings.rbac.authorization.k8s.io "none" not found`},
		{"masters", "root", clusterBinding(ref("ClusterRole", "none")), nil, ok},
	} {
		kind := rbac.KindOf(c.obj)
		a := &admission.Request{
			Operation: admission.Create, Namespace: c.obj.GetNamespace(), Name: "new", Object: c.obj,
			Resource: &registry.Kind{
				Names: registry.Names{
					Group: rbacv1.GroupName, Version: "v1", Kind: kind, Resource: strings.ToLower(kind) + "s",
				},
			},
			User: &request.User{Name: c.user, Groups: []string{"dev"}},
		}
		if c.user == "root" {
			a.User.Groups = []string{"system:masters"}
		}
		op := &requestinfo.Info{}
		if c.old != nil {
			op.Name = "new"
		}
		if c.old != nil && c.old != applied {
			a.Operation, a.OldObject = admission.Update, c.old
		}
		err := p.Validate(requestinfo.With(context.Background(), op), a)
		if (err == nil) != (c.want == ok) || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v\nwant %s", c.name, err, c.want)
		}
	}
}

func TestOthersAreNotLookedAt(t *testing.T) {
	p := &rbacescalation.Plugin{} // would panic if it looked
	for _, a := range []*admission.Request{
		{Operation: admission.Create, Subresource: "status", Resource: &registry.Kind{
			Names: registry.Names{
				Group: rbacv1.GroupName,
			},
		}},
		{Operation: admission.Create, Resource: &registry.Kind{
			Names: registry.Names{
				Group: "apps",
			},
		}},
		{Operation: admission.Delete, Resource: &registry.Kind{
			Names: registry.Names{
				Group: rbacv1.GroupName,
			},
		}},
	} {
		if err := p.Validate(context.Background(), a); err != nil {
			t.Error(err)
		}
	}
	if err := p.Validate(context.Background(), &admission.Request{Operation: admission.Create, Resource: &registry.Kind{
		Names: registry.Names{
			Group: rbacv1.GroupName,
		},
	}}); err == nil {
		t.Error("nobody may")
	}
}

// nobody may anything by the authorizer: what is held is the policy's alone.
type nobody struct{}

func (nobody) Authorize(context.Context, *authorizer.Attributes) (authorizer.Decision, string, error) {
	return authorizer.NoOpinion, "", nil
}

// TestWhoMayAggregate: whoever holds everything, without a word of the authorizer. The
// refusal names what the request does, when the object has no name yet.
func TestWhoMayAggregate(t *testing.T) {
	e := policy()
	p := &rbacescalation.Plugin{Policy: e, Authorizer: nobody{}}
	for user, want := range map[string]string{"carl": "", "alice": `clusterroles.rbac.authorization.k8s.io "generated" is forbidden`} {
		err := p.Validate(t.Context(), &admission.Request{
			Operation: admission.Create, Name: "generated", Object: &rbacv1.ClusterRole{AggregationRule: &rbacv1.AggregationRule{}}, User: &request.User{Name: user},
			Resource: &registry.Kind{Names: registry.Names{Group: rbacv1.GroupName, Version: "v1", Kind: "ClusterRole", Resource: "clusterroles"}},
		})
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", user, err)
		}
	}
}
