package rbacgroup

import (
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"binnacle/services/apiserver/internal/registry"
	"binnacle/services/apiserver/internal/registry/declare"
	"binnacle/services/apiserver/internal/registry/meta"
)

// roles declares the namespaced kind Role.
func roles() *registry.Kind {
	return declare.Kind[rbacv1.Role, rbacv1.RoleList](role(
		registry.Names{Resource: "roles", Kind: kindRole, Namespaced: true}, validateRole))
}

// clusterRoles declares the cluster-scoped kind ClusterRole.
func clusterRoles() *registry.Kind {
	return declare.Kind[rbacv1.ClusterRole, rbacv1.ClusterRoleList](role(
		registry.Names{Resource: "clusterroles", Kind: kindClusterRole}, validateClusterRole))
}

// role declares what the kinds of roles share.
func role[T registry.Object](names registry.Names, validate func(T) field.ErrorList) *registry.Kind {
	names.Group, names.Version, names.ValidateName = group, version, meta.PathSegment
	return &registry.Kind{
		Names:  names,
		Create: registry.Create{Validate: declare.AdaptResult(validate)},
		Update: registry.Update{
			// Kubernetes validates a changed object like a new one twice: before it validates the
			// change, and as a part of that.
			Order: registry.Order{
				registry.MetaRules, registry.UpdateRules,
				registry.MetaRules, registry.UpdateRules,
				registry.MetaUpdateRules,
			},
			AllowCreateOnUpdate: true,
			Validate:            declare.AdaptUpdateResult(func(r, _ T) field.ErrorList { return validate(r) }),
		},
	}
}
