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

// Info describes what a request does (specification: "Request attributes" and "Resource paths"). It
// is created by Resolve. Authorization, flow control, deadlines and handlers all use the same Info,
// and no later code parses the path.
type Info struct {
	Path   string
	Method string // as received
	// Verb is the API verb of a resource path: get, list, watch, create, update, patch, delete,
	// deletecollection, or proxy for an old path that is no longer served. It is "" if the method
	// has no verb. For other paths it is the lower-cased method.
	Verb string
	// IsResource reports whether the path is below /api/<version>/ or /apis/<group>/<version>/. If
	// not, only the fields above and Kinds are set.
	IsResource bool
	// The following fields describe the target of the request, as the path names it.
	Group       string
	Version     string
	Namespace   string
	Resource    string
	Subresource string
	// Name is the name of the object. For a list or watch it is the name that the field selector
	// metadata.name=<name> requires, if any.
	Name string
	// FieldSelector and LabelSelector are the unparsed selectors of a list, watch or
	// deletecollection.
	FieldSelector, LabelSelector string
	selectors                    *Selectors // nil if both are empty
	// Query is the parsed query of the URL, for collections and old paths. It must not be changed.
	// A running watch clears it.
	Query url.Values

	// Kinds is the set of kinds that the request sees.
	Kinds *apiset.Set
	// Target is the resource on which the request acts. It is nil if Kinds does not serve the path;
	// the request then has no effect, even if it is authorized.
	Target *apiset.Resource
	// Sub is the subresource on which the request acts, or nil.
	Sub *registry.Subresource
	// Collection reports whether the request is for a collection rather than one object.
	Collection bool
	// WatchPath reports whether the path has the deprecated prefix watch: /api/v1/watch/pods.
	WatchPath bool
	// Subpath holds the path segments below a subresource that accepts all paths below it.
	Subpath []string
	// EmptyNamespace reports whether the namespace in the path is empty: /api/v1/namespaces//pods.
	// Lists, watches and deletions of such a path cover all namespaces.
	EmptyNamespace bool
	// HasEmptySegment reports whether the segment for the group, version, namespace, resource, name
	// or subresource is empty. Such a path has no Target.
	HasEmptySegment bool
	// retryAllowed is set by AllowRetry, and retryRequested by Retry.
	retryAllowed, retryRequested bool
	// Delegate is the handler of another server that serves the group version or the resource. If
	// it is set, Target is nil.
	Delegate http.Handler
}

// GroupVersion returns the group version in the path, which is a resource path or the path of the
// group version itself, /apis/<group>/<version>. ok is false for other paths.
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

// longRunningSubresources holds the subresources whose requests are long-running, regardless of the
// resource.
var longRunningSubresources = map[string]bool{"attach": true, "exec": true, "proxy": true, "log": true, "portforward": true}

// AllowRetry permits the handler to call Retry. The caller must check RetryRequested when the
// handler returns, and then resolve and handle the request again.
func (i *Info) AllowRetry() { i.retryAllowed = true }

// Retry requests that the request be resolved again, because its Target is no longer served in the
// same way. The handler calls it before the request has had any effect, and then returns without a
// response. If Retry returns false, retries are not permitted, and the handler must respond.
func (i *Info) Retry() bool {
	i.retryRequested = i.retryAllowed
	return i.retryRequested
}

// RetryRequested reports whether the handler has called Retry successfully.
func (i *Info) RetryRequested() bool { return i.retryRequested }

// GVR returns the resource that the path names.
func (i *Info) GVR() schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: i.Group, Version: i.Version, Resource: i.Resource}
}

// LongRunning reports whether the request has no deadline: it lasts until the client ends it.
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

// LooksLongRunning reports whether Kubernetes would treat the request as long-running because of
// its verb or subresource, even if it does not serve the path. Kubernetes applies flow control to
// no such request.
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

// Pattern returns the method and, for a resource path, the path with placeholders for the namespace
// and the name: "GET /api/v1/namespaces/{:namespace}/pods/{:name}". The placeholders limit the
// number of distinct values in metrics and traces.
func (i *Info) Pattern() string {
	if !i.IsResource {
		return i.Method
	}
	var pattern strings.Builder
	pattern.WriteString(i.Method)
	if i.Group == "" {
		pattern.WriteString(" /api/")
	} else {
		pattern.WriteString(" /apis/" + i.Group + "/")
	}
	pattern.WriteString(i.Version)
	if i.Namespace != "" {
		pattern.WriteString("/namespaces/{:namespace}")
	}
	pattern.WriteString("/" + i.Resource)
	if i.Name != "" {
		pattern.WriteString("/{:name}")
	}
	if i.Subresource != "" {
		pattern.WriteString("/" + i.Subresource)
	}
	return pattern.String()
}

// ForObject returns a copy of i for an object of the same kind.
func (i *Info) ForObject(namespace, name string) *Info {
	other := *i
	other.Namespace = namespace
	other.Name = name
	other.Collection = false
	return &other
}

// namespaceSubresources holds the subresources of namespaces. In
// /api/v1/namespaces/<name>/<segment>, any other segment is a resource in the namespace.
var namespaceSubresources = map[string]bool{"status": true, "finalize": true}

// parsedPath is the part of a path after the group version.
type parsedPath struct {
	// prefix is "watch" or "proxy" for the old paths with that prefix, otherwise "".
	prefix string
	// inNamespace reports whether namespaces/<namespace> precedes the resource.
	inNamespace bool
	// segments holds the resource, the name, the subresource, and the segments after it, as far as
	// the path has them.
	segments []string
	// hasEmptySegment is Info.HasEmptySegment.
	hasEmptySegment bool
}

