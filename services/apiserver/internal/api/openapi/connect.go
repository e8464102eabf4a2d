package openapi

import (
	"net/http"
	"reflect"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"binnacle/services/apiserver/internal/registry"
)

// connect returns the operations of a subresource that proxies the connection. HEAD and OPTIONS are not
// verbs. A subresource has them if it proxies every method; only then it has the verb delete.
func (c *kindDescriber) connect(s *registry.Subresource, gvk schema.GroupVersionKind, name string) (ops []operation) {
	for _, m := range []struct{ verb, method string }{
		{"get", http.MethodGet}, {"create", http.MethodPost}, {"update", http.MethodPut}, {"patch", http.MethodPatch},
		{"delete", http.MethodDelete}, {"delete", http.MethodHead}, {"delete", http.MethodOptions},
	} {
		if !s.HasVerb(m.verb) {
			continue
		}
		verb := m.method[:1] + strings.ToLower(m.method[1:])
		op := c.base(m.method, "connect", operationID("connect", c.gv, verb+c.scope+name), "connect "+m.method+" requests to "+s.Name+" of "+c.kind.Kind)
		op.gvk = gvk
		op.result = &model{}
		op.produces = anyMediaType
		op.parameters = c.optionsOf(s, gvk)
		ops = append(ops, op)
	}
	return ops
}

// isConnect reports whether a subresource is a connection. Its kind is the type of its options.
func isConnect(s *registry.Subresource) bool {
	switch s.Name {
	case "attach", "exec", "portforward", "proxy":
		return true
	}
	return false
}

// optionsOf returns the query parameters of a connection or a log.
func (c *kindDescriber) optionsOf(s *registry.Subresource, gvk schema.GroupVersionKind) []parameter {
	if s.Name == "log" {
		gvk.Kind += "LogOptions"
	}
	obj, err := c.newObject(gvk)
	if err != nil {
		return nil
	}
	return query(reflect.ValueOf(obj).Elem().Interface())
}
