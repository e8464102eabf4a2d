package request

import (
	"net/http"
	"net/url"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"binnacle/services/apiserver/internal/registry"
	"binnacle/services/apiserver/internal/served"
)

// Operation is what a request does (specification: "Request attributes" and
// "Resource paths"). It is made once, by Resolve, and the same value is
// authorized, counted, bounded in time and executed: nobody behind looks at the
// path again.
type Operation struct {
	Path   string
	Method string // as it was sent
	// Verb is the API verb (get, list, watch, create, update, patch, delete,
	// deletecollection; proxy for an old path that nobody serves), "" for a
	// method without one, or the lower-cased method of other paths.
	Verb string
	// IsResource is false for paths outside /api/<version>/... and
	// /apis/<group>/<version>/...; then only what is above is set.
	IsResource bool

	// What is acted on, in the words of the path.
	Group       string
	Version     string
	Namespace   string
	Resource    string
	Subresource string
	// Name of the object; of a collection the one that its selector names.
	Name string
	// FieldSelector and LabelSelector are what a list, watch or
	// deletecollection says of itself, as it says it.
	FieldSelector, LabelSelector string
	selectors                    *Selectors // nil where there are none
	// Query is what the query of a collection's path says, read once. Nobody changes it; a watch that
	// has begun keeps none.
	Query url.Values

	// Kinds is the set of kinds that the request sees.
	Kinds *served.Set
	// Target is what is acted on, nil when the path is none of what Kinds serves:
	// then nothing happens, whatever is allowed. Sub is the sub-resource, if any.
	Target *served.Resource
	Sub    *registry.Subresource
	// Collection tells that it is about a collection, not about one object.
	Collection bool
	// Beyond is what follows a sub-resource that takes all paths below it.
	Beyond []string
	// EmptyNamespace reports that the path has a namespace, which is empty. Lists, watches and
	// deletions of such a path cover all namespaces.
	EmptyNamespace bool
	// Hollow tells that a segment of the path is empty that would name something.
	Hollow bool
	// returns tells that who resolved it takes it back, returned that it was given back.
	returns, returned bool
	// Foreign is who answers for the group version or the resource where this server does
	// not; then there is no Target.
	Foreign http.Handler
}

// GroupVersion that the path is below, or names itself; ok is false for paths that are
// about none.
func (o *Operation) GroupVersion() (gv schema.GroupVersion, ok bool) {
	if o.IsResource {
		return schema.GroupVersion{Group: o.Group, Version: o.Version}, true
	}
	parts := strings.Split(strings.Trim(o.Path, "/"), "/")
	if len(parts) == 3 && parts[0] == "apis" && parts[1] != "" && parts[2] != "" {
		return schema.GroupVersion{Group: parts[1], Version: parts[2]}, true
	}
	return gv, false
}

// foreignLong are sub-resources that last as long as the client likes, whoever serves
// them.
var foreignLong = map[string]bool{"attach": true, "exec": true, "proxy": true, "log": true, "portforward": true}

// Returns lets an operation be given back by Return: who calls it looks afterwards whether
// it was, and then resolves it anew.
func (o *Operation) Returns() { o.returns = true }

// Return gives an operation back of which nothing was done or answered, because its target
// is not served any more as it was. It is false where nobody takes it.
func (o *Operation) Return() bool {
	o.returned = o.returns
	return o.returned
}

// Returned tells that the operation was given back.
func (o *Operation) Returned() bool { return o.returned }

// GVR that the path names.
func (o *Operation) GVR() schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: o.Group, Version: o.Version, Resource: o.Resource}
}

// LongRunning tells that the request lasts as long as the client likes.
func (o *Operation) LongRunning() bool {
	switch {
	case o.Foreign != nil:
		return o.IsResource && (o.Verb == "watch" || o.Verb == "proxy" || foreignLong[o.Subresource])
	case o.Target == nil:
		return false
	case o.Sub != nil:
		return o.Sub.Connect
	}
	return o.Verb == "watch" && o.Method == http.MethodGet && o.Target.HasVerb("watch")
}

// Writes tells that the verb changes objects.
func (o *Operation) Writes() bool {
	switch o.Verb {
	case "create", "update", "patch", "delete", "deletecollection":
		return true
	}
	return false
}

// Form is the method and, for what names a resource, the form of its path: names of
// objects would make a name each.
func (o *Operation) Form() string {
	if !o.IsResource {
		return o.Method
	}
	var b strings.Builder
	b.WriteString(o.Method)
	if o.Group == "" {
		b.WriteString(" /api/")
	} else {
		b.WriteString(" /apis/" + o.Group + "/")
	}
	b.WriteString(o.Version)
	if o.Namespace != "" {
		b.WriteString("/namespaces/{:namespace}")
	}
	b.WriteString("/" + o.Resource)
	if o.Name != "" {
		b.WriteString("/{:name}")
	}
	if o.Subresource != "" {
		b.WriteString("/" + o.Subresource)
	}
	return b.String()
}

// On is the same operation on another object of the same kind.
func (o *Operation) On(namespace, name string) *Operation {
	other := *o
	other.Namespace, other.Name, other.Collection = namespace, name, false
	return &other
}

// namespaceSubresources are paths below a namespace that are not resources in it.
var namespaceSubresources = map[string]bool{"status": true, "finalize": true}

