// Package rbacgroup declares the kinds of the group rbac.authorization.k8s.io, v1, with one file for
// each kind. It has no state. Kinds returns new values for the catalog of built-in kinds.
package rbacgroup

import (
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"

	"binnacle/services/apiserver/internal/registry"
	"binnacle/services/apiserver/internal/registry/columns"
)

const (
	group   = rbacv1.GroupName
	version = "v1"

	kindRole        = "Role"
	kindClusterRole = "ClusterRole"
)

// Kinds returns the kinds of the group, ordered by resource. Their names may be any path segment,
// such as "system:node".
func Kinds() []*registry.Kind {
	return []*registry.Kind{
		clusterRoleBindings(),
		clusterRoles(),
		roleBindings(),
		roles(),
	}
}

// bindingColumns returns the columns of both kinds of bindings. description and refDesc are
// the descriptions of the columns.
func bindingColumns[T registry.Object](
	description, refDesc string,
	binding func(T) (rbacv1.RoleRef, []rbacv1.Subject),
) []registry.Column {
	subjects := func(name, kind string, text func(rbacv1.Subject) string) registry.Column {
		return columns.WideText(name, name+" in the "+description, func(o T) string {
			_, all := binding(o)
			return subjectsText(all, kind, text)
		})
	}
	name := func(s rbacv1.Subject) string { return s.Name }
	return []registry.Column{
		columns.Name(),
		columns.Text("Role", refDesc, func(o T) string {
			ref, _ := binding(o)
			return ref.Kind + "/" + ref.Name
		}),
		columns.Age(),
		subjects("Users", rbacv1.UserKind, name),
		subjects("Groups", rbacv1.GroupKind, name),
		subjects("ServiceAccounts", rbacv1.ServiceAccountKind, func(s rbacv1.Subject) string { return s.Namespace + "/" + s.Name }),
	}
}

func subjectsText(all []rbacv1.Subject, kind string, text func(rbacv1.Subject) string) string {
	var out []string
	for _, s := range all {
		if s.Kind == kind {
			out = append(out, text(s))
		}
	}
	return strings.Join(out, ", ")
}
