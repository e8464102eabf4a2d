// Package rbacgroup declares the kinds of the group rbac.authorization.k8s.io, v1. It has no
// state. Kinds returns new values for the catalog of built-in kinds. The name of an object may be any
// path segment, such as "system:node".
package rbacgroup

import (
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"

	"binnacle/services/apiserver/internal/registry"
)

const (
	group   = rbacv1.GroupName
	version = "v1"

	kindRole        = "Role"
	kindClusterRole = "ClusterRole"
)

// Kinds returns the kinds of the group, ordered by resource.
func Kinds() []*registry.Kind {
	return []*registry.Kind{
		clusterRoleBindings(),
		clusterRoles(),
		roleBindings(),
		roles(),
	}
}

// subjectsText returns the texts of the subjects of a kind, for a table column.
func subjectsText(subjects []rbacv1.Subject, kind string, text func(rbacv1.Subject) string) string {
	var out []string
	for _, s := range subjects {
		if s.Kind == kind {
			out = append(out, text(s))
		}
	}
	return strings.Join(out, ", ")
}
