package requestinfo

import (
	"net/http"
	"net/url"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"binnacle/services/apiserver/internal/api/apiset"
	"binnacle/services/apiserver/internal/registry"
)

// Info is what a request does (specification: "Request attributes" and "Resource paths").
// Resolve makes it once. The same value is authorized, limited, given a deadline and executed;
// later code never parses the path.
type Info struct {
	Path   string
	Method string // as received
	// Verb is the API verb (get, list, watch, create, update, patch, delete, deletecollection;
	// proxy for an old path that is no longer served). It is "" for a method without a verb, and
	// the lower-cased method for other paths.
	Verb string
	// IsResource is false for paths outside /api/<version>/... and /apis/<group>/<version>/....
	// Then only the fields above are set.
	IsResource bool

	// The target of the request, as named in the path.
	Group       string
	Version     string
	Namespace   string
	Resource    string
	Subresource string
	// Name is the name of the object. For a collection it is the name that the field selector
	// requires.
	Name string
	// FieldSelector and LabelSelector are the unparsed selectors of a list, watch or
	// deletecollection.
	FieldSelector, LabelSelector string
	selectors                    *Selectors // nil without selectors
	// Query is the parsed query of a collection's path. It is read-only. A running watch does not
	// keep it.
	Query url.Values

	// Kinds is the set of kinds that the request sees.
	Kinds *apiset.Set
	// Target is the resource that the request acts on. It is nil if Kinds serves no such path; then
	// the request has no effect, even if it is authorized. Sub is the subresource, if any.
	Target *apiset.Resource
	Sub    *registry.Subresource
	// Collection reports whether the request is about a collection rather than one object.
	Collection bool
	// WatchPath reports whether the path has the deprecated prefix watch.
	WatchPath bool
	// Beyond is the rest of the path below a subresource that accepts all paths below it.
	Beyond []string
	// EmptyNamespace reports whether the path has a namespace segment that is empty. Lists, watches
	// and deletions of such a path cover all namespaces.
	EmptyNamespace bool
	// Hollow reports whether a path segment that names something is empty.
	Hollow bool
	// returns reports whether the caller of Resolve accepts the operation back. returned reports
	// whether Return has been called.
	returns, returned bool
	// Delegate is the server that serves the group version or the resource if this server does
	// not. Then Target is nil.
	Delegate http.Handler
}

// GroupVersion returns the group version that the path is below or names itself. ok is false for
// paths without a group version.
func (o *Info) GroupVersion() (gv schema.GroupVersion, ok bool) {
	if o.IsResource {
		return schema.GroupVersion{Group: o.Group, Version: o.Version}, true
	}
	parts := strings.Split(strings.Trim(o.Path, "/"), "/")
	if len(parts) == 3 && parts[0] == "apis" && parts[1] != "" && parts[2] != "" {
		return schema.GroupVersion{Group: parts[1], Version: parts[2]}, true
	}
	return gv, false
}

// foreignLong holds the subresources that are long-running on any server.
var foreignLong = map[string]bool{"attach": true, "exec": true, "proxy": true, "log": true, "portforward": true}

// Returns allows the operation to be given back with Return. The caller checks Returned afterwards
// and resolves the request again.
func (o *Info) Returns() { o.returns = true }

// Return gives back an operation that had no effect and no response because its target is no longer
// served as it was. It returns false if the caller of Resolve has not called Returns.
func (o *Info) Return() bool {
	o.returned = o.returns
	return o.returned
}

// Returned reports whether Return has given the operation back.
func (o *Info) Returned() bool { return o.returned }

// GVR returns the resource that the path names.
func (o *Info) GVR() schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: o.Group, Version: o.Version, Resource: o.Resource}
}

// LongRunning reports whether the request has no deadline and lasts as long as the client wants.
func (o *Info) LongRunning() bool {
	switch {
	case o.Delegate != nil:
		return o.IsResource && (o.Verb == "watch" || o.Verb == "proxy" || foreignLong[o.Subresource])
	case o.Target == nil:
		return false
	case o.Sub != nil:
		return o.Sub.Connect
	}
	return o.Verb == "watch" && o.Method == http.MethodGet && o.Target.HasVerb("watch")
}

// LooksLongRunning reports whether Kubernetes takes the request for long-running by its verb or its
// subresource, even if it serves no such path. It does not classify such requests.
func (o *Info) LooksLongRunning() bool {
	if !o.IsResource {
		return strings.HasPrefix(o.Path, "/debug/pprof/")
	}
	return o.Verb == "proxy" || foreignLong[o.Subresource]
}

// Writes reports whether the verb changes objects.
func (o *Info) Writes() bool {
	switch o.Verb {
	case "create", "update", "patch", "delete", "deletecollection":
		return true
	}
	return false
}

