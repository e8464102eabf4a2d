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

// Info describes what a request does (specification: "Request attributes" and "Resource paths").
// Resolve returns it. The same value is authorized, limited, given a deadline and executed;
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
	// Subpath holds the path segments below a subresource that accepts all paths below it.
	Subpath []string
	// EmptyNamespace reports whether the path has a namespace segment that is empty. Lists, watches
	// and deletions of such a path cover all namespaces.
	EmptyNamespace bool
	// HasEmptySegment reports whether a path segment is empty that holds the name of a group, version,
	// namespace, resource, object or subresource.
	HasEmptySegment bool
	// retryAllowed reports whether the caller of Resolve accepts the operation back. retryRequested
	// reports whether Retry has been called.
	retryAllowed, retryRequested bool
	// Delegate is the server that serves the group version or the resource if this server does
	// not. Then Target is nil.
	Delegate http.Handler
}

// GroupVersion returns the group version that the path is below or names itself. ok is false for
// paths without a group version.
func (i *Info) GroupVersion() (gv schema.GroupVersion, ok bool) {
	if i.IsResource {
		return schema.GroupVersion{Group: i.Group, Version: i.Version}, true
	}
	parts := strings.Split(strings.Trim(i.Path, "/"), "/")
	if len(parts) == 3 && parts[0] == "apis" && parts[1] != "" && parts[2] != "" {
		return schema.GroupVersion{Group: parts[1], Version: parts[2]}, true
	}
	return gv, false
}

// longRunningSubresources holds the subresources that are long-running on any server.
var longRunningSubresources = map[string]bool{"attach": true, "exec": true, "proxy": true, "log": true, "portforward": true}

// AllowRetry allows the operation to be given back with Retry. The caller checks RetryRequested
// afterwards and resolves the request again.
func (i *Info) AllowRetry() { i.retryAllowed = true }

// Retry gives back an operation that had no effect and no response because its target is no longer
// served as it was. It returns false if the caller of Resolve has not called AllowRetry.
func (i *Info) Retry() bool {
	i.retryRequested = i.retryAllowed
	return i.retryRequested
}

// RetryRequested reports whether Retry has given the operation back.
func (i *Info) RetryRequested() bool { return i.retryRequested }

// GVR returns the resource that the path names.
func (i *Info) GVR() schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: i.Group, Version: i.Version, Resource: i.Resource}
}

// LongRunning reports whether the request has no deadline and lasts as long as the client wants.
func (i *Info) LongRunning() bool {
	switch {
	case i.Delegate != nil:
		return i.IsResource && (i.Verb == "watch" || i.Verb == "proxy" || longRunningSubresources[i.Subresource])
	case i.Target == nil:
		return false
	case i.Sub != nil:
		return i.Sub.Connect
	}
	return i.Verb == "watch" && i.Method == http.MethodGet && i.Target.HasVerb("watch")
}

// LooksLongRunning reports whether Kubernetes takes the request for long-running by its verb or its
// subresource, even if it serves no such path. It does not classify such requests.
func (i *Info) LooksLongRunning() bool {
	if !i.IsResource {
		return strings.HasPrefix(i.Path, "/debug/pprof/")
	}
	return i.Verb == "proxy" || longRunningSubresources[i.Subresource]
}

// IsWrite reports whether the verb changes objects.
func (i *Info) IsWrite() bool {
	switch i.Verb {
	case "create", "update", "patch", "delete", "deletecollection":
		return true
	}
	return false
}

// Pattern returns the method and, for a resource path, the pattern of the path. The pattern has
// placeholders for the namespace and the name to limit the number of distinct values.
func (i *Info) Pattern() string {
	if !i.IsResource {
		return i.Method
	}
	var b strings.Builder
	b.WriteString(i.Method)
	if i.Group == "" {
		b.WriteString(" /api/")
	} else {
		b.WriteString(" /apis/" + i.Group + "/")
	}
	b.WriteString(i.Version)
	if i.Namespace != "" {
		b.WriteString("/namespaces/{:namespace}")
	}
	b.WriteString("/" + i.Resource)
	if i.Name != "" {
		b.WriteString("/{:name}")
	}
	if i.Subresource != "" {
		b.WriteString("/" + i.Subresource)
	}
	return b.String()
}

// ForObject returns the same operation on another object of the same kind.
func (i *Info) ForObject(namespace, name string) *Info {
	other := *i
	other.Namespace = namespace
	other.Name = name
	other.Collection = false
	return &other
}

// namespaceSubresources are the path segments after a namespace that are not resources in it.
var namespaceSubresources = map[string]bool{"status": true, "finalize": true}

// target is the target of a path below a group version.
type target struct {
	// prefix is "watch" or "proxy" for the old paths with that prefix.
	prefix string
	// inNamespace reports whether a namespace precedes the resource.
	inNamespace bool
	// segments holds the resource, the name, the subresource, and the segments below it.
	segments []string
	// hasEmptySegment reports whether a segment that names something is empty.
	hasEmptySegment bool
}

