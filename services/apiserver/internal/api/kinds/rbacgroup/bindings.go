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

// roleBindings declares the namespaced kind RoleBinding.
func roleBindings() *registry.Kind {
	return declare.Kind[rbacv1.RoleBinding, rbacv1.RoleBindingList](binding(
		registry.Names{Resource: "rolebindings", Kind: "RoleBinding", Namespaced: true}, []string{kindRole, kindClusterRole},
		bindingColumns("roleBinding", columns.Doc(rbacv1beta1.RoleBinding{}, "roleRef"), roleBindingParts), roleBindingParts))
}

func roleBindingParts(b *rbacv1.RoleBinding) (*rbacv1.RoleRef, []rbacv1.Subject) {
	return &b.RoleRef, b.Subjects
}

// clusterRoleBindings declares the cluster-scoped kind ClusterRoleBinding.
func clusterRoleBindings() *registry.Kind {
	return declare.Kind[rbacv1.ClusterRoleBinding, rbacv1.ClusterRoleBindingList](binding(
		registry.Names{Resource: "clusterrolebindings", Kind: "ClusterRoleBinding"}, []string{kindClusterRole},
		bindingColumns("clusterRoleBinding", columns.Doc(rbacv1beta1.ClusterRoleBinding{}, "roleRef"), clusterRoleBindingParts), clusterRoleBindingParts))
}

func clusterRoleBindingParts(b *rbacv1.ClusterRoleBinding) (*rbacv1.RoleRef, []rbacv1.Subject) {
	return &b.RoleRef, b.Subjects
}

// binding declares what the kinds of bindings share. roleKinds are the kinds of roles that objects
// can bind. partsOf returns the role and the subjects of an object.
func binding[T registry.Object](names registry.Names, roleKinds []string, cols []registry.Column, partsOf func(T) (*rbacv1.RoleRef, []rbacv1.Subject)) *registry.Kind {
	names.Group, names.Version, names.ValidateName = group, version, meta.PathSegment
	return &registry.Kind{
		Names:          names,
		Default:        declare.Adapt(func(b T) { defaultBinding(partsOf(b)) }),
		DefaultedRules: bindingDefaultedRules,
		Create: registry.Create{Validate: declare.AdaptResult(func(b T) field.ErrorList {
			ref, subjects := partsOf(b)
			return validateBinding(*ref, subjects, names.Namespaced, roleKinds...)
		})},
		Update: registry.Update{
			// Kubernetes validates a changed object like a new one twice: before it validates the
			// change, and as a part of that.
			Order: registry.Order{
				registry.MetaRules, registry.CreateRules,
				registry.MetaRules, registry.CreateRules,
				registry.MetaUpdateRules, registry.UpdateRules,
			},
			AllowCreateOnUpdate: true,
			Validate: declare.AdaptUpdateResult(func(b, old T) field.ErrorList {
				ref, _ := partsOf(b)
				oldRef, _ := partsOf(old)
				return validateSameRole(*ref, *oldRef)
			}),
		},
		Presentation: registry.Presentation{Columns: cols},
	}
}

// bindingColumns returns the columns of both kinds of bindings. description and refDesc are the
// descriptions of the columns. The latter is that of an older version, as in Kubernetes.
func bindingColumns[T registry.Object](description, refDesc string, partsOf func(T) (*rbacv1.RoleRef, []rbacv1.Subject)) []registry.Column {
	subjects := func(name, kind string, text func(rbacv1.Subject) string) registry.Column {
		return columns.WideText(name, name+" in the "+description, func(o T) string {
			_, all := partsOf(o)
			return subjectsText(all, kind, text)
		})
	}
	name := func(s rbacv1.Subject) string { return s.Name }
	return []registry.Column{
		columns.Name(),
		columns.Text("Role", refDesc, func(o T) string {
			ref, _ := partsOf(o)
			return ref.Kind + "/" + ref.Name
		}),
		columns.Age(),
		subjects("Users", rbacv1.UserKind, name),
		subjects("Groups", rbacv1.GroupKind, name),
		subjects("ServiceAccounts", rbacv1.ServiceAccountKind, func(s rbacv1.Subject) string { return s.Namespace + "/" + s.Name }),
	}
}
