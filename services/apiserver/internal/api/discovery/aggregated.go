package discovery

import (
	"bytes"
	"encoding/json"
	"errors"
	"mime"
	"net/http"
	"sort"
	"strconv"
	"strings"
	"sync"

	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"binnacle/libs/api"
)

// Group and kind of the aggregated document.
const (
	aggregatedGroup = "apidiscovery." + api.Domain
	aggregatedKind  = "APIGroupDiscoveryList"
)

// newAggregatedDocument returns the document that lists groups with all their resources. Its JSON
// form is assembled from the JSON of the items, so that unchanged groups are not encoded again.
func newAggregatedDocument(items []*groupItem) *document {
	list := func(items []*groupItem) *apidiscoveryv2.APIGroupDiscoveryList {
		list := &apidiscoveryv2.APIGroupDiscoveryList{Items: make([]apidiscoveryv2.APIGroupDiscovery, len(items))}
		for i, item := range items {
			list.Items[i] = item.group
		}
		list.TypeMeta = metav1.TypeMeta{Kind: aggregatedKind, APIVersion: aggregatedGroup + "/v2"}
		return list
	}
	return &document{
		object: func() protoObject { return list(items) },
		text: func() ([]byte, error) {
			empty, err := encode(list(nil), form{media: api.MediaJSON})
			if err != nil {
				return nil, err
			}
			return insertItems(empty, items)
		},
		bodies: map[form]*body{},
	}
}

// groupItem is a group in the aggregated form. Groups that do not change keep their items.
type groupItem struct {
	group apidiscoveryv2.APIGroupDiscovery
	text  func() ([]byte, error) // returns the JSON, which it encodes once
}

// newGroupItem returns the item of a group.
func newGroupItem(g *group) *groupItem {
	a := &groupItem{group: aggregate(g)}
	a.text = sync.OnceValues(func() ([]byte, error) { return json.Marshal(&a.group) })
	return a
}

// insertItems inserts the JSON of items into the JSON of an empty list: `{"items":[]}` becomes
// `{"items":[...,...]}`.
func insertItems(empty []byte, items []*groupItem) ([]byte, error) {
	const emptyItems = `"items":[`
	head, tail, found := bytes.Cut(empty, []byte(emptyItems+"]"))
	if !found {
		return nil, errors.New(`the JSON of an empty list lacks "items":[]`) // cannot happen
	}
	out := append(append([]byte(nil), head...), emptyItems...)
	for i, item := range items {
		data, err := item.text()
		if err != nil {
			return nil, err
		}
		if i > 0 {
			out = append(out, ',')
		}
		out = append(out, data...)
	}
	return append(append(out, ']'), tail...), nil
}

// aggregate converts a group to the aggregated form.
func aggregate(source *group) apidiscoveryv2.APIGroupDiscovery {
	out := apidiscoveryv2.APIGroupDiscovery{ObjectMeta: metav1.ObjectMeta{Name: source.name}}
	for _, groupVersion := range source.versions {
		if groupVersion.unserved {
			continue
		}
		version := apidiscoveryv2.APIVersionDiscovery{
			Version: groupVersion.name, Freshness: apidiscoveryv2.DiscoveryFreshnessCurrent, Resources: groupVersion.aggregated,
		}
		if groupVersion.aggregated == nil {
			version.Resources = aggregateResources(groupVersion.resources)
		}
		if groupVersion.fillResponseKinds {
			setGroupVersion(version.Resources, source.name, groupVersion.name)
		}
		if groupVersion.stale {
			version.Freshness = apidiscoveryv2.DiscoveryFreshnessStale
		}
		out.Versions = append(out.Versions, version)
	}
	return out
}

