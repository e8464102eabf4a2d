package openapi

import (
	"net/http"
	"reflect"
	"slices"

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
func mediaTypesOf(o Options) mediaTypes {
	media := mediaTypes{
		object: []string{api.MediaJSON, api.MediaYAML, api.MediaProtobuf},
		list: []string{
			api.MediaJSON,
			api.MediaYAML,
			api.MediaProtobuf,
			api.MediaJSON + ";stream=watch",
			api.MediaProtobuf + ";stream=watch",
		},
		patch:       o.Patches,
		custom:      []string{api.MediaJSON, api.MediaYAML},
		customPatch: o.CustomPatches,
	}
	if o.CBOR {
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
func (d *describer) addKind(root string, k *registry.Kind) {
	inNamespace, scope := "", ""
	var scopeParameters []parameter
	if k.Namespaced {
		inNamespace, scope = "namespaces/{namespace}/", "Namespaced"
		scopeParameters = []parameter{d.params.namespace}
	}
	c := &kindDescriber{describer: d, kind: k, scope: scope}
	pretty := []parameter{d.params.pretty}
	objectParameters := append([]parameter{nameParameter(k.Kind)}, scopeParameters...)

	// 1. The collection, its objects and their subresources.
	collection := root + inNamespace + k.Resource
	d.addOperations(collection, slices.Concat(scopeParameters, pretty), c.collectionOperations()...)
	d.addOperations(collection+"/{name}", slices.Concat(objectParameters, pretty), c.objectOperations()...)
	for i := range k.Subresources {
		d.addSubresource(c, collection, &k.Subresources[i], objectParameters, scopeParameters)
	}

	// 2. The collection in all namespaces.
	if k.Namespaced && k.HasVerb("list") {
		id := operationID("list", d.gv, k.Kind+"ForAllNamespaces")
		d.addOperations(root+k.Resource, pretty, c.listOperation(id))
	}

	// 3. The deprecated paths of watches, which custom resources do not have.
	if d.custom || !k.HasVerb("watch") {
		return
	}
	watched := root + "watch/" + inNamespace + k.Resource
	d.addOperations(watched, slices.Concat(scopeParameters, pretty), c.watchListOperation(c.id("watch", k.Kind+"List")))
	d.addOperations(watched+"/{name}", slices.Concat(objectParameters, pretty), c.watchOperation())
	if k.Namespaced {
		id := operationID("watch", d.gv, k.Kind+"ListForAllNamespaces")
		d.addOperations(root+"watch/"+k.Resource, pretty, c.watchListOperation(id))
	}
}

// addSubresource adds the paths of a subresource. collection is the path of the collection.
// objectParameters are the path parameters of an object: its name and scopeParameters.
func (d *describer) addSubresource(
	c *kindDescriber,
	collection string,
	s *registry.Subresource,
	objectParameters, scopeParameters []parameter,
) {
	url := collection + "/{name}/" + s.Name
	parameters := append([]parameter{nameParameter(subresourceKind(c.kind, s).Kind)}, scopeParameters...)
	if d.custom {
		parameters = slices.Clone(objectParameters)
	}
	if !isConnect(s) { // a connection has only the parameters of its options
		parameters = append(parameters, d.params.pretty)
	}
	d.addOperations(url, parameters, c.subresourceOperations(s, "")...)
	if s.Name == "proxy" {
		withPath := slices.Concat(parameters, []parameter{d.params.path})
		d.addOperations(url+"/{path}", withPath, c.subresourceOperations(s, "WithPath")...)
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
