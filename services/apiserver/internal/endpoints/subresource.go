package endpoints

import (
	"net/http"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// subresourceMethods are the handlers of a path below an object.
func (a *API) subresourceMethods(c *call) map[string]handler {
	if c.connects() {
		return a.connectMethods(c)
	}
	get, update, patch := a.get, a.update, a.patch
	switch {
	case c.sub.Scale != nil:
		get, update, patch = a.getScale, a.updateScale, a.patchScale
	case c.overParent():
	default:
		return a.operationMethods(c)
	}
	m := map[string]handler{}
	for verb, h := range map[string]struct {
		method string
		handler
	}{
		"get": {http.MethodGet, get}, "update": {http.MethodPut, update}, "patch": {http.MethodPatch, patch},
	} {
		if c.sub.HasVerb(verb) {
			m[h.method] = h.handler
		}
	}
	return m
}

// overParent tells whether a sub-resource shows the parent object itself.
func (c *call) overParent() bool {
	return c.sub.New == nil && (c.sub.GVK.Kind == "" || c.sub.GVK.Kind == c.Kind.Kind)
}

// operationMethods are the handlers of sub-resources that are operations.
func (a *API) operationMethods(c *call) map[string]handler {
	h := a.absentOperation
	switch {
	case c.Resource == "pods" && c.sub.Name == "binding":
		h = a.bind
	case c.Resource == "pods" && c.sub.Name == "eviction":
		h = a.evict
	case c.Resource == "serviceaccounts" && c.sub.Name == "token":
		h = a.requestToken
	}
	m := map[string]handler{}
	for verb, method := range map[string]string{
		"create": http.MethodPost, "get": http.MethodGet, "update": http.MethodPut,
		"patch": http.MethodPatch, "delete": http.MethodDelete,
	} {
		if c.sub.HasVerb(verb) {
			m[method] = h
		}
	}
	return m
}

// absentOperation says that this server has no such operation.
func (a *API) absentOperation(c *call) error {
	return statusError(http.StatusNotImplemented, "NotImplemented",
		"the server does not offer "+c.Resource+"/"+c.sub.Name, &metav1.StatusDetails{Group: c.Group, Kind: c.Resource, Name: c.info.Name})
}
