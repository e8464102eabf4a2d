package clusterroles

import (
	"encoding/json"
	"log/slog"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
)

// TestRulesAreAppliedToTheSameRoleOnly checks that the patch has the uid of the role, the field
// manager and force.
func TestRulesAreAppliedToTheSameRoleOnly(t *testing.T) {
	client := fake.NewClientset()
	var applied rbacv1.ClusterRole
	client.PrependReactor("patch", "clusterroles", func(action clienttesting.Action) (bool, runtime.Object, error) {
		patch, ok := action.(clienttesting.PatchActionImpl)
		if !ok || patch.GetPatchType() != types.ApplyPatchType {
			return false, nil, nil
		}
		if options := patch.PatchOptions; options.FieldManager != Name || options.Force == nil || !*options.Force {
			t.Errorf("options %+v, want the field manager and force", options)
		}
		return true, &applied, json.Unmarshal(patch.GetPatch(), &applied)
	})
	controller := New(Config{Roles: client.RbacV1().ClusterRoles(), Log: slog.New(slog.DiscardHandler)})
	for _, role := range []*rbacv1.ClusterRole{
		{
			ObjectMeta:      metav1.ObjectMeta{Name: "all", UID: "uid-all"},
			AggregationRule: &rbacv1.AggregationRule{ClusterRoleSelectors: []metav1.LabelSelector{{MatchLabels: map[string]string{"part": "yes"}}}},
		},
		{
			ObjectMeta: metav1.ObjectMeta{Name: "part", Labels: map[string]string{"part": "yes"}},
			Rules:      []rbacv1.PolicyRule{{Verbs: []string{"get"}, APIGroups: []string{""}, Resources: []string{"pods"}}},
		},
	} {
		if err := controller.roles.GetStore().Add(role); err != nil {
			t.Fatal(err)
		}
	}
	if err := controller.sync(t.Context(), "all"); err != nil {
		t.Fatal(err)
	}
	kind := metav1.TypeMeta{APIVersion: "rbac.authorization.k8s.io/v1", Kind: "ClusterRole"}
	if applied.TypeMeta != kind || applied.Name != "all" || applied.UID != "uid-all" || len(applied.Rules) != 1 {
		t.Errorf("applied %+v, want the identity and one rule", applied)
	}
}