// aggregateResources converts a resource list to the aggregated form, where subresources are nested
// in their resources.
func aggregateResources(resources []metav1.APIResource) []apidiscoveryv2.APIResourceDiscovery {
	var out []apidiscoveryv2.APIResourceDiscovery
	indexes := map[string]int{}
	for _, apiResource := range resources {
		if strings.Contains(apiResource.Name, "/") {
			continue
		}
		scope := apidiscoveryv2.ScopeCluster
		if apiResource.Namespaced {
			scope = apidiscoveryv2.ScopeNamespace
		}
		indexes[apiResource.Name] = len(out)
		out = append(out, apidiscoveryv2.APIResourceDiscovery{
			Resource: apiResource.Name, SingularResource: apiResource.SingularName, Scope: scope, ResponseKind: responseKind(&apiResource),
			Verbs: apiResource.Verbs, ShortNames: apiResource.ShortNames, Categories: apiResource.Categories,
		})
	}
	for _, apiResource := range resources {
		parent, name, ok := strings.Cut(apiResource.Name, "/")
		if !ok {
			continue
		}
		i, ok := indexes[parent]
		if !ok {
			// The list has a subresource without its resource, so the resource is added.
			scope := apidiscoveryv2.ScopeCluster
			if apiResource.Namespaced {
				scope = apidiscoveryv2.ScopeNamespace
			}
			i = len(out)
			indexes[parent] = i
			out = append(out,
				apidiscoveryv2.APIResourceDiscovery{Resource: parent, Scope: scope, ResponseKind: &metav1.GroupVersionKind{}})
		}
		out[i].Subresources = append(out[i].Subresources, apidiscoveryv2.APISubresourceDiscovery{
			Subresource: name, ResponseKind: responseKind(&apiResource), Verbs: apiResource.Verbs,
		})
	}
	return out
}

// setGroupVersion sets the group and version of response kinds that have neither.
func setGroupVersion(resources []apidiscoveryv2.APIResourceDiscovery, group, version string) {
	set := func(k *metav1.GroupVersionKind) {
		if k.Group == "" && k.Version == "" {
			k.Group = group
			k.Version = version
		}
	}
	for i := range resources {
		set(resources[i].ResponseKind)
		for j := range resources[i].Subresources {
			set(resources[i].Subresources[j].ResponseKind)
		}
	}
}

// responseKind returns the response kind of a resource. Its group and version are empty if they are
// the same as the group and version of the document.
func responseKind(r *metav1.APIResource) *metav1.GroupVersionKind {
	return &metav1.GroupVersionKind{Group: r.Group, Version: r.Version, Kind: r.Kind}
}

// aggregatedForm is a form of the aggregated document that a client requests.
type aggregatedForm struct {
	media string
	// unsupported reports that the client accepts only forms that the server does not support.
	unsupported bool
}

// requestedAggregatedForm returns the form of the aggregated document that the client prefers. It
// returns false if the client prefers the plain document:
//
//	application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json
//	                        the aggregated document as JSON
//	application/json        the plain document
//	application/json;as=X   an unsupported form
func requestedAggregatedForm(r *http.Request) (aggregatedForm, bool) {
	type clause struct {
		media  string
		params map[string]string
		q      float64
	}
	var clauses []clause
	for _, part := range strings.Split(r.Header.Get("Accept"), ",") {
		media, params, err := mime.ParseMediaType(part)
		if err != nil {
			continue
		}
		accepted := clause{media: media, params: params, q: 1}
		if q, err := strconv.ParseFloat(params["q"], 64); err == nil {
			accepted.q = q
		}
		clauses = append(clauses, accepted)
	}
	sort.SliceStable(clauses, func(i, j int) bool { return clauses[i].q > clauses[j].q })
	acceptsUnsupported := false
	for _, accepted := range clauses {
		switch accepted.media {
		case api.MediaJSON, api.MediaYAML, api.MediaProtobuf:
		case "*/*":
			accepted.media = api.MediaJSON
		default:
			continue
		}
		as, ok := accepted.params["as"]
		if !ok {
			return aggregatedForm{}, false
		}
		if as == aggregatedKind && accepted.params["g"] == aggregatedGroup && accepted.params["v"] == "v2" {
			return aggregatedForm{media: accepted.media}, true
		}
		acceptsUnsupported = true
	}
	return aggregatedForm{unsupported: true}, acceptsUnsupported
}

// serve responds with an aggregated document, or with 304 if the client already has it.
func (a aggregatedForm) serve(w http.ResponseWriter, r *http.Request, doc *document) {
	body, err := doc.body(a.media, false)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	header := w.Header()
	header.Set("ETag", body.etag)
	header.Set("Vary", "Accept")
	header.Set("Cache-Control", "public")
	for _, tag := range strings.Split(r.Header.Get("If-None-Match"), ",") {
		if t := strings.TrimSpace(tag); strings.TrimPrefix(t, "W/") == body.etag || t == "*" {
			w.WriteHeader(http.StatusNotModified)
			return
		}
	}
	header.Set("Content-Type", a.media+";g="+aggregatedGroup+";v=v2;as="+aggregatedKind)
	_, _ = w.Write(body.bytes) // fails only if the client has disconnected
}
