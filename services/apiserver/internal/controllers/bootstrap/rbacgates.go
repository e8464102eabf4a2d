package bootstrap

import (
	"encoding/json"
	"fmt"

	rbacv1 "k8s.io/api/rbac/v1"

	"binnacle/libs/features"
)

// gated is the part of an entry in rbac-defaults.json that lists feature gates. The entry is a
// default only if all of them are on.
type gated struct {
	FeatureGates []features.Gate `json:"featureGates"`
}

// isEnabled reports whether all gates of the entry are on. gateEnabled reports whether a gate is
// on.
func (g gated) isEnabled(gateEnabled func(features.Gate) bool) bool {
	for _, name := range g.FeatureGates {
		if !gateEnabled(name) {
			return false
		}
	}
	return true
}

// gatedRole is a cluster role whose rules may depend on feature gates. The field Rules hides
// ClusterRole.Rules when JSON is decoded.
type gatedRole struct {
	gated
	rbacv1.ClusterRole
	Rules []struct {
		gated
		rbacv1.PolicyRule
	} `json:"rules"`
}

// gatedBinding is a binding that exists only while its feature gates are on.
type gatedBinding struct {
	gated
	rbacv1.ClusterRoleBinding
}

// readDefaults returns the roles, rules and bindings in rbac-defaults.json whose feature gates are
// on.
func readDefaults(gateEnabled func(features.Gate) bool) (*policyObjects, error) {
	var all struct {
		ClusterRoles        []gatedRole           `json:"clusterRoles"`
		ClusterRoleBindings []gatedBinding        `json:"clusterRoleBindings"`
		Roles               []*rbacv1.Role        `json:"roles"`
		RoleBindings        []*rbacv1.RoleBinding `json:"roleBindings"`
	}
	if err := json.Unmarshal(rbacDefaults, &all); err != nil {
		return nil, fmt.Errorf("default roles: %w", err)
	}
	defaults := &policyObjects{Roles: all.Roles, RoleBindings: all.RoleBindings}
	for i := range all.ClusterRoles {
		role := &all.ClusterRoles[i]
		if !role.isEnabled(gateEnabled) {
			continue
		}
		for j := range role.Rules {
			if role.Rules[j].isEnabled(gateEnabled) {
				role.ClusterRole.Rules = append(role.ClusterRole.Rules, role.Rules[j].PolicyRule)
			}
		}
		defaults.ClusterRoles = append(defaults.ClusterRoles, &role.ClusterRole)
	}
	for i := range all.ClusterRoleBindings {
		if b := &all.ClusterRoleBindings[i]; b.isEnabled(gateEnabled) {
			defaults.ClusterRoleBindings = append(defaults.ClusterRoleBindings, &b.ClusterRoleBinding)
		}
	}
	return defaults, nil
}
