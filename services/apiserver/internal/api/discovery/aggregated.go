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

const (
	aggregatedGroup = "apidiscovery." + api.Domain
	aggregatedKind  = "APIGroupDiscoveryList"
)

// aggregated is the document that lists groups with all their resources.
type aggregated struct{ v2 *document }

// newAggregated returns the aggregated documents of groups.
func newAggregated(items []*groupItem) *aggregated {
	list := func(items []*groupItem) *apidiscoveryv2.APIGroupDiscoveryList {
		list := &apidiscoveryv2.APIGroupDiscoveryList{Items: make([]apidiscoveryv2.APIGroupDiscovery, len(items))}
		for i, item := range items {
			list.Items[i] = item.group
		}
		list.TypeMeta = metav1.TypeMeta{Kind: aggregatedKind, APIVersion: aggregatedGroup + "/v2"}
		return list
	}
	return &aggregated{&document{
		object: func() protoObject { return list(items) },
		text: func() ([]byte, error) {
			empty, err := encode(list(nil), form{media: api.MediaJSON})
			if err != nil {
				return nil, err
			}
			return insertItems(empty, items)
		},
		bodies: map[form]*body{},
	}}
}

// groupItem is a group in the aggregated form, with its JSON from first use on. Groups that do not
// change keep their items.
type groupItem struct {
	group apidiscoveryv2.APIGroupDiscovery
	text  func() ([]byte, error)
}

func newGroupItem(g *group) *groupItem {
	a := &groupItem{group: aggregate(g)}
	a.text = sync.OnceValues(func() ([]byte, error) { return json.Marshal(&a.group) })
	return a
}

// insertItems inserts items into the text of an empty list.
func insertItems(empty []byte, items []*groupItem) ([]byte, error) {
	const emptyItems = `"items":[`
	head, tail, found := bytes.Cut(empty, []byte(emptyItems+"]"))
	if !found {
		return nil, errors.New("a list without items has another form")
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

// aggregate returns a group in the aggregated form.
func aggregate(g *group) apidiscoveryv2.APIGroupDiscovery {
	out := apidiscoveryv2.APIGroupDiscovery{ObjectMeta: metav1.ObjectMeta{Name: g.name}}
	for _, v := range g.versions {
		if v.unserved {
			continue
		}
		version := apidiscoveryv2.APIVersionDiscovery{
			Version: v.name, Freshness: apidiscoveryv2.DiscoveryFreshnessCurrent, Resources: v.aggregated,
		}
		if v.aggregated == nil {
			version.Resources = aggregateResources(v.resources)
		}
		if v.named {
			nameResources(version.Resources, g.name, v.name)
		}
		if v.stale {
			version.Freshness = apidiscoveryv2.DiscoveryFreshnessStale
		}
		out.Versions = append(out.Versions, version)
	}
	return out
}

// aggregateResources groups subresources under their resources.
func aggregateResources(resources []metav1.APIResource) []apidiscoveryv2.APIResourceDiscovery {
	var out []apidiscoveryv2.APIResourceDiscovery
	indexes := map[string]int{}
	for _, r := range resources {
		if strings.Contains(r.Name, "/") {
			continue
		}
		scope := apidiscoveryv2.ScopeCluster
		if r.Namespaced {
			scope = apidiscoveryv2.ScopeNamespace
		}
		indexes[r.Name] = len(out)
		out = append(out, apidiscoveryv2.APIResourceDiscovery{
			Resource: r.Name, SingularResource: r.SingularName, Scope: scope, ResponseKind: responseKind(&r),
			Verbs: r.Verbs, ShortNames: r.ShortNames, Categories: r.Categories,
		})
	}
	for _, r := range resources {
		parent, name, ok := strings.Cut(r.Name, "/")
		if !ok {
			continue
		}
		i, ok := indexes[parent]
		if !ok {
			// A subresource without its resource needs a parent.
			scope := apidiscoveryv2.ScopeCluster
			if r.Namespaced {
				scope = apidiscoveryv2.ScopeNamespace
			}
			i, indexes[parent] = len(out), len(out)
			out = append(out, apidiscoveryv2.APIResourceDiscovery{Resource: parent, Scope: scope, ResponseKind: &metav1.GroupVersionKind{}})
		}
		out[i].Subresources = append(out[i].Subresources, apidiscoveryv2.APISubresourceDiscovery{
			Subresource: name, ResponseKind: responseKind(&r), Verbs: r.Verbs,
		})
	}
	return out
}

// nameResources sets the group version where it is empty.
func nameResources(resources []apidiscoveryv2.APIResourceDiscovery, group, version string) {
	name := func(k *metav1.GroupVersionKind) {
		if k.Group == "" && k.Version == "" {
			k.Group = group
			k.Version = version
		}
	}
	for i := range resources {
		name(resources[i].ResponseKind)
		for j := range resources[i].Subresources {
			name(resources[i].Subresources[j].ResponseKind)
		}
	}
}

// responseKind returns the kind of a response. Group and version are empty if they are those of the
// parent.
func responseKind(r *metav1.APIResource) *metav1.GroupVersionKind {
	return &metav1.GroupVersionKind{Group: r.Group, Version: r.Version, Kind: r.Kind}
}

// aggregation is the requested aggregated form. isDefault states that the client accepts only
// unsupported forms of aggregated documents.
type aggregation struct {
	media     string
	isDefault bool
}

// aggregatedForm reports whether the client prefers the aggregated form to plain documents.
func aggregatedForm(r *http.Request) (aggregation, bool) {
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
		c := clause{media: media, params: params, q: 1}
		if q, err := strconv.ParseFloat(params["q"], 64); err == nil {
			c.q = q
		}
		clauses = append(clauses, c)
	}
	sort.SliceStable(clauses, func(i, j int) bool { return clauses[i].q > clauses[j].q })
	wantsUnsupported := false
	for _, c := range clauses {
		switch c.media {
		case api.MediaJSON, api.MediaYAML, api.MediaProtobuf:
		case "*/*":
			c.media = api.MediaJSON
		default:
			continue
		}
		as, ok := c.params["as"]
		if !ok {
			return aggregation{}, false
		}
		if as == aggregatedKind && c.params["g"] == aggregatedGroup && c.params["v"] == "v2" {
			return aggregation{media: c.media}, true
		}
		wantsUnsupported = true
	}
	return aggregation{isDefault: true}, wantsUnsupported
}

// serve responds with the document, or with 304 if the client has it.
func (a aggregation) serve(w http.ResponseWriter, r *http.Request, docs *aggregated) {
	b, err := docs.v2.body(a.media, false)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	h := w.Header()
	h.Set("ETag", b.etag)
	h.Set("Vary", "Accept")
	h.Set("Cache-Control", "public")
	for _, tag := range strings.Split(r.Header.Get("If-None-Match"), ",") {
		if t := strings.TrimSpace(tag); strings.TrimPrefix(t, "W/") == b.etag || t == "*" {
			w.WriteHeader(http.StatusNotModified)
			return
		}
	}
	h.Set("Content-Type", a.media+";g="+aggregatedGroup+";v=v2;as="+aggregatedKind)
	_, _ = w.Write(b.bytes) // fails only if the client is gone
}
