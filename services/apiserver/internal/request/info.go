package request

import (
	"net/http"
	"net/url"
	"strings"

	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Info is what a request's method and path say (specification: "Request
// attributes" and "Resource paths").
type Info struct {
	// IsResource is false for paths outside /api/<version>/... and
	// /apis/<group>/<version>/...; then only Path and Verb are set.
	IsResource bool
	Path       string
	// Verb is the API verb (get, list, watch, create, update, patch, delete,
	// deletecollection, proxy), or the lower-cased method.
	Verb string

	// Prefix is "api" or "apis".
	Prefix      string
	Group       string
	Version     string
	Namespace   string
	Resource    string
	Subresource string
	Name        string
	// Parts is the path from the resource on: resource, name, subresource and
	// whatever follows it.
	Parts []string
	// Malformed is set when a segment that names something is empty.
	Malformed bool
	// LegacyWatch is set for the old /watch/ paths.
	LegacyWatch bool
	// FieldSelector and LabelSelector are what a list, watch or
	// deletecollection says of itself, as it says it.
	FieldSelector, LabelSelector string
}

// GroupVersion that the path names.
func (i *Info) GroupVersion() schema.GroupVersion {
	return schema.GroupVersion{Group: i.Group, Version: i.Version}
}

// GVR that the path names.
func (i *Info) GVR() schema.GroupVersionResource { return i.GroupVersion().WithResource(i.Resource) }

// namespaceSubresources are paths below a namespace that are not resources in it.
var namespaceSubresources = map[string]bool{"status": true, "finalize": true}

// Parse reads the attributes of a request.
func Parse(r *http.Request) *Info {
	i := &Info{Path: r.URL.Path, Verb: strings.ToLower(r.Method)}
	parts := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	switch {
	case len(parts) >= 3 && parts[0] == "api":
		i.Prefix, i.Version, parts = "api", parts[1], parts[2:]
	case len(parts) >= 4 && parts[0] == "apis":
		i.Prefix, i.Group, i.Version, parts = "apis", parts[1], parts[2], parts[3:]
	default:
		return i
	}
	i.IsResource = true
	switch r.Method {
	case http.MethodPost:
		i.Verb = "create"
	case http.MethodGet, http.MethodHead:
		i.Verb = "get"
	case http.MethodPut:
		i.Verb = "update"
	case http.MethodPatch:
		i.Verb = "patch"
	case http.MethodDelete:
		i.Verb = "delete"
	default:
		i.Verb = ""
	}
	if parts[0] == "watch" && len(parts) > 1 {
		i.LegacyWatch, i.Verb, parts = true, "watch", parts[1:]
	} else if parts[0] == "proxy" && len(parts) > 1 {
		i.Verb, parts = "proxy", parts[1:]
	}
	if parts[0] == "namespaces" && len(parts) > 1 {
		i.Namespace = parts[1]
		i.Malformed = parts[1] == ""
		if len(parts) > 2 && !namespaceSubresources[parts[2]] {
			parts = parts[2:]
		}
	}
	i.Parts = parts
	for _, p := range parts[:min(len(parts), 3)] {
		i.Malformed = i.Malformed || p == ""
	}
	i.Resource = parts[0]
	if len(parts) > 1 {
		i.Name = parts[1]
	}
	if len(parts) > 2 {
		i.Subresource = parts[2]
	}
	i.collectionVerb(r)
	return i
}

// collectionVerb turns get and delete of a collection into list, watch and
// deletecollection, and takes the name of a selector for a single object.
func (i *Info) collectionVerb(r *http.Request) {
	if i.Verb == "delete" && i.Name == "" {
		i.Verb = "deletecollection"
	}
	if i.Verb != "get" && i.Verb != "deletecollection" {
		return
	}
	q := r.URL.Query()
	if i.Verb == "get" && i.Subresource == "" {
		if Truthy(q, "watch") {
			i.Verb = "watch"
		} else if i.Name == "" {
			i.Verb = "list"
		}
	}
	if i.Verb != "list" && i.Verb != "watch" && i.Verb != "deletecollection" {
		return
	}
	i.FieldSelector, i.LabelSelector = q.Get("fieldSelector"), q.Get("labelSelector")
	if i.Name != "" {
		return
	}
	if s := i.FieldSelector; strings.Contains(s, "metadata.name") {
		if sel, err := fields.ParseSelector(s); err == nil {
			if name, ok := sel.RequiresExactMatch("metadata.name"); ok && !strings.ContainsAny(name, "/%") && name != "." && name != ".." {
				i.Name = name
			}
		}
	}
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
