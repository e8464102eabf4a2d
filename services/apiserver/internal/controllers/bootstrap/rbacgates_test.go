package bootstrap

import (
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"

	"binnacle/libs/features"
	"binnacle/libs/rbac"
)

// TestDefaultRolesFollowFeatureGates changes each gate on its own and compares roles, bindings and
// rules with those of the default gates.
func TestDefaultRolesFollowFeatureGates(t *testing.T) {
	defaults := policyOf(t, "")
	rule := func(group, resources, verb string) rbacv1.PolicyRule {
		return rbacv1.PolicyRule{APIGroups: []string{group}, Resources: []string{resources}, Verbs: []string{verb}}
	}
	url := func(path string) rbacv1.PolicyRule {
		return rbacv1.PolicyRule{NonResourceURLs: []string{path}, Verbs: []string{"get"}}
	}
	const controller = "system:controller:"
	for name, test := range map[string]struct {
		gates string
		// roles exist in only one of the policies, with a binding of the same name.
		roles []string
		// rules belong to roles that both policies have.
		rules map[string]rbacv1.PolicyRule
	}{
		"DynamicResourceAllocation": {gates: "DynamicResourceAllocation=true", roles: []string{controller + "resource-claim-controller"}, rules: map[string]rbacv1.PolicyRule{
			"system:kube-scheduler":    rule("", "pods/finalizers", "patch"),
			"system:node":              rule("resource.k8s.io", "resourceclaims", "get"),
			"system:aggregate-to-edit": rule("resource.k8s.io", "resourceclaimtemplates", "create"),
			"system:aggregate-to-view": rule("resource.k8s.io", "resourceclaims/status", "get"),
			"view":                     rule("resource.k8s.io", "resourceclaims", "list"), "admin": rule("resource.k8s.io", "resourceclaims", "delete"),
		}},
		"DRADeviceTaints": {gates: "DRADeviceTaints=true"}, // requires DynamicResourceAllocation
		"device taints":   {gates: "DynamicResourceAllocation=true,DRADeviceTaints=true", roles: []string{controller + "resource-claim-controller", controller + "device-taint-eviction-controller"}},
		"ClusterTrustBundle": {gates: "ClusterTrustBundle=true", roles: []string{"system:cluster-trust-bundle-discovery", controller + "kube-apiserver-serving-clustertrustbundle-publisher"}, rules: map[string]rbacv1.PolicyRule{
			"system:node": rule("certificates.k8s.io", "clustertrustbundles", "watch"),
		}},
		"service accounts for credentials": {gates: "KubeletServiceAccountTokenForCredentialProviders=true", rules: map[string]rbacv1.PolicyRule{"system:node": rule("", "serviceaccounts", "get")}},
		"ComponentFlagz":                   {gates: "ComponentFlagz=true", rules: map[string]rbacv1.PolicyRule{"system:monitoring": url("/flagz")}},
		"ComponentStatusz":                 {gates: "ComponentStatusz=true", rules: map[string]rbacv1.PolicyRule{"system:monitoring": url("/statusz")}},
		"StorageVersionAPI":                {gates: "StorageVersionAPI=true", roles: []string{controller + "storage-version-garbage-collector"}},
		"StorageVersionMigrator":           {gates: "StorageVersionMigrator=true", roles: []string{controller + "storage-version-migrator-controller"}},
		"VolumeAttributesClass":            {gates: "VolumeAttributesClass=true", roles: []string{controller + "volumeattributesclass-protection-controller"}},
		"SELinuxChangePolicy":              {gates: "SELinuxChangePolicy=false", roles: []string{controller + "selinux-warning-controller"}},
		"KubeletFineGrainedAuthz":          {gates: "KubeletFineGrainedAuthz=false", rules: map[string]rbacv1.PolicyRule{"system:kubelet-api-admin": rule("", "nodes/configz", "get")}},
	} {
		t.Run(name, func(t *testing.T) {
			got := policyOf(t, test.gates)
			want := map[string]bool{}
			for _, role := range test.roles {
				want[role] = true
			}
			for _, role := range missingRoles(defaults, got) {
				if !want[role] {
					t.Errorf("%s: got no role with the gate changed, want the role in both policies", role)
				}
			}
			for _, role := range missingRoles(got, defaults) {
				if !want[role] {
					t.Errorf("%s: got no role in the default policy, want the role in both policies", role)
				}
			}
			for role := range want {
				if (defaults[role] == nil) == (got[role] == nil) {
					t.Errorf("%s: got role in both or neither of the policies, want it in only one", role)
				}
			}
			for role, gatedRule := range test.rules {
				before, _ := rbac.Covers(defaults[role], []rbacv1.PolicyRule{gatedRule})
				after, _ := rbac.Covers(got[role], []rbacv1.PolicyRule{gatedRule})
				if before == after {
					t.Errorf("%s: got rule %v covered: %t by both policies, want it covered by only one", role, gatedRule, after)
				}
			}
		})
	}
}

// missingRoles returns the roles of one policy that the other policy does not have.
func missingRoles(policy, other map[string][]rbacv1.PolicyRule) (missing []string) {
	for role := range policy {
		if _, ok := other[role]; !ok {
			missing = append(missing, role)
		}
	}
	return missing
}

// policyOf returns the rules of the default cluster roles, with some feature gates set.
func policyOf(t *testing.T, set string) map[string][]rbacv1.PolicyRule {
	t.Helper()
	gates := features.New()
	if set != "" {
		if err := gates.Set(set); err != nil {
			t.Fatal(err)
		}
	}
	defaults, err := defaultPolicy(gates.Enabled)
	if err != nil {
		t.Fatal(err)
	}
	roles := map[string][]rbacv1.PolicyRule{}
	for _, role := range defaults.ClusterRoles {
		roles[role.Name] = append([]rbacv1.PolicyRule{}, role.Rules...)
	}
	for _, binding := range defaults.ClusterRoleBindings {
		if roles[binding.RoleRef.Name] == nil {
			t.Errorf("binding %s names the missing role %s", binding.Name, binding.RoleRef.Name)
		}
	}
	return roles
}