// Form returns the method and, for a resource path, the pattern of the path. The pattern has
// placeholders for the namespace and the name to limit the number of distinct values.
func (o *Info) Form() string {
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

// On returns the same operation on another object of the same kind.
func (o *Info) On(namespace, name string) *Info {
	other := *o
	other.Namespace = namespace
	other.Name = name
	other.Collection = false
	return &other
}

// namespaceSubresources are the path segments after a namespace that are not resources in it.
var namespaceSubresources = map[string]bool{"status": true, "finalize": true}

// place is the target of a path below a group version.
type place struct {
	// prefix is "watch" or "proxy" for the old paths with that prefix.
	prefix string
	// inNamespace reports whether a namespace precedes the resource.
	inNamespace bool
	// parts holds the resource, the name, the subresource, and the rest of the path.
	parts []string
	// empty reports whether a segment that names something is empty.
	empty bool
}

// Resolve returns the operation of a request against a set of kinds. A path that matches nothing in
// the set has no Target, but still has attributes: Kubernetes authorizes them before it returns
// 404.
func Resolve(r *http.Request, kinds *apiset.Set) *Info {
	o := &Info{Path: r.URL.Path, Method: r.Method, Verb: strings.ToLower(r.Method), Kinds: kinds}
	parts := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	empty := false
	switch {
	case len(parts) >= 3 && parts[0] == "api":
		o.Version = parts[1]
		parts = parts[2:]
	case len(parts) >= 4 && parts[0] == "apis":
		o.Group = parts[1]
		o.Version = parts[2]
		parts = parts[3:]
		empty = o.Group == ""
	default:
		return o
	}
	o.IsResource = true
	o.Verb = verbs[r.Method]
	p := o.locate(parts)
	o.WatchPath = p.prefix == "watch"
	p.empty = p.empty || empty || o.Version == ""
	o.Hollow = p.empty
	o.refine(r, p)
	o.setTarget(p)
	return o
}

// verbs maps methods on a single object to verbs.
var verbs = map[string]string{
	http.MethodPost: "create", http.MethodGet: "get", http.MethodHead: "get",
	http.MethodPut: "update", http.MethodPatch: "patch", http.MethodDelete: "delete",
}

// locate parses the path below its group version.
func (o *Info) locate(parts []string) place {
	p := place{parts: parts}
	if len(parts) > 1 && (parts[0] == "watch" || parts[0] == "proxy") {
		p.prefix = parts[0]
		p.parts = parts[1:]
	}
	if p.parts[0] == "namespaces" && len(p.parts) > 1 {
		o.Namespace = p.parts[1]
		o.EmptyNamespace = o.Namespace == "" && len(p.parts) > 2 && !namespaceSubresources[p.parts[2]] && p.prefix == ""
		p.empty = o.Namespace == "" && !o.EmptyNamespace
		if len(p.parts) > 2 && !namespaceSubresources[p.parts[2]] {
			p.inNamespace = true
			p.parts = p.parts[2:]
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

// refine replaces the verbs of single objects by those of collections, and takes the selectors of a
// collection from the query.
func (o *Info) refine(r *http.Request, p place) {
	if r.URL.RawQuery != "" && (o.Collection || p.prefix != "") {
		o.Query = r.URL.Query()
	}
	switch {
	case p.prefix != "":
		// The old paths ignore selectors and are authorized for all objects.
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
	o.FieldSelector, o.LabelSelector = q.Get("fieldSelector"), q.Get("labelSelector")
	if o.FieldSelector != "" || o.LabelSelector != "" {
		o.selectors = &Selectors{label: o.LabelSelector, field: o.FieldSelector}
	}
	if o.Verb == "deletecollection" {
		return
	}
	o.Verb = "list"
	if Truthy(q, "watch") {
		o.Verb = "watch"
	}
	if strings.Contains(o.FieldSelector, "metadata.name") && !o.Crowded() && o.validOptions() {
		if sel, err := o.selectors.Fields(); err == nil {
			if name, ok := sel.RequiresExactMatch("metadata.name"); ok && !strings.ContainsAny(name, "/%") && name != "." && name != ".." {
				o.Name = name
			}
		}
	}
}

// validOptions reports whether the parameters of a collection can be parsed.
func (o *Info) validOptions() bool {
	var options metav1.ListOptions
	if metav1.Convert_url_Values_To_v1_ListOptions(&o.Query, &options, nil) != nil {
		return false
	}
	_, err := o.selectors.Labels()
	return err == nil
}

// setTarget finds the target of the path. There is no target unless the path is exactly one that the kind
// serves.
func (o *Info) setTarget(p place) {
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
		o.Sub = sub
		o.Beyond = p.parts[3:]
	}
	o.Target = kind
}

// Truthy parses a boolean query parameter as the API does: a present value other than "false" and
// "0" is true.
func Truthy(q url.Values, key string) bool {
	v, ok := q[key]
	if !ok || len(v) == 0 {
		return false
	}
	return !strings.EqualFold(v[0], "false") && v[0] != "0"
}
