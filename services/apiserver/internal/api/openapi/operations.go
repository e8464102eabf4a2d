package openapi

import (
	"net/http"
	"reflect"
	"slices"
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
	method      string // of HTTP
	id          string
	action      string // value of extAction; empty outside of resources
	description string
	tag         string
	gvk         schema.GroupVersionKind // value of extGVK
	parameters  []parameter
	// body and result are the request and the response body. body is nil if there is none.
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

// anyMediaType is the media type in Kubernetes' description of request bodies.
var anyMediaType = []string{"*/*"}

// mediaTypes holds the media types of requests and responses.
type mediaTypes struct {
	object, list, patch []string
	// custom and customPatch are for custom resources. They have no protobuf, and no patch that
	// needs a Go type.
	custom, customPatch []string
}

// mediaTypesOf returns the media types of a server with the given options.
func mediaTypesOf(o Options) mediaTypes {
	f := mediaTypes{
		object: []string{api.MediaJSON, api.MediaYAML, api.MediaProtobuf},
		list: []string{
			api.MediaJSON,
			api.MediaYAML,
			api.MediaProtobuf,
			api.MediaJSON + ";stream=watch",
			api.MediaProtobuf + ";stream=watch",
		},
		patch:  o.Patches,
		custom: []string{api.MediaJSON, api.MediaYAML}, customPatch: o.CustomPatches,
	}
	if o.CBOR {
		f.object = append(f.object, api.MediaCBOR)
		f.list = append(f.list, api.MediaCBOR, api.MediaCBORSequence)
	}
	return f
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
			method: http.MethodGet, id: operationID("get", d.gv, "APIResources"), description: "get available resources",
			tag: tag(d.gv.Group, d.gv.Version), result: bodyOf(&metav1.APIResourceList{}), codes: []int{http.StatusOK},
			consumes: d.media.object, produces: d.media.object,
		}}})
	}
	for _, k := range kinds {
		d.addKind(root, k)
	}
	return d.paths
}

// addKind adds the paths of a kind. root is the path of the group version with a trailing
// slash.
func (d *describer) addKind(root string, k *registry.Kind) {
	inNamespace, scope := "", ""
	var scopeParameters []parameter
	if k.Namespaced {
		inNamespace, scope = "namespaces/{namespace}/", "Namespaced"
		scopeParameters = []parameter{d.params.namespace}
	}
	base := root + inNamespace + k.Resource
	c := &kindDescriber{describer: d, kind: k, scope: scope}
	collection := append(slices.Clone(scopeParameters), d.params.pretty)
	d.addPath(path{path: base, parameters: collection, operations: c.collectionOperations()})
	object := append([]parameter{nameParameter(k.Kind)}, scopeParameters...)
	d.addPath(
		path{path: base + "/{name}", parameters: append(slices.Clone(object), d.params.pretty), operations: c.objectOperations()},
	)
	for i := range k.Subresources {
		d.addSubresource(c, base, &k.Subresources[i], object, scopeParameters)
	}
	allNamespacesID := operationID("list", d.gv, k.Kind+"ForAllNamespaces")
	if k.Namespaced && k.HasVerb("list") {
		d.addPath(
			path{
				path:       root + k.Resource,
				parameters: []parameter{d.params.pretty},
				operations: []operation{c.listOperation(allNamespacesID)},
			},
		)
	}
	if d.custom || !k.HasVerb("watch") {
		return
	}
	watched := root + "watch/" + inNamespace + k.Resource
	d.addPath(
		path{path: watched, parameters: collection, operations: []operation{c.watchListOperation(c.id("watch", k.Kind+"List"))}},
	)
	d.addPath(
		path{
			path:       watched + "/{name}",
			parameters: append(slices.Clone(object), d.params.pretty),
			operations: []operation{c.watchOperation()},
		},
	)
	if k.Namespaced {
		allNamespacesID = operationID("watch", d.gv, k.Kind+"ListForAllNamespaces")
		d.addPath(
			path{
				path:       root + "watch/" + k.Resource,
				parameters: []parameter{d.params.pretty},
				operations: []operation{c.watchListOperation(allNamespacesID)},
			},
		)
	}
}

// addSubresource adds the paths of a subresource. base is the path of the collection,
// object the path parameters of the object, and scopeParameters those of them that are for
// the namespace.
func (d *describer) addSubresource(c *kindDescriber, base string, s *registry.Subresource, object, scopeParameters []parameter) {
	subresourcePath := base + "/{name}/" + s.Name
	ps := append([]parameter{nameParameter(subresourceKind(c.kind, s).Kind)}, scopeParameters...)
	if d.custom {
		ps = slices.Clone(object)
	}
	if !isConnect(s) { // a connection has only the parameters of its options
		ps = append(ps, d.params.pretty)
	}
	d.addPath(path{path: subresourcePath, parameters: ps, operations: c.subresourceOperations(s, "")})
	if s.Name == "proxy" {
		d.addPath(
			path{
				path:       subresourcePath + "/{path}",
				parameters: append(slices.Clone(ps), d.params.path),
				operations: c.subresourceOperations(s, "WithPath"),
			},
		)
	}
}

