package openapi

import (
	"net/http"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"binnacle/services/apiserver/internal/registry"
)

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
		method:      method,
		action:      action,
		id:          id,
		description: description,
		tag:         tag(c.gv.Group, c.gv.Version),
		gvk:         c.gv.WithKind(c.kind.Kind),
		consumes:    anyMediaType,
		produces:    c.media.object,
		codes:       []int{http.StatusOK},
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
		". deprecated: use the 'watch' parameter with a list operation instead, " +
		"filtered to a single item with the 'fieldSelector' parameter."
	return op
}

// collectionOperations returns the operations of a collection.
func (c *kindDescriber) collectionOperations() (ops []operation) {
	kind := c.kind
	if kind.HasVerb("list") {
		ops = append(ops, c.listOperation(c.id("list", kind.Kind)))
	}
	if kind.HasVerb("create") {
		op := c.newOperation(http.MethodPost, "post", c.id("create", kind.Kind), "create "+withArticle(kind.Kind))
		op.parameters = c.params.create
		op.body = c.objectBody()
		op.result = c.objectBody()
		op.codes = []int{http.StatusOK, http.StatusCreated, http.StatusAccepted}
		ops = append(ops, op)
	}
	if kind.HasVerb("deletecollection") {
		op := c.newOperation(
			http.MethodDelete,
			"deletecollection",
			operationID("delete", c.gv, "Collection"+c.scope+kind.Kind),
			"delete collection of "+kind.Kind,
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
	kind := c.kind
	if kind.HasVerb("get") {
		op := c.newOperation(http.MethodGet, "get", c.id("read", kind.Kind), "read the specified "+kind.Kind)
		op.parameters = c.getParameters()
		op.result = c.objectBody()
		ops = append(ops, op)
	}
	if kind.HasVerb("update") {
		ops = append(ops, c.replaceOperation(c.id("replace", kind.Kind), kind.Kind, c.objectBody()))
	}
	if kind.HasVerb("delete") {
		op := c.newOperation(http.MethodDelete, "delete", c.id("delete", kind.Kind), "delete "+withArticle(kind.Kind))
		op.parameters = c.params.delete
		op.body = bodyOf(&metav1.DeleteOptions{})
		op.bodyOptional = true
		op.result = bodyOf(&metav1.Status{})
		op.codes = []int{http.StatusOK, http.StatusAccepted}
		if kind.Delete.ReturnObject && !kind.Delete.TwoPhase { // Kubernetes documents a Status for namespaces
			op.result = c.objectBody()
		}
		ops = append(ops, op)
	}
	if kind.HasVerb("patch") {
		ops = append(ops, c.patchOperation(c.id("patch", kind.Kind), kind.Kind, c.objectBody()))
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
func (c *kindDescriber) subresourceOperations(subresource *registry.Subresource, suffix string) (ops []operation) {
	gvk := subresourceKind(c.kind, subresource)
	model := c.subresourceBody(subresource, gvk)
	name := c.kind.Kind + title(subresource.Name)
	subject := subresource.Name + " of the specified " + c.kind.Kind
	if isConnect(subresource) {
		return c.connectOperations(subresource, gvk, name+suffix)
	}
	for _, verb := range []string{"get", "create", "update", "patch"} {
		if !subresource.HasVerb(verb) {
			continue
		}
		var op operation
		switch verb {
		case "get":
			op = c.newOperation(http.MethodGet, "get", c.id("read", name), "read "+subject)
			op.parameters = c.getParameters()
			op.result = model
			if subresource.Name == "log" { // the log is text
				op.result = &bodyModel{}
				op.parameters = c.optionParameters(subresource, gvk)
				op.produces = append([]string{"text/plain"}, c.media.object...)
			}
		case "create":
			op = c.newOperation(http.MethodPost, "post", c.id("create", name), "create "+subresource.Name+" of "+withArticle(c.kind.Kind))
			op.parameters = c.params.create
			op.body = model
			op.result = model
			op.codes = []int{http.StatusOK, http.StatusCreated, http.StatusAccepted}
		case "update":
			op = c.replaceOperation(c.id("replace", name), subject, model)
			op.description = "replace " + subject
		case "patch":
			op = c.patchOperation(c.id("patch", name), subject, model)
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
func subresourceKind(k *registry.Kind, subresource *registry.Subresource) schema.GroupVersionKind {
	if subresource.GVK.GroupVersion().Empty() {
		return k.GroupVersion().WithKind(subresource.GVK.Kind)
	}
	return subresource.GVK
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