// Resolve returns the operation of a request against a set of kinds. A path that matches nothing in
// the set has no Target, but still has attributes: Kubernetes authorizes them before it returns
// 404.
func Resolve(r *http.Request, kinds *apiset.Set) *Info {
	i := &Info{Path: r.URL.Path, Method: r.Method, Verb: strings.ToLower(r.Method), Kinds: kinds}
	parts := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	empty := false
	switch {
	case len(parts) >= 3 && parts[0] == "api":
		i.Version = parts[1]
		parts = parts[2:]
	case len(parts) >= 4 && parts[0] == "apis":
		i.Group = parts[1]
		i.Version = parts[2]
		parts = parts[3:]
		empty = i.Group == ""
	default:
		return i
	}
	i.IsResource = true
	i.Verb = verbs[r.Method]
	p := i.parseTarget(parts)
	i.WatchPath = p.prefix == "watch"
	p.hasEmptySegment = p.hasEmptySegment || empty || i.Version == ""
	i.HasEmptySegment = p.hasEmptySegment
	i.setCollectionVerb(r, p)
	i.setTarget(p)
	return i
}

// verbs maps methods on a single object to verbs.
var verbs = map[string]string{
	http.MethodPost: "create", http.MethodGet: "get", http.MethodHead: "get",
	http.MethodPut: "update", http.MethodPatch: "patch", http.MethodDelete: "delete",
}

// parseTarget parses the path below its group version.
func (i *Info) parseTarget(parts []string) target {
	p := target{segments: parts}
	if len(parts) > 1 && (parts[0] == "watch" || parts[0] == "proxy") {
		p.prefix = parts[0]
		p.segments = parts[1:]
	}
	if p.segments[0] == "namespaces" && len(p.segments) > 1 {
		i.Namespace = p.segments[1]
		i.EmptyNamespace = i.Namespace == "" && len(p.segments) > 2 && !namespaceSubresources[p.segments[2]] && p.prefix == ""
		p.hasEmptySegment = i.Namespace == "" && !i.EmptyNamespace
		if len(p.segments) > 2 && !namespaceSubresources[p.segments[2]] {
			p.inNamespace = true
			p.segments = p.segments[2:]
		}
	}
	for _, s := range p.segments[:min(len(p.segments), 3)] {
		p.hasEmptySegment = p.hasEmptySegment || s == ""
	}
	i.Resource = p.segments[0]
	if len(p.segments) > 1 {
		i.Name = p.segments[1]
	}
	if len(p.segments) > 2 && p.prefix != "proxy" {
		i.Subresource = p.segments[2]
	}
	i.Collection = i.Name == ""
	return p
}

// setCollectionVerb replaces the verbs of single objects by those of collections, and reads the
// selectors of a collection from the query.
func (i *Info) setCollectionVerb(r *http.Request, p target) {
	if r.URL.RawQuery != "" && (i.Collection || p.prefix != "") {
		i.Query = r.URL.Query()
	}
	switch {
	case p.prefix != "":
		// The old paths ignore selectors and are authorized for all objects.
		i.Verb = p.prefix
		return
	case !i.Collection:
		return
	case i.Verb == "delete":
		i.Verb = "deletecollection"
	case i.Verb != "get":
		return
	}
	q := i.Query
	i.FieldSelector, i.LabelSelector = q.Get("fieldSelector"), q.Get("labelSelector")
	if i.FieldSelector != "" || i.LabelSelector != "" {
		i.selectors = &Selectors{label: i.LabelSelector, field: i.FieldSelector}
	}
	if i.Verb == "deletecollection" {
		return
	}
	i.Verb = "list"
	if Truthy(q, "watch") {
		i.Verb = "watch"
	}
	if strings.Contains(i.FieldSelector, "metadata.name") && !i.TooManySelectorTerms() && i.validOptions() {
		if selector, err := i.selectors.Fields(); err == nil {
			if name, ok := selector.RequiresExactMatch("metadata.name"); ok && !strings.ContainsAny(name, "/%") && name != "." && name != ".." {
				i.Name = name
			}
		}
	}
}

// validOptions reports whether the parameters of a collection can be parsed.
func (i *Info) validOptions() bool {
	var options metav1.ListOptions
	if metav1.Convert_url_Values_To_v1_ListOptions(&i.Query, &options, nil) != nil {
		return false
	}
	_, err := i.selectors.Labels()
	return err == nil
}

// setTarget finds the target of the path. There is no target unless the path is exactly one that
// the kind serves.
func (i *Info) setTarget(p target) {
	kind := i.Kinds.Resource(i.GVR())
	if kind == nil || p.hasEmptySegment || p.prefix == "proxy" {
		return
	}
	named := len(p.segments) > 1
	switch {
	case !kind.Namespaced && p.inNamespace:
		return
	case kind.Namespaced && named && !p.inNamespace:
		return
	}
	if len(p.segments) > 2 {
		sub := kind.Subresource(p.segments[2])
		if sub == nil || p.prefix != "" || len(p.segments) > 3 && !sub.AllowSubpaths {
			return
		}
		i.Sub = sub
		i.Subpath = p.segments[3:]
	}
	i.Target = kind
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
