package endpoints

import (
	"net/http"

	"binnacle/services/apiserver/internal/status"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// subresourceHandler is the handler of a path below an object.
func (a *API) subresourceHandler(c *call) handler {
	get, update, patch := a.get, a.update, a.patch
	switch {
	case c.sub.Scale != nil:
		get, update, patch = a.getScale, a.updateScale, a.patchScale
	case c.overParent():
	default:
		return a.operation(c)
	}
	switch c.op.Verb {
	case "get":
		return get
	case "update":
		return update
	case "patch":
		return patch
	}
	return nil
}

// overParent tells whether a sub-resource shows the parent object itself.
func (c *call) overParent() bool {
	return c.sub.New == nil && (c.sub.GVK.Kind == "" || c.sub.GVK.Kind == c.Kind.Kind)
}

// operation is the handler of a sub-resource that is an operation.
func (a *API) operation(c *call) handler {
	switch {
	case c.Resource == "pods" && c.sub.Name == "binding":
		return a.bind
	case c.Resource == "pods" && c.sub.Name == "eviction":
		return a.evict
	case c.Resource == "serviceaccounts" && c.sub.Name == "token":
		return a.requestToken
	}
	return a.absentOperation
}

// absentOperation says that this server has no such operation.
func (a *API) absentOperation(c *call) error {
	return status.Error(http.StatusNotImplemented, "NotImplemented",
		"the server does not offer "+c.Resource+"/"+c.sub.Name, &metav1.StatusDetails{Group: c.Group, Kind: c.Resource, Name: c.op.Name})
}
