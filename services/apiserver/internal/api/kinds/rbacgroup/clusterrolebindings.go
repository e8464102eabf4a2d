package rbacgroup

import (
	rbacv1 "k8s.io/api/rbac/v1"
	rbacv1beta1 "k8s.io/api/rbac/v1beta1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"binnacle/services/apiserver/internal/registry"
	"binnacle/services/apiserver/internal/registry/columns"
	"binnacle/services/apiserver/internal/registry/declare"
	"binnacle/services/apiserver/internal/registry/meta"
)

// clusterRoleBindings declares the cluster-scoped kind ClusterRoleBinding.
func clusterRoleBindings() *registry.Kind {
	return &registry.Kind{
		Names: registry.Names{
			Group:        group,
			Version:      version,
			Resource:     "clusterrolebindings",
			Singular:     "clusterrolebinding",
			Kind:         "ClusterRoleBinding",
			ValidateName: meta.PathSegment,
		},
		New:            declare.New[rbacv1.ClusterRoleBinding],
		NewList:        declare.New[rbacv1.ClusterRoleBindingList],
		Stored:         registry.StorageForm{Prefix: "clusterrolebindings"},
		Default:        declare.Adapt(func(b *rbacv1.ClusterRoleBinding) { defaultBinding(&b.RoleRef, b.Subjects) }),
		DefaultedRules: bindingDefaultedRules,
		Create:         registry.Create{Validate: declare.AdaptResult(validateClusterRoleBinding)},
		Update: registry.Update{
			// Kubernetes validates a changed object like a new one twice: before it validates the
			// change, and as a part of that.
			Order: registry.Order{
				registry.MetaRules, registry.CreateRules,
				registry.MetaRules, registry.CreateRules,
				registry.MetaUpdateRules, registry.UpdateRules,
			},
			AllowCreateOnUpdate: true,
			Validate: declare.AdaptUpdateResult(func(b, old *rbacv1.ClusterRoleBinding) field.ErrorList {
				return validateSameRole(b.RoleRef, old.RoleRef)
			}),
		},
		Presentation: registry.Presentation{
			// The description is that of an older version, as in Kubernetes.
			Columns: bindingColumns("clusterRoleBinding", columns.Doc(rbacv1beta1.ClusterRoleBinding{}, "roleRef"),
				func(b *rbacv1.ClusterRoleBinding) (rbacv1.RoleRef, []rbacv1.Subject) { return b.RoleRef, b.Subjects }),
		},
	}
}

func validateClusterRoleBinding(b *rbacv1.ClusterRoleBinding) field.ErrorList {
	return validateBinding(b.RoleRef, b.Subjects, false, kindClusterRole)
}
