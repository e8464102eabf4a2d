package openapi

import (
	"net/http"
	"reflect"
	"sort"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"binnacle/services/apiserver/internal/registry"
)

// parameter is a parameter of a path or an operation.
type parameter struct {
	name, in, typ, description string
	required                   bool
}

const (
	inPath  = "path"
	inQuery = "query"
)

// parameters holds the sets of parameters that operations share.
type parameters struct {
	namespace, path, pretty                                 parameter
	get, list, create, update, patch, remove, removeSeveral []parameter
}

// newParameters derives the parameters and their documentation from the options types.
func newParameters() *parameters {
	p := &parameters{
		namespace: parameter{name: "namespace", in: inPath, typ: "string", required: true, description: "object name and auth scope, such as for teams and projects"},
		path:      parameter{name: "path", in: inPath, typ: "string", required: true, description: "path to the resource"},
		pretty:    parameter{name: "pretty", in: inQuery, typ: "string", description: "If 'true', then the output is pretty printed. Defaults to 'false' unless the user-agent indicates a browser or command-line HTTP tool (curl and wget)."},
		get:       query(metav1.GetOptions{}),
		list:      query(metav1.ListOptions{}),
		create:    query(metav1.CreateOptions{}),
		update:    query(metav1.UpdateOptions{}),
		patch:     query(metav1.PatchOptions{}),
		remove:    query(metav1.DeleteOptions{}),
	}
	p.removeSeveral = union(p.list, p.remove, "watch", "allowWatchBookmarks")
	return p
}

// named returns the parameter for an object's name.
func named(kind string) parameter {
	return parameter{name: "name", in: inPath, typ: "string", required: true, description: "name of the " + kind}
}

// query returns query parameters for the scalar fields of an options type.
func query(options any) []parameter {
	t := reflect.TypeOf(options)
	doc := docOf(options)
	var out []parameter
	for i := 0; i < t.NumField(); i++ {
		f := t.Field(i)
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		typ, ok := scalar(f.Type)
		if name == "" || name == "-" || !ok || f.Anonymous {
			continue
		}
		out = append(out, parameter{name: name, in: inQuery, typ: typ, description: doc[name]})
	}
	sortParameters(out)
	return out
}

// scalar returns the type of a query parameter. Parameters for lists may be repeated.
func scalar(t reflect.Type) (string, bool) {
	switch t.Kind() {
	case reflect.Pointer, reflect.Slice:
		return scalar(t.Elem())
	case reflect.String:
		return "string", true
	case reflect.Bool:
		return "boolean", true
	case reflect.Int32, reflect.Int64:
		return "integer", true
	}
	return "", false
}

// union returns the parameters of both lists, each once, except those named by without.
func union(a, b []parameter, without ...string) []parameter {
	out := append([]parameter(nil), a...)
	for _, p := range b {
		if !has(out, p.name) {
			out = append(out, p)
		}
	}
	retained := out[:0]
	for _, p := range out {
		drop := false
		for _, w := range without {
			drop = drop || p.name == w
		}
		if !drop {
			retained = append(retained, p)
		}
	}
	sortParameters(retained)
	return retained
}

func has(ps []parameter, name string) bool {
	for _, p := range ps {
		if p.name == name {
			return true
		}
	}
	return false
}

func sortParameters(ps []parameter) {
	sort.Slice(ps, func(i, j int) bool { return ps[i].name < ps[j].name })
}

// connect returns the operations of a subresource that proxies the connection. HEAD and OPTIONS are
// not verbs. A subresource has them if it proxies every method; only then it has the verb delete.
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
