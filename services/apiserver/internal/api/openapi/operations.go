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

// path is a path with its operations, from which both versions are built.
type path struct {
	path       string
	parameters []parameter
	operations []operation
}

// operation is a method of a path. Models are Go types, or names of models that come from
// elsewhere.
type operation struct {
	method, id, action, description, tag string
	gvk                                  schema.GroupVersionKind
	parameters                           []parameter
	body                                 *model
	bodyOptional                         bool
	result                               *model
	codes                                []int
	consumes, produces                   []string
}

// model is a request or response body: a Go type, a custom resource by name, or any text if both
// are empty.
type model struct {
	typ  reflect.Type
	name string
}

func modelOf(v any) *model { return &model{typ: reflect.TypeOf(v).Elem()} }

// anyMediaType is the media type of operations that check the media type later.
var anyMediaType = []string{"*/*"}

// forms holds the media types of requests and responses.
type forms struct {
	object, list, patch []string
	// custom resources have no protobuf, and no patch that needs a Go type.
	custom, customPatch []string
}

// formsOf returns the media types of a server.
func formsOf(o Options) forms {
	f := forms{
		object: []string{api.MediaJSON, api.MediaYAML, api.MediaProtobuf},
		list:   []string{api.MediaJSON, api.MediaYAML, api.MediaProtobuf, api.MediaJSON + ";stream=watch", api.MediaProtobuf + ";stream=watch"},
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
	forms  *forms
	// newObject returns a value of a known type.
	newObject func(schema.GroupVersionKind) (runtime.Object, error)
	// custom kinds have no Go type. Their models have names.
	custom bool
	paths  []path
}

// group returns all paths of a group version.
func (d *describer) group(kinds []*registry.Kind) []path {
	root := "/" + apiPath(d.gv) + "/"
	if !d.custom { // Kubernetes describes discovery only for built-in group versions
		d.add(path{path: root, operations: []operation{{
			method: http.MethodGet, id: operationID("get", d.gv, "APIResources"), description: "get available resources",
			tag: tag(d.gv.Group, d.gv.Version), result: modelOf(&metav1.APIResourceList{}), codes: []int{http.StatusOK},
			consumes: d.forms.object, produces: d.forms.object,
		}}})
	}
	for _, k := range kinds {
		d.kind(root, k)
	}
	return d.paths
}

// kind adds the paths of a kind.
func (d *describer) kind(root string, k *registry.Kind) {
	within, scope := "", ""
	var scoped []parameter
	if k.Namespaced {
		within, scope = "namespaces/{namespace}/", "Namespaced"
		scoped = []parameter{d.params.namespace}
	}
	base := root + within + k.Resource
	c := &kindDescriber{describer: d, kind: k, scope: scope}
	collection := append(slices.Clone(scoped), d.params.pretty)
	d.add(path{path: base, parameters: collection, operations: c.collection()})
	object := append([]parameter{named(k.Kind)}, scoped...)
	d.add(path{path: base + "/{name}", parameters: append(slices.Clone(object), d.params.pretty), operations: c.object()})
	for i := range k.Subresources {
		d.subresource(c, base, &k.Subresources[i], object, scoped)
	}
	everywhere := operationID("list", d.gv, k.Kind+"ForAllNamespaces")
	if k.Namespaced && k.HasVerb("list") {
		d.add(path{path: root + k.Resource, parameters: []parameter{d.params.pretty}, operations: []operation{c.list(everywhere)}})
	}
	if d.custom || !k.HasVerb("watch") {
		return
	}
	watched := root + "watch/" + within + k.Resource
	d.add(path{path: watched, parameters: collection, operations: []operation{c.watchList(c.id("watch", k.Kind+"List"))}})
	d.add(path{path: watched + "/{name}", parameters: append(slices.Clone(object), d.params.pretty), operations: []operation{c.watch()}})
	if k.Namespaced {
		everywhere = operationID("watch", d.gv, k.Kind+"ListForAllNamespaces")
		d.add(path{path: root + "watch/" + k.Resource, parameters: []parameter{d.params.pretty}, operations: []operation{c.watchList(everywhere)}})
	}
}

// subresource adds the paths of a subresource. A connection has only the parameters of its options.
func (d *describer) subresource(c *kindDescriber, base string, s *registry.Subresource, object, scoped []parameter) {
	at := base + "/{name}/" + s.Name
	ps := append([]parameter{named(subresourceKind(c.kind, s).Kind)}, scoped...)
	if d.custom {
		ps = slices.Clone(object)
	}
	if !isConnect(s) {
		ps = append(ps, d.params.pretty)
	}
	d.add(path{path: at, parameters: ps, operations: c.subresource(s, "")})
	if s.Name == "proxy" {
		d.add(path{path: at + "/{path}", parameters: append(slices.Clone(ps), d.params.path), operations: c.subresource(s, "WithPath")})
	}
}

// add adds a path. Parameters that all its operations share are moved to the path.
func (d *describer) add(p path) {
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
	scope string
}

// id returns the id of an operation, as in readCoreV1NamespacedPodStatus.
func (c *kindDescriber) id(verb, subject string) string {
	return operationID(verb, c.gv, c.scope+subject)
}

// ownModel returns the model of the kind itself.
func (c *kindDescriber) ownModel() *model { return c.modelOf(c.kind.Kind, c.kind.New) }

// modelOf returns the model of a kind, by name for a custom one. Identical versions may share a Go
// type, but not a model.
func (c *kindDescriber) modelOf(kind string, fresh func() runtime.Object) *model {
	if c.custom {
		return &model{name: customName(c.gv.WithKind(kind))}
	}
	if obj, err := c.newObject(c.gv.WithKind(kind)); err == nil {
		return modelOf(obj)
	}
	return modelOf(fresh())
}

// base returns the parts that all operations of a kind have.
func (c *kindDescriber) base(method, action, id, description string) operation {
	op := operation{
		method: method, action: action, id: id, description: description, tag: tag(c.gv.Group, c.gv.Version),
		gvk: c.gv.WithKind(c.kind.Kind), consumes: anyMediaType, produces: c.forms.object, codes: []int{http.StatusOK},
	}
	if c.custom {
		op.consumes = c.forms.custom
		op.produces = c.forms.custom
	}
	return op
}

func (c *kindDescriber) list(id string) operation {
	does := "list or watch"
	if c.custom || !c.kind.HasVerb("watch") {
		does = "list"
	}
	op := c.base(http.MethodGet, "list", id, does+" objects of kind "+c.kind.Kind)
	op.parameters = c.params.list
	op.result = c.modelOf(c.kind.Kind+"List", c.kind.NewList)
	if !c.custom {
		op.produces = c.forms.list
	}
	return op
}

// watchList returns the deprecated operation that watches a collection.
func (c *kindDescriber) watchList(id string) operation {
	op := c.base(http.MethodGet, "watchlist", id, "watch individual changes to a list of "+c.kind.Kind+
		". deprecated: use the 'watch' parameter with a list operation instead.")
	op.parameters, op.produces, op.result = c.params.list, c.forms.list, modelOf(&metav1.WatchEvent{})
	return op
}

// watch returns the deprecated operation that watches an object.
func (c *kindDescriber) watch() operation {
	op := c.watchList(c.id("watch", c.kind.Kind))
	op.action = "watch"
	op.description = "watch changes to an object of kind " + c.kind.Kind +
		". deprecated: use the 'watch' parameter with a list operation instead, filtered to a single item with the 'fieldSelector' parameter."
	return op
}

// collection returns the operations of a collection.
func (c *kindDescriber) collection() (ops []operation) {
	k := c.kind
	if k.HasVerb("list") {
		ops = append(ops, c.list(c.id("list", k.Kind)))
	}
	if k.HasVerb("create") {
		op := c.base(http.MethodPost, "post", c.id("create", k.Kind), "create "+noun(k.Kind))
		op.parameters, op.body, op.result = c.params.create, c.ownModel(), c.ownModel()
		op.codes = []int{http.StatusOK, http.StatusCreated, http.StatusAccepted}
		ops = append(ops, op)
	}
	if k.HasVerb("deletecollection") {
		op := c.base(http.MethodDelete, "deletecollection", operationID("delete", c.gv, "Collection"+c.scope+k.Kind), "delete collection of "+k.Kind)
		op.result = modelOf(&metav1.Status{})
		op.parameters = c.params.list
		if !c.custom {
			op.parameters, op.body, op.bodyOptional = c.params.removeSeveral, modelOf(&metav1.DeleteOptions{}), true
		}
		ops = append(ops, op)
	}
	return ops
}

// object returns the operations of one object.
func (c *kindDescriber) object() (ops []operation) {
	k := c.kind
	if k.HasVerb("get") {
		op := c.base(http.MethodGet, "get", c.id("read", k.Kind), "read the specified "+k.Kind)
		op.parameters, op.result = c.reading(), c.ownModel()
		ops = append(ops, op)
	}
	if k.HasVerb("update") {
		ops = append(ops, c.replace(c.id("replace", k.Kind), k.Kind, c.ownModel()))
	}
	if k.HasVerb("delete") {
		op := c.base(http.MethodDelete, "delete", c.id("delete", k.Kind), "delete "+noun(k.Kind))
		op.parameters, op.body, op.bodyOptional = c.params.remove, modelOf(&metav1.DeleteOptions{}), true
		op.result, op.codes = modelOf(&metav1.Status{}), []int{http.StatusOK, http.StatusAccepted}
		if k.Delete.ReturnObject && !k.Delete.TwoPhase { // Kubernetes documents a Status for namespaces
			op.result = c.ownModel()
		}
		ops = append(ops, op)
	}
	if k.HasVerb("patch") {
		ops = append(ops, c.patch(c.id("patch", k.Kind), k.Kind, c.ownModel()))
	}
	return ops
}

// reading returns the parameters of reading one object. Built-in kinds document none.
func (c *kindDescriber) reading() []parameter {
	if c.custom {
		return c.params.get
	}
	return nil
}

func (c *kindDescriber) replace(id, subject string, m *model) operation {
	op := c.base(http.MethodPut, "put", id, "replace the specified "+subject)
	op.parameters = c.params.update
	op.body = m
	op.result = m
	op.codes = []int{http.StatusOK, http.StatusCreated}
	return op
}

func (c *kindDescriber) patch(id, subject string, m *model) operation {
	op := c.base(http.MethodPatch, "patch", id, "partially update the specified "+subject)
	op.parameters, op.body, op.result = c.params.patch, modelOf(&metav1.Patch{}), m
	op.codes = []int{http.StatusOK, http.StatusCreated}
	op.consumes = c.forms.patch
	if c.custom {
		op.codes = []int{http.StatusOK}
		op.consumes = c.forms.customPatch
	}
	return op
}

// subresource returns the operations of a subresource.
func (c *kindDescriber) subresource(s *registry.Subresource, suffix string) (ops []operation) {
	gvk := subresourceKind(c.kind, s)
	m := c.subresourceModel(s, gvk)
	name := c.kind.Kind + title(s.Name)
	subject := s.Name + " of the specified " + c.kind.Kind
	if isConnect(s) {
		return c.connect(s, gvk, name+suffix)
	}
	for _, verb := range []string{"get", "create", "update", "patch"} {
		if !s.HasVerb(verb) {
			continue
		}
		var op operation
		switch verb {
		case "get":
			op = c.base(http.MethodGet, "get", c.id("read", name), "read "+subject)
			op.parameters, op.result = c.reading(), m
			if s.Name == "log" {
				op.result, op.parameters = &model{}, c.optionsOf(s, gvk)
				op.produces = append([]string{"text/plain"}, c.forms.object...)
			}
		case "create":
			op = c.base(http.MethodPost, "post", c.id("create", name), "create "+s.Name+" of "+noun(c.kind.Kind))
			op.parameters = c.params.create
			op.body = m
			op.result = m
			op.codes = []int{http.StatusOK, http.StatusCreated, http.StatusAccepted}
		case "update":
			op = c.replace(c.id("replace", name), subject, m)
			op.description = "replace " + subject
		case "patch":
			op = c.patch(c.id("patch", name), subject, m)
			op.description = "partially update " + subject
		}
		if !c.custom {
			op.gvk = gvk
		}
		ops = append(ops, op)
	}
	return ops
}

// subresourceKind returns the full type of a subresource.
func subresourceKind(k *registry.Kind, s *registry.Subresource) schema.GroupVersionKind {
	if s.GVK.GroupVersion().Empty() {
		return k.GroupVersion().WithKind(s.GVK.Kind)
	}
	return s.GVK
}

// subresourceModel returns the model of a subresource.
func (c *kindDescriber) subresourceModel(s *registry.Subresource, gvk schema.GroupVersionKind) *model {
	switch {
	case s.New != nil:
		return modelOf(s.New())
	case gvk == c.kind.GVK():
		return c.ownModel()
	}
	if obj, err := c.newObject(gvk); err == nil {
		return modelOf(obj)
	}
	return &model{}
}

// noun prefixes a kind with "a" or "an", except a plural.
func noun(kind string) string {
	switch {
	case strings.HasSuffix(kind, "s") && !strings.HasSuffix(kind, "ss"):
		return kind
	case kind != "" && strings.Contains("AEIOU", kind[:1]):
		return "an " + kind
	}
	return "a " + kind
}