// place is where a path points to, below a group version.
type place struct {
	// prefix is "watch" or "proxy" for the old paths that begin so.
	prefix string
	// inNamespace tells that a namespace stands before the resource.
	inNamespace bool
	// parts are the resource, the name, the sub-resource, and what follows it.
	parts []string
	// empty tells that a segment that names something is empty.
	empty bool
}

// Resolve makes the operation of a request against a set of kinds. A path that
// names nothing of the set still has the attributes that it reads like, which
// is what Kubernetes authorizes before it answers 404, but no Target.
func Resolve(r *http.Request, kinds *served.Set) *Operation {
	o := &Operation{Path: r.URL.Path, Method: r.Method, Verb: strings.ToLower(r.Method), Kinds: kinds}
	parts := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	empty := false
	switch {
	case len(parts) >= 3 && parts[0] == "api":
		o.Version, parts = parts[1], parts[2:]
	case len(parts) >= 4 && parts[0] == "apis":
		o.Group, o.Version, parts = parts[1], parts[2], parts[3:]
		empty = o.Group == ""
	default:
		return o
	}
	o.IsResource = true
	o.Verb = verbs[r.Method]
	p := o.locate(parts)
	p.empty = p.empty || empty || o.Version == ""
	o.Hollow = p.empty
	o.refine(r, p)
	o.aim(p)
	return o
}

// verbs of methods on a single object.
var verbs = map[string]string{
	http.MethodPost: "create", http.MethodGet: "get", http.MethodHead: "get",
	http.MethodPut: "update", http.MethodPatch: "patch", http.MethodDelete: "delete",
}

// locate reads what the path names below its group version.
func (o *Operation) locate(parts []string) place {
	p := place{parts: parts}
	if len(parts) > 1 && (parts[0] == "watch" || parts[0] == "proxy") {
		p.prefix, p.parts = parts[0], parts[1:]
	}
	if p.parts[0] == "namespaces" && len(p.parts) > 1 {
		o.Namespace = p.parts[1]
		o.EmptyNamespace = o.Namespace == "" && len(p.parts) > 2 && !namespaceSubresources[p.parts[2]] && p.prefix == ""
		p.empty = o.Namespace == "" && !o.EmptyNamespace
		if len(p.parts) > 2 && !namespaceSubresources[p.parts[2]] {
			p.inNamespace, p.parts = true, p.parts[2:]
		}
	}
	for _, s := range p.parts[:min(len(p.parts), 3)] {
		p.empty = p.empty || s == ""
	}
	o.Resource = p.parts[0]
	if len(p.parts) > 1 {
		o.Name = p.parts[1]
	}
	if len(p.parts) > 2 && p.prefix != "proxy" {
		o.Subresource = p.parts[2]
	}
	o.Collection = o.Name == ""
	return p
}

// refine turns the verbs of single objects into those of collections, and takes
// from the query what a request for many says of itself.
func (o *Operation) refine(r *http.Request, p place) {
	if r.URL.RawQuery != "" && (o.Collection || p.prefix != "") {
		o.Query = r.URL.Query()
	}
	switch {
	case p.prefix != "":
		// What the old paths select is not looked at: they are judged as if for
		// everything.
		o.Verb = p.prefix
		return
	case !o.Collection:
		return
	case o.Verb == "delete":
		o.Verb = "deletecollection"
	case o.Verb != "get":
		return
	}
	q := o.Query
	if o.FieldSelector, o.LabelSelector = q.Get("fieldSelector"), q.Get("labelSelector"); o.FieldSelector != "" || o.LabelSelector != "" {
		o.selectors = &Selectors{label: o.LabelSelector, field: o.FieldSelector}
	}
	if o.Verb == "deletecollection" {
		return
	}
	o.Verb = "list"
	if Truthy(q, "watch") {
		o.Verb = "watch"
	}
	if strings.Contains(o.FieldSelector, "metadata.name") && !o.Crowded() {
		if sel, err := o.selectors.Fields(); err == nil {
			if name, ok := sel.RequiresExactMatch("metadata.name"); ok && !strings.ContainsAny(name, "/%") && name != "." && name != ".." {
				o.Name = name
			}
		}
	}
}

// aim finds what is acted on. It is left out unless the path is exactly one
// that the kind has.
func (o *Operation) aim(p place) {
	kind := o.Kinds.Resource(o.GVR())
	if kind == nil || p.empty || p.prefix == "proxy" {
		return
	}
	named := len(p.parts) > 1
	switch {
	case !kind.Namespaced && p.inNamespace:
		return
	case kind.Namespaced && named && !p.inNamespace:
		return
	}
	if len(p.parts) > 2 {
		sub := kind.Subresource(p.parts[2])
		if sub == nil || p.prefix != "" || len(p.parts) > 3 && !sub.Deep {
			return
		}
		o.Sub, o.Beyond = sub, p.parts[3:]
	}
	o.Target = kind
}

// Truthy reads a boolean query parameter the way the API does: present and
// neither "false" nor "0" is true.
func Truthy(q url.Values, key string) bool {
	v, ok := q[key]
	if !ok || len(v) == 0 {
		return false
	}
	return !strings.EqualFold(v[0], "false") && v[0] != "0"
}
