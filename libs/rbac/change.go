package rbac

// Change describes which decisions an update of the policy may affect. An update
// of metadata alone affects none.
type Change struct {
	// Position is the position of the policy after the update.
	Position Position
	// All reports whether the update may affect decisions in every namespace and at
	// cluster scope. That is so if a ClusterRole or ClusterRoleBinding changed, or if
	// all objects of a kind were reloaded.
	All bool
	// Namespaces holds the namespaces whose roles or bindings changed. They affect
	// decisions about requests in these namespaces only.
	Namespaces map[string]struct{}
}

// add records a change of a role or binding in a namespace. An empty namespace means a cluster role
// or its binding.
func (c *Change) add(namespace string) {
	if namespace == "" {
		c.All = true
		return
	}
	if c.Namespaces == nil {
		c.Namespaces = map[string]struct{}{}
	}
	c.Namespaces[namespace] = struct{}{}
}
