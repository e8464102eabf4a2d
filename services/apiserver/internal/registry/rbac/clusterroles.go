package rbac

import (
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"binnacle/services/apiserver/internal/registry"
	"binnacle/services/apiserver/internal/registry/declare"
	"binnacle/services/apiserver/internal/registry/meta"
)

func clusterRoles() *registry.Kind {
	return &registry.Kind{
		Group: group, Version: version, Resource: "clusterroles", Singular: "clusterrole", Kind: "ClusterRole",
		New:            declare.New[rbacv1.ClusterRole],
		NewList:        declare.New[rbacv1.ClusterRoleList],
		Stored:         registry.Stored{Prefix: "clusterroles"},
		ValidateName:   meta.PathSegment,
		CreateOnUpdate: true,
		Validate:       declare.Get(validateClusterRole),
		ValidateUpdate: declare.GetChange(func(r, _ *rbacv1.ClusterRole) field.ErrorList { return validateClusterRole(r) }),
	}
}