// addPath adds a path if it has operations. It moves the parameters that all operations
// have to the path.
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

// kindDescriber builds the operations of one kind.
type kindDescriber struct {
	*describer
	kind  *registry.Kind
	scope string // "Namespaced" in operation ids, or ""
}

// id returns the id of an operation, such as readCoreV1NamespacedPodStatus for the verb read and
// the subject PodStatus.
func (c *kindDescriber) id(verb, subject string) string {
	return operationID(verb, c.gv, c.scope+subject)
}

// objectBody returns the model of the kind itself.
func (c *kindDescriber) objectBody() *bodyModel { return c.kindBody(c.kind.Kind, c.kind.New) }

// kindBody returns the model of the kind or of its list. newInternal returns an object of the Go
// type that the server uses. That type applies only if the scheme does not know the kind, because
// identical versions share a Go type in the server but have different models.
func (c *kindDescriber) kindBody(kind string, newInternal func() runtime.Object) *bodyModel {
	if c.custom {
		return &bodyModel{name: customName(c.gv.WithKind(kind))}
	}
	if obj, err := c.newObject(c.gv.WithKind(kind)); err == nil {
		return bodyOf(obj)
	}
	return bodyOf(newInternal())
}

// newOperation returns an operation with the parts that all operations of a kind have.
func (c *kindDescriber) newOperation(method, action, id, description string) operation {
	op := operation{
		method: method, action: action, id: id, description: description, tag: tag(c.gv.Group, c.gv.Version),
		gvk: c.gv.WithKind(c.kind.Kind), consumes: anyMediaType, produces: c.media.object, codes: []int{http.StatusOK},
	}
	if c.custom {
		op.consumes = c.media.custom
		op.produces = c.media.custom
	}
	return op
}

// listOperation returns the operation that lists, and watches, a collection.
func (c *kindDescriber) listOperation(id string) operation {
	verbs := "list or watch"
	if c.custom || !c.kind.HasVerb("watch") {
		verbs = "list"
	}
	op := c.newOperation(http.MethodGet, "list", id, verbs+" objects of kind "+c.kind.Kind)
	op.parameters = c.params.list
	op.result = c.kindBody(c.kind.Kind+"List", c.kind.NewList)
	if !c.custom {
		op.produces = c.media.list
	}
	return op
}

// watchListOperation returns the deprecated operation that watches a collection.
func (c *kindDescriber) watchListOperation(id string) operation {
	op := c.newOperation(http.MethodGet, "watchlist", id, "watch individual changes to a list of "+c.kind.Kind+
		". deprecated: use the 'watch' parameter with a list operation instead.")
	op.parameters = c.params.list
	op.produces = c.media.list
	op.result = bodyOf(&metav1.WatchEvent{})
	return op
}

// watchOperation returns the deprecated operation that watches an object.
func (c *kindDescriber) watchOperation() operation {
	op := c.watchListOperation(c.id("watch", c.kind.Kind))
	op.action = "watch"
	op.description = "watch changes to an object of kind " + c.kind.Kind +
		". deprecated: use the 'watch' parameter with a list operation instead, filtered to a single item with the 'fieldSelector' parameter."
	return op
}

// collectionOperations returns the operations of a collection.
func (c *kindDescriber) collectionOperations() (ops []operation) {
	k := c.kind
	if k.HasVerb("list") {
		ops = append(ops, c.listOperation(c.id("list", k.Kind)))
	}
	if k.HasVerb("create") {
		op := c.newOperation(http.MethodPost, "post", c.id("create", k.Kind), "create "+withArticle(k.Kind))
		op.parameters = c.params.create
		op.body = c.objectBody()
		op.result = c.objectBody()
		op.codes = []int{http.StatusOK, http.StatusCreated, http.StatusAccepted}
		ops = append(ops, op)
	}
	if k.HasVerb("deletecollection") {
		op := c.newOperation(
			http.MethodDelete,
			"deletecollection",
			operationID("delete", c.gv, "Collection"+c.scope+k.Kind),
			"delete collection of "+k.Kind,
		)
		op.result = bodyOf(&metav1.Status{})
		op.parameters = c.params.list
		if !c.custom {
			op.parameters = c.params.deleteCollection
			op.body = bodyOf(&metav1.DeleteOptions{})
			op.bodyOptional = true
		}
		ops = append(ops, op)
	}
	return ops
}

