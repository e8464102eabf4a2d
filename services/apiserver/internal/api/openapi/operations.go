package openapi

import (
	"net/http"
	"reflect"
	"slices"
	"sort"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"binnacle/libs/api"
	"binnacle/services/apiserver/internal/registry"
)

// path is a path with its operations, independent of the OpenAPI version.
type path struct {
	path       string
	parameters []parameter // common to all operations
	operations []operation
}

// operation is a method of a path.
type operation struct {
	method      string // HTTP method
	id          string
	action      string // value of extAction; empty outside of resources
	description string
	tag         string
	gvk         schema.GroupVersionKind // value of extGVK
	parameters  []parameter
	// body and result are the models of the request body and the response body. body is nil if the
	// request has no body.
	body, result       *bodyModel
	bodyOptional       bool
	codes              []int    // status codes of successful responses
	consumes, produces []string // media types
}

// bodyModel is the type of a request or response body: a Go type (typ), or the model of a custom
// resource (name). If both are empty, the body is any text.
type bodyModel struct {
	typ  reflect.Type
	name string
}

// bodyOf returns the model of a body with the type of the object to which v points.
func bodyOf(v any) *bodyModel { return &bodyModel{typ: reflect.TypeOf(v).Elem()} }

// anyMediaType is the media type of the request bodies of built-in kinds, as in Kubernetes.
var anyMediaType = []string{"*/*"}

// mediaTypes holds the media types of requests and responses.
type mediaTypes struct {
	// object, list and patch are for built-in kinds.
	object, list, patch []string
	// custom and customPatch are for custom resources: without protobuf, and without the strategic
	// merge patch, which needs a Go type.
	custom, customPatch []string
}

// mediaTypesOf returns the media types of a server with the given options.
func mediaTypesOf(options Options) mediaTypes {
	media := mediaTypes{
		object: []string{api.MediaJSON, api.MediaYAML, api.MediaProtobuf},
		list: []string{
			api.MediaJSON,
			api.MediaYAML,
			api.MediaProtobuf,
			api.MediaJSON + ";stream=watch",
			api.MediaProtobuf + ";stream=watch",
		},
		patch:       options.Patches,
		custom:      []string{api.MediaJSON, api.MediaYAML},
		customPatch: options.CustomPatches,
	}
	if options.CBOR {
		media.object = append(media.object, api.MediaCBOR)
		media.list = append(media.list, api.MediaCBOR, api.MediaCBORSequence)
	}
	return media
}

// describer builds the paths of one group version.
type describer struct {
	gv     schema.GroupVersion
	params *parameters
	media  *mediaTypes
	// newObject returns an object of a kind that has a Go type.
	newObject func(schema.GroupVersionKind) (runtime.Object, error)
	// custom reports that the kinds are custom resources, which have no Go types.
	custom bool
	paths  []path // result
}

// describeGroupVersion returns all paths of a group version with the given kinds.
func (d *describer) describeGroupVersion(kinds []*registry.Kind) []path {
	root := "/" + apiPath(d.gv) + "/"
	if !d.custom { // Kubernetes describes discovery only for built-in group versions
		d.addPath(path{path: root, operations: []operation{{
			method:      http.MethodGet,
			id:          operationID("get", d.gv, "APIResources"),
			description: "get available resources",
			tag:         tag(d.gv.Group, d.gv.Version),
			result:      bodyOf(&metav1.APIResourceList{}),
			codes:       []int{http.StatusOK},
			consumes:    d.media.object,
			produces:    d.media.object,
		}}})
	}
	for _, k := range kinds {
		d.addKind(root, k)
	}
	return d.paths
}