// Resolve determines what a request does, given the set of kinds that it sees. If the set does not
// serve the path, the Info has no Target, but its other fields are set, because Kubernetes
// authorizes such a request before it returns 404.
func Resolve(r *http.Request, kinds *apiset.Set) *Info {
	i := &Info{Path: r.URL.Path, Method: r.Method, Verb: strings.ToLower(r.Method), Kinds: kinds}

	// 1. Read the group version. Other paths name no resource.
	parts := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	emptyGroup := false
	switch {
	case len(parts) >= 3 && parts[0] == "api":
		i.Version = parts[1]
		parts = parts[2:]
	case len(parts) >= 4 && parts[0] == "apis":
		i.Group = parts[1]
		i.Version = parts[2]
		parts = parts[3:]
		emptyGroup = i.Group == ""
	default:
		return i
	}

	// 2. Read the rest of the path, and the query.
	i.IsResource = true
	i.Verb = verbs[r.Method]
	p := i.parsePath(parts)
	i.WatchPath = p.prefix == "watch"
	p.hasEmptySegment = p.hasEmptySegment || emptyGroup || i.Version == ""
	i.HasEmptySegment = p.hasEmptySegment
	i.completeCollection(r, p)
	i.setTarget(p)
	return i
}

// verbs maps methods to the verbs of requests for a single object.
var verbs = map[string]string{
	http.MethodPost:   "create",
	http.MethodGet:    "get",
	http.MethodHead:   "get",
	http.MethodPut:    "update",
	http.MethodPatch:  "patch",
	http.MethodDelete: "delete",
}

// parsePath parses the segments after the group version, and sets the namespace, resource, name and
// subresource of i:
//
//	pods                             resource
//	nodes/a                          resource, name
//	namespaces/a                     namespace a, resource namespaces, name a
//	namespaces/a/pods/b/log          namespace a, resource pods, name b, subresource log
//	watch/namespaces/a/pods          prefix watch, namespace a, resource pods
func (i *Info) parsePath(parts []string) parsedPath {
	parsed := parsedPath{segments: parts}
	if len(parts) > 1 && (parts[0] == "watch" || parts[0] == "proxy") {
		parsed.prefix = parts[0]
		parsed.segments = parts[1:]
	}
	if parsed.segments[0] == "namespaces" && len(parsed.segments) > 1 {
		i.Namespace = parsed.segments[1]
		namesResource := len(parsed.segments) > 2 && !namespaceSubresources[parsed.segments[2]]
		i.EmptyNamespace = i.Namespace == "" && namesResource && parsed.prefix == ""
		parsed.hasEmptySegment = i.Namespace == "" && !i.EmptyNamespace
		if namesResource {
			parsed.inNamespace = true
			parsed.segments = parsed.segments[2:]
		}
	}
	for _, s := range parsed.segments[:min(len(parsed.segments), 3)] {
		parsed.hasEmptySegment = parsed.hasEmptySegment || s == ""
	}
	i.Resource = parsed.segments[0]
	if len(parsed.segments) > 1 {
		i.Name = parsed.segments[1]
	}
	if len(parsed.segments) > 2 && parsed.prefix != "proxy" {
		i.Subresource = parsed.segments[2]
	}
	i.Collection = i.Name == ""
	return parsed
}

// completeCollection replaces the verb of a single object with the verb of a collection if the path
// is for a collection, and reads the selectors from the query.
func (i *Info) completeCollection(r *http.Request, p parsedPath) {
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
	i.FieldSelector = q.Get("fieldSelector")
	i.LabelSelector = q.Get("labelSelector")
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
	i.setSelectedName()
}

// setSelectedName sets the name of a list or watch to the name that the field selector requires.
func (i *Info) setSelectedName() {
	if !strings.Contains(i.FieldSelector, "metadata.name") || i.TooManySelectorTerms() || !i.validOptions() {
		return
	}
	selector, err := i.selectors.Fields()
	if err != nil {
		return
	}
	name, ok := selector.RequiresExactMatch("metadata.name")
	isPathSegment := !strings.ContainsAny(name, "/%") && name != "." && name != ".."
	if ok && isPathSegment {
		i.Name = name
	}
}

// validOptions reports whether the query parameters of a collection and its label selector are
// valid.
func (i *Info) validOptions() bool {
	var options metav1.ListOptions
	if metav1.Convert_url_Values_To_v1_ListOptions(&i.Query, &options, nil) != nil {
		return false
	}
	_, err := i.selectors.Labels()
	return err == nil
}

// setTarget sets the target of the path. There is no target unless the set serves exactly that
// path.
func (i *Info) setTarget(parsed parsedPath) {
	kind := i.Kinds.Resource(i.GVR())
	if kind == nil || parsed.hasEmptySegment || parsed.prefix == "proxy" {
		return
	}
	named := len(parsed.segments) > 1
	switch {
	case !kind.Namespaced && parsed.inNamespace:
		return
	case kind.Namespaced && named && !parsed.inNamespace:
		return
	}
	if len(parsed.segments) > 2 {
		sub := kind.Subresource(parsed.segments[2])
		if sub == nil || parsed.prefix != "" {
			return
		}
		if len(parsed.segments) > 3 && !sub.AllowSubpaths {
			return
		}
		i.Sub = sub
		i.Subpath = parsed.segments[3:]
	}
	i.Target = kind
}

// Truthy returns the value of a boolean query parameter like Kubernetes: every value other than
// "false" and "0" is true, and a missing parameter is false.
func Truthy(q url.Values, key string) bool {
	v, ok := q[key]
	if !ok || len(v) == 0 {
		return false
	}
	return !strings.EqualFold(v[0], "false") && v[0] != "0"
}
