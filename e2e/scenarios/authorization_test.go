package scenarios

import (
	"strings"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"binnacle/e2e/harness"
)

// TestAuthorization grants roles to a user and revokes them.
func TestAuthorization(t *testing.T) {
	t.Parallel()
	server := harness.StartServer(t)
	admin := server.Client()
	alice := harness.ClientFor(t, server.ConfigFor(server.PKI.Client("alice", "dev")))
	namespace := "authorization"
	createNamespace(t, admin, namespace)

	list := func() error {
		_, err := alice.CoreV1().ConfigMaps(namespace).List(t.Context(), metav1.ListOptions{})
		return err
	}
	create := func() error {
		_, err := alice.CoreV1().ConfigMaps(namespace).Create(t.Context(), configMap("x", "1"),
			metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		return err
	}
	err := list()
	if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(),
		`User "alice" cannot list resource "configmaps" in API group "" in the namespace "authorization"`) {
		t.Fatalf("without roles: got %v", err)
	}
	role := &rbacv1.Role{
		ObjectMeta: metav1.ObjectMeta{Name: "reader"},
		Rules: []rbacv1.PolicyRule{{
			APIGroups: []string{""},
			Resources: []string{"configmaps"},
			Verbs:     []string{"get", "list", "watch"},
		}},
	}
	binding := &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "readers"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "reader"},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.GroupKind, Name: "dev"}},
	}
	if _, err := admin.RbacV1().Roles(namespace).Create(t.Context(), role, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := admin.RbacV1().RoleBindings(namespace).Create(t.Context(), binding, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	// The authorizer receives changes of the policy shortly after the write.
	harness.Eventually(t, patience, "list after the binding", list)
	if err := create(); !apierrors.IsForbidden(err) {
		t.Errorf("verb outside of the role: got %v", err)
	}
	if _, err := alice.CoreV1().ConfigMaps("default").List(t.Context(), metav1.ListOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("another namespace: got %v", err)
	}
	role.Rules[0].Verbs = append(role.Rules[0].Verbs, "create")
	if _, err := admin.RbacV1().Roles(namespace).Update(t.Context(), role, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	harness.Eventually(t, patience, "create after the role has the verb", create)
	checkEscalation(t, admin, alice, namespace)
	checkReviews(t, server, alice, namespace)
	if err := admin.RbacV1().RoleBindings(namespace).Delete(t.Context(), "readers", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	harness.Eventually(t, patience, "a rejection after the binding is deleted", func() error { return requireRejection(list()) })
}

// checkEscalation checks that a user who may write roles can grant only permissions that the user
// has.
func checkEscalation(t *testing.T, admin, alice kubernetes.Interface, namespace string) {
	t.Helper()
	writer := &rbacv1.Role{
		ObjectMeta: metav1.ObjectMeta{Name: "role-writer"},
		// Not "*", which would include the verb escalate.
		Rules: []rbacv1.PolicyRule{{
			APIGroups: []string{rbacv1.GroupName},
			Resources: []string{"roles", "rolebindings"},
			Verbs:     []string{"create", "get", "update"},
		}},
	}
	binding := &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "role-writers"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "role-writer"},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: "alice"}},
	}
	if _, err := admin.RbacV1().Roles(namespace).Create(t.Context(), writer, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := admin.RbacV1().RoleBindings(namespace).Create(t.Context(), binding, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	harness.Eventually(t, patience, "permission to read roles", func() error {
		_, err := alice.RbacV1().Roles(namespace).Get(t.Context(), "role-writer", metav1.GetOptions{})
		return err
	})
	for resource, allowed := range map[string]bool{"configmaps": true, "secrets": false} {
		role := &rbacv1.Role{
			ObjectMeta: metav1.ObjectMeta{Name: "of-alice-" + resource},
			Rules:      []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{resource}, Verbs: []string{"get"}}},
		}
		if _, err := alice.RbacV1().Roles(namespace).Create(t.Context(), role,
			metav1.CreateOptions{}); (err == nil) != allowed || err != nil && !apierrors.IsForbidden(err) {
			t.Errorf("role for %s: got %[3]v, want allowed %[2]v", resource, allowed, err)
		}
	}
}

// checkReviews checks access reviews for the client, for others and for rules.
func checkReviews(t *testing.T, server *harness.Server, alice kubernetes.Interface, namespace string) {
	t.Helper()
	for verb, want := range map[string]bool{"list": true, "delete": false} {
		r := &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{
			ResourceAttributes: &authorizationv1.ResourceAttributes{Namespace: namespace, Verb: verb, Resource: "configmaps"},
		}}
		got, err := alice.AuthorizationV1().SelfSubjectAccessReviews().Create(t.Context(), r, metav1.CreateOptions{})
		if err != nil || got.Status.Allowed != want {
			t.Errorf("%s: got %v, %v, want allowed %v", verb, got.Status, err, want)
		}
	}
	rules, err := alice.AuthorizationV1().SelfSubjectRulesReviews().Create(t.Context(), &authorizationv1.SelfSubjectRulesReview{
		Spec: authorizationv1.SelfSubjectRulesReviewSpec{Namespace: namespace},
	}, metav1.CreateOptions{})
	found := false
	for _, r := range rules.Status.ResourceRules {
		found = found || len(r.Resources) > 0 && r.Resources[0] == "configmaps"
	}
	if err != nil || !found {
		t.Errorf("rules: got %v, %v", rules.Status.ResourceRules, err)
	}
	// The same rules apply to impersonated users.
	config := server.Config()
	config.Impersonate = rest.ImpersonationConfig{UserName: "bob", Groups: []string{"dev"}}
	bob := harness.ClientFor(t, config)
	if _, err := bob.CoreV1().ConfigMaps(namespace).List(t.Context(), metav1.ListOptions{}); err != nil {
		t.Errorf("impersonated with the group: got %v", err)
	}
	config.Impersonate.Groups = nil
	if _, err := harness.ClientFor(t, config).CoreV1().ConfigMaps(namespace).List(t.Context(),
		metav1.ListOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("impersonated without the group: got %v", err)
	}
}
