package handlers

// subresourceHandler returns the handler of a path below an object.
func (a *API) subresourceHandler(c *Call) handler {
	get, update, patch := a.get, a.update, a.patch
	switch {
	case c.Sub.Scale != nil:
		get, update, patch = a.getScale, a.updateScale, a.patchScale
	case c.overParent():
	default:
		return a.serving(c)
	}
	switch c.Op.Verb {
	case "get":
		return get
	case "update":
		return update
	case "patch":
		return patch
	}
	return nil
}

// overParent reports whether a subresource is a view of the parent object itself.
func (c *Call) overParent() bool {
	return c.Sub.New == nil && (c.Sub.GVK.Kind == "" || c.Sub.GVK.Kind == c.Kind.Kind)
}

// virtualHandler returns the handler of a kind that stores nothing.
func (a *API) virtualHandler(c *Call) handler {
	components := c.Resource == "componentstatuses"
	switch verb := c.Op.Verb; {
	case components && (verb == "list" || verb == "watch"):
		return a.listComponents
	case components && verb == "get":
		return a.getComponent
	case verb != "create" || !c.HasVerb(verb) || !c.takesNew():
		return nil
	}
	return a.serving(c)
}
