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
	return &registry.Kind{
		Names: registry.Names{
			Group: group, Version: version, Resource: "roles", Singular: "role", Kind: "Role",
			Namespaced:   true,
			ValidateName: meta.PathSegment,
		},
		New:     declare.New[rbacv1.Role],
		NewList: declare.New[rbacv1.RoleList],
		Stored:  registry.StorageForm{Prefix: "roles"},
		Create:  registry.Create{Validate: declare.AdaptResult(validateRole)},
		Update: registry.Update{
			// Kubernetes validates a changed object like a new one twice: before it validates the
			// change, and as a part of that.
			Order: registry.Order{
				registry.MetaRules, registry.UpdateRules,
				registry.MetaRules, registry.UpdateRules,
				registry.MetaUpdateRules,
			},
			AllowCreateOnUpdate: true,
			Validate:            declare.AdaptUpdateResult(func(r, _ *rbacv1.Role) field.ErrorList { return validateRole(r) }),
		},
	}
}
