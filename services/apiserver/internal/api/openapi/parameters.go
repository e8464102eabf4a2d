package openapi

import (
	"net/http"
	"reflect"
	"slices"
	"sort"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"binnacle/services/apiserver/internal/registry"
)

// parameter is a parameter of a path or an operation. in is inPath or inQuery, typ is a JSON type.
type parameter struct {
	name, in, typ, description string
	required                   bool
}

// Places of parameters.
const (
	inPath  = "path"
	inQuery = "query"
)

// parameters holds the parameters of operations. The lists are the query parameters of each verb.
type parameters struct {
	namespace, path, pretty                                    parameter
	get, list, create, update, patch, delete, deleteCollection []parameter
}

// newParameters returns the parameters. It derives the query parameters and their descriptions from
// the types of options.
func newParameters() *parameters {
	p := &parameters{
		namespace: parameter{
			name:        "namespace",
			in:          inPath,
			typ:         "string",
			required:    true,
			description: "object name and auth scope, such as for teams and projects",
		},
		path: parameter{name: "path", in: inPath, typ: "string", required: true, description: "path to the resource"},
		pretty: parameter{
			name:        "pretty",
			in:          inQuery,
			typ:         "string",
			description: "If 'true', then the output is pretty printed. Defaults to 'false' unless the user-agent indicates a browser or command-line HTTP tool (curl and wget).",
		},
		get:    queryParameters(metav1.GetOptions{}),
		list:   queryParameters(metav1.ListOptions{}),
		create: queryParameters(metav1.CreateOptions{}),
		update: queryParameters(metav1.UpdateOptions{}),
		patch:  queryParameters(metav1.PatchOptions{}),
		delete: queryParameters(metav1.DeleteOptions{}),
	}
	p.deleteCollection = mergeParameters(p.list, p.delete, "watch", "allowWatchBookmarks")
	return p
}

// nameParameter returns the path parameter for the name of an object of a kind.
func nameParameter(kind string) parameter {
	return parameter{name: "name", in: inPath, typ: "string", required: true, description: "name of the " + kind}
}

// queryParameters returns a query parameter for each scalar field of an options struct, and for
// each list of scalars, sorted by name.
func queryParameters(options any) []parameter {
	t := reflect.TypeOf(options)
	doc := docOf(options)
	var out []parameter
	for i := 0; i < t.NumField(); i++ {
		f := t.Field(i)
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		typ, ok := scalarType(f.Type)
		if name == "" || name == "-" || !ok || f.Anonymous {
			continue
		}
		out = append(out, parameter{name: name, in: inQuery, typ: typ, description: doc[name]})
	}
	sortParameters(out)
	return out
}

// scalarType returns the JSON type of a query parameter for a Go type, or false if there is none. A
// parameter for a list has the type of the elements, because it may be repeated.
func scalarType(t reflect.Type) (string, bool) {
	switch t.Kind() {
	case reflect.Pointer, reflect.Slice:
		return scalarType(t.Elem())
	case reflect.String:
		return "string", true
	case reflect.Bool:
		return "boolean", true
	case reflect.Int32, reflect.Int64:
		return "integer", true
	}
	return "", false
}

// mergeParameters returns the parameters of both lists, sorted by name. If both have a parameter of
// the same name, it returns the one in a. It omits the parameters named in without.
func mergeParameters(a, b []parameter, without ...string) []parameter {
	out := slices.Clone(a)
	for _, p := range b {
		if !slices.ContainsFunc(out, func(o parameter) bool { return o.name == p.name }) {
			out = append(out, p)
		}
	}
	out = slices.DeleteFunc(out, func(p parameter) bool { return slices.Contains(without, p.name) })
	sortParameters(out)
	return out
}

func sortParameters(ps []parameter) {
	sort.Slice(ps, func(i, j int) bool { return ps[i].name < ps[j].name })
}

// connectOperations returns the operations of a connection. HEAD and OPTIONS have no verbs. A
// subresource supports them if it proxies all methods, which it does if it has the verb delete.
func (c *kindDescriber) connectOperations(s *registry.Subresource, gvk schema.GroupVersionKind, name string) (ops []operation) {
	for _, m := range []struct{ verb, method string }{
		{verb: "get", method: http.MethodGet},
		{verb: "create", method: http.MethodPost},
		{verb: "update", method: http.MethodPut},
		{verb: "patch", method: http.MethodPatch},
		{verb: "delete", method: http.MethodDelete},
		{verb: "delete", method: http.MethodHead},
		{verb: "delete", method: http.MethodOptions},
	} {
		if !s.HasVerb(m.verb) {
			continue
		}
		method := m.method[:1] + strings.ToLower(m.method[1:]) // "Get"
		op := c.newOperation(
			m.method,
			"connect",
			operationID("connect", c.gv, method+c.scope+name),
			"connect "+m.method+" requests to "+s.Name+" of "+c.kind.Kind,
		)
		op.gvk = gvk
		op.result = &bodyModel{}
		op.produces = anyMediaType
		op.parameters = c.optionParameters(s, gvk)
		ops = append(ops, op)
	}
	return ops
}

// isConnect reports whether requests for a subresource are connections. The kind of such a
// subresource is the type of its options.
func isConnect(s *registry.Subresource) bool {
	switch s.Name {
	case "attach", "exec", "portforward", "proxy":
		return true
	}
	return false
}

// optionParameters returns the query parameters of a connection or a log, from the type of its
// options.
func (c *kindDescriber) optionParameters(s *registry.Subresource, gvk schema.GroupVersionKind) []parameter {
	if s.Name == "log" {
		gvk.Kind += "LogOptions"
	}
	obj, err := c.newObject(gvk)
	if err != nil {
		return nil
	}
	return queryParameters(reflect.ValueOf(obj).Elem().Interface())
}
