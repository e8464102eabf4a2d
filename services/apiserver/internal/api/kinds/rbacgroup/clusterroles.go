package rbacgroup

import (
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"binnacle/services/apiserver/internal/registry"
	"binnacle/services/apiserver/internal/registry/declare"
	"binnacle/services/apiserver/internal/registry/meta"
)

// clusterRoles declares the cluster-scoped kind ClusterRole.
func clusterRoles() *registry.Kind {
	return &registry.Kind{
		Names: registry.Names{
			Group:        group,
			Version:      version,
			Resource:     "clusterroles",
			Singular:     "clusterrole",
			Kind:         "ClusterRole",
			ValidateName: meta.PathSegment,
		},
		New:     declare.New[rbacv1.ClusterRole],
		NewList: declare.New[rbacv1.ClusterRoleList],
		Stored:  registry.StorageForm{Prefix: "clusterroles"},
		Create:  registry.Create{Validate: declare.AdaptResult(validateClusterRole)},
		Update: registry.Update{
			// Kubernetes validates a changed object like a new one twice: before it validates the
			// change, and as a part of that.
			Order: registry.Order{
				registry.MetaRules, registry.UpdateRules,
				registry.MetaRules, registry.UpdateRules,
				registry.MetaUpdateRules,
			},
			AllowCreateOnUpdate: true,
			Validate: declare.AdaptUpdateResult(
				func(r, _ *rbacv1.ClusterRole) field.ErrorList { return validateClusterRole(r) },
			),
		},
	}
}