// addKind adds the paths of a kind. root is the path of the group version with a trailing slash.
func (d *describer) addKind(root string, kind *registry.Kind) {
	inNamespace, scope := "", ""
	var scopeParameters []parameter
	if kind.Namespaced {
		inNamespace, scope = "namespaces/{namespace}/", "Namespaced"
		scopeParameters = []parameter{d.params.namespace}
	}
	kindOps := &kindDescriber{describer: d, kind: kind, scope: scope}
	pretty := []parameter{d.params.pretty}
	objectParameters := append([]parameter{nameParameter(kind.Kind)}, scopeParameters...)

	// 1. The collection, its objects and their subresources.
	collection := root + inNamespace + kind.Resource
	d.addOperations(collection, slices.Concat(scopeParameters, pretty), kindOps.collectionOperations()...)
	d.addOperations(collection+"/{name}", slices.Concat(objectParameters, pretty), kindOps.objectOperations()...)
	for i := range kind.Subresources {
		d.addSubresource(kindOps, collection, &kind.Subresources[i], objectParameters, scopeParameters)
	}

	// 2. The collection in all namespaces.
	if kind.Namespaced && kind.HasVerb("list") {
		id := operationID("list", d.gv, kind.Kind+"ForAllNamespaces")
		d.addOperations(root+kind.Resource, pretty, kindOps.listOperation(id))
	}

	// 3. The deprecated paths of watches, which custom resources do not have.
	if d.custom || !kind.HasVerb("watch") {
		return
	}
	watched := root + "watch/" + inNamespace + kind.Resource
	d.addOperations(watched, slices.Concat(scopeParameters, pretty), kindOps.watchListOperation(kindOps.id("watch", kind.Kind+"List")))
	d.addOperations(watched+"/{name}", slices.Concat(objectParameters, pretty), kindOps.watchOperation())
	if kind.Namespaced {
		id := operationID("watch", d.gv, kind.Kind+"ListForAllNamespaces")
		d.addOperations(root+"watch/"+kind.Resource, pretty, kindOps.watchListOperation(id))
	}
}

// addSubresource adds the paths of a subresource. collection is the path of the collection.
// objectParameters are the path parameters of an object: its name and scopeParameters.
func (d *describer) addSubresource(
	kindOps *kindDescriber,
	collection string,
	subresource *registry.Subresource,
	objectParameters, scopeParameters []parameter,
) {
	url := collection + "/{name}/" + subresource.Name
	parameters := append([]parameter{nameParameter(subresourceKind(kindOps.kind, subresource).Kind)}, scopeParameters...)
	if d.custom {
		parameters = slices.Clone(objectParameters)
	}
	if !isConnect(subresource) { // a connection has only the parameters of its options
		parameters = append(parameters, d.params.pretty)
	}
	d.addOperations(url, parameters, kindOps.subresourceOperations(subresource, "")...)
	if subresource.Name == "proxy" {
		withPath := slices.Concat(parameters, []parameter{d.params.path})
		d.addOperations(url+"/{path}", withPath, kindOps.subresourceOperations(subresource, "WithPath")...)
	}
}

// addOperations adds a path with operations.
func (d *describer) addOperations(url string, parameters []parameter, operations ...operation) {
	d.addPath(path{path: url, parameters: slices.Clone(parameters), operations: operations})
}

// addPath adds a path if it has operations. It moves the parameters that all operations have in common
// to the path.
func (d *describer) addPath(p path) {
	if len(p.operations) == 0 {
		return
	}
	common := slices.Clone(p.operations[0].parameters)
	for i := range p.operations {
		common = slices.DeleteFunc(common, func(c parameter) bool { return !slices.Contains(p.operations[i].parameters, c) })
	}
	for i := range p.operations {
		op := &p.operations[i]
		op.parameters = slices.DeleteFunc(slices.Clone(op.parameters), func(c parameter) bool { return slices.Contains(common, c) })
	}
	p.parameters = append(p.parameters, common...)
	sortParameters(p.parameters)
	d.paths = append(d.paths, p)
}

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
	out := &parameters{
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
	out.deleteCollection = mergeParameters(out.list, out.delete, "watch", "allowWatchBookmarks")
	return out
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
func (c *kindDescriber) connectOperations(subresource *registry.Subresource, gvk schema.GroupVersionKind, name string) (ops []operation) {
	for _, m := range []struct{ verb, method string }{
		{verb: "get", method: http.MethodGet},
		{verb: "create", method: http.MethodPost},
		{verb: "update", method: http.MethodPut},
		{verb: "patch", method: http.MethodPatch},
		{verb: "delete", method: http.MethodDelete},
		{verb: "delete", method: http.MethodHead},
		{verb: "delete", method: http.MethodOptions},
	} {
		if !subresource.HasVerb(m.verb) {
			continue
		}
		method := m.method[:1] + strings.ToLower(m.method[1:]) // "Get"
		op := c.newOperation(
			m.method,
			"connect",
			operationID("connect", c.gv, method+c.scope+name),
			"connect "+m.method+" requests to "+subresource.Name+" of "+c.kind.Kind,
		)
		op.gvk = gvk
		op.result = &bodyModel{}
		op.produces = anyMediaType
		op.parameters = c.optionParameters(subresource, gvk)
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