// objectOperations returns the operations of one object.
func (c *kindDescriber) objectOperations() (ops []operation) {
	k := c.kind
	if k.HasVerb("get") {
		op := c.newOperation(http.MethodGet, "get", c.id("read", k.Kind), "read the specified "+k.Kind)
		op.parameters = c.getParameters()
		op.result = c.objectBody()
		ops = append(ops, op)
	}
	if k.HasVerb("update") {
		ops = append(ops, c.replaceOperation(c.id("replace", k.Kind), k.Kind, c.objectBody()))
	}
	if k.HasVerb("delete") {
		op := c.newOperation(http.MethodDelete, "delete", c.id("delete", k.Kind), "delete "+withArticle(k.Kind))
		op.parameters = c.params.delete
		op.body = bodyOf(&metav1.DeleteOptions{})
		op.bodyOptional = true
		op.result = bodyOf(&metav1.Status{})
		op.codes = []int{http.StatusOK, http.StatusAccepted}
		if k.Delete.ReturnObject && !k.Delete.TwoPhase { // Kubernetes documents a Status for namespaces
			op.result = c.objectBody()
		}
		ops = append(ops, op)
	}
	if k.HasVerb("patch") {
		ops = append(ops, c.patchOperation(c.id("patch", k.Kind), k.Kind, c.objectBody()))
	}
	return ops
}

// getParameters returns the parameters of reading one object. As in Kubernetes, built-in kinds have
// none.
func (c *kindDescriber) getParameters() []parameter {
	if c.custom {
		return c.params.get
	}
	return nil
}

// replaceOperation returns the operation that replaces an object or subresource with the model m.
func (c *kindDescriber) replaceOperation(id, subject string, m *bodyModel) operation {
	op := c.newOperation(http.MethodPut, "put", id, "replace the specified "+subject)
	op.parameters = c.params.update
	op.body = m
	op.result = m
	op.codes = []int{http.StatusOK, http.StatusCreated}
	return op
}

// patchOperation returns the operation that patches an object or subresource with the model m.
func (c *kindDescriber) patchOperation(id, subject string, m *bodyModel) operation {
	op := c.newOperation(http.MethodPatch, "patch", id, "partially update the specified "+subject)
	op.parameters = c.params.patch
	op.body = bodyOf(&metav1.Patch{})
	op.result = m
	op.codes = []int{http.StatusOK, http.StatusCreated}
	op.consumes = c.media.patch
	if c.custom {
		op.codes = []int{http.StatusOK}
		op.consumes = c.media.customPatch
	}
	return op
}

// subresourceOperations returns the operations of a subresource. suffix distinguishes the operation
// ids of the path with a further {path}.
func (c *kindDescriber) subresourceOperations(s *registry.Subresource, suffix string) (ops []operation) {
	gvk := subresourceKind(c.kind, s)
	m := c.subresourceBody(s, gvk)
	name := c.kind.Kind + title(s.Name)
	subject := s.Name + " of the specified " + c.kind.Kind
	if isConnect(s) {
		return c.connectOperations(s, gvk, name+suffix)
	}
	for _, verb := range []string{"get", "create", "update", "patch"} {
		if !s.HasVerb(verb) {
			continue
		}
		var op operation
		switch verb {
		case "get":
			op = c.newOperation(http.MethodGet, "get", c.id("read", name), "read "+subject)
			op.parameters = c.getParameters()
			op.result = m
			if s.Name == "log" {
				op.result = &bodyModel{}
				op.parameters = c.optionParameters(s, gvk)
				op.produces = append([]string{"text/plain"}, c.media.object...)
			}
		case "create":
			op = c.newOperation(http.MethodPost, "post", c.id("create", name), "create "+s.Name+" of "+withArticle(c.kind.Kind))
			op.parameters = c.params.create
			op.body = m
			op.result = m
			op.codes = []int{http.StatusOK, http.StatusCreated, http.StatusAccepted}
		case "update":
			op = c.replaceOperation(c.id("replace", name), subject, m)
			op.description = "replace " + subject
		case "patch":
			op = c.patchOperation(c.id("patch", name), subject, m)
			op.description = "partially update " + subject
		}
		if !c.custom {
			op.gvk = gvk
		}
		ops = append(ops, op)
	}
	return ops
}

// subresourceKind returns the kind of a subresource. Without a group version, it has the group
// version of the resource.
func subresourceKind(k *registry.Kind, s *registry.Subresource) schema.GroupVersionKind {
	if s.GVK.GroupVersion().Empty() {
		return k.GroupVersion().WithKind(s.GVK.Kind)
	}
	return s.GVK
}

// subresourceBody returns the model of a subresource with the kind gvk.
func (c *kindDescriber) subresourceBody(s *registry.Subresource, gvk schema.GroupVersionKind) *bodyModel {
	switch {
	case s.New != nil:
		return bodyOf(s.New())
	case gvk == c.kind.GVK():
		return c.objectBody()
	}
	if obj, err := c.newObject(gvk); err == nil {
		return bodyOf(obj)
	}
	return &bodyModel{}
}

// withArticle returns a kind with "a" or "an" before it, unless its name is a plural.
func withArticle(kind string) string {
	switch {
	case strings.HasSuffix(kind, "s") && !strings.HasSuffix(kind, "ss"):
		return kind
	case kind != "" && strings.Contains("AEIOU", kind[:1]):
		return "an " + kind
	}
	return "a " + kind
}
