package aggregation

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"mime"
	"net/http"
	"reflect"

	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/transport"

	"binnacle/libs/api"
)

// description holds the resources that a server serves in its group version.
type description struct {
	resources []metav1.APIResource
	// aggregated holds the same resources as in the server's aggregated discovery document. It is
	// nil if the server has no such document.
	aggregated []apidiscoveryv2.APIResourceDiscovery
	// stale is set if the last request for the resources failed, or there was none.
	stale bool
	// etag is the ETag of the aggregated document.
	etag string
}

const (
	// MaxOpenAPI is the maximum size of an OpenAPI v2 document in bytes.
	MaxOpenAPI = 16 << 20
	// MaxDiscovery is the maximum size of any other document in bytes. All clients receive the
	// resources in it.
	MaxDiscovery = 2 << 20
	// maxOpenAPIValues is the maximum number of JSON values in an OpenAPI v2 document, and
	// maxValues in any other document. A value such as "{}," takes three bytes in the document, but
	// hundreds of bytes when it is decoded.
	maxOpenAPIValues = 1 << 18
	maxValues        = 1 << 17
)

// aggregatedForms is the Accept header of requests for an aggregated discovery document.
const aggregatedForms = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList," +
	"application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList"

// describe reads the resources that the server serves, even if the server is unavailable. If the
// server is available, describe also reads the hash of its OpenAPI v3 document. changed reports
// whether the resources or the hash have changed. As in Kubernetes, discovery shows a server that
// does not respond as stale and without resources.
func (r *remote) describe(ctx context.Context) (changed bool) {
	previous := r.description.Load()
	next, err := r.readAggregated(ctx, previous)
	if err == nil && next == nil {
		next, err = r.readList(ctx)
	}
	if err != nil {
		r.aggregator.Logger.Debug("discovery of an extension server failed", "apiservice", r.name, "error", err)
		next = &description{stale: true}
	}
	r.description.Store(next)
	if r.available() {
		changed = r.readV3Index(ctx)
	}
	return changed || next.stale != previous.stale || !reflect.DeepEqual(next.resources, previous.resources) ||
		!reflect.DeepEqual(next.aggregated, previous.aggregated)
}

// documentRequest holds the variable parts of a request for a document.
type documentRequest struct {
	accept string   // Accept header; empty for none
	etag   string   // If-None-Match header; empty for none
	user   string   // user name
	groups []string // groups of the user
	limit  int64    // maximum size of the response in bytes; 0 means MaxDiscovery
}

// get requests a document from the server over the connections for proxied requests, and returns
// the uncompressed body. It returns no error for a response with an error status.
func (r *remote) get(ctx context.Context, path string, options documentRequest) (*http.Response, []byte, error) {
	target, err := r.locate(ctx, path)
	if err != nil {
		return nil, nil, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, target.String(), nil)
	if err != nil {
		return nil, nil, err
	}
	req.Header = http.Header{
		"Accept-Encoding":   {"gzip"},
		"User-Agent":        {""}, // sends no User-Agent instead of Go's default
		"X-Forwarded-Host":  {target.Host},
		"X-Forwarded-Proto": {target.Scheme},
		"X-Forwarded-Uri":   {path},
	}
	if options.accept != "" {
		req.Header.Set("Accept", options.accept)
	}
	if options.etag != "" {
		req.Header.Set("If-None-Match", options.etag)
	}
	transport.SetAuthProxyHeaders(req, options.user, "", options.groups, nil)
	resp, err := r.connections.RoundTrip(req)
	if err != nil {
		return nil, nil, err
	}
	defer resp.Body.Close()
	body := io.Reader(resp.Body)
	if resp.Header.Get("Content-Encoding") == "gzip" {
		if body, err = gzip.NewReader(resp.Body); err != nil {
			return nil, nil, err
		}
	}
	limit := cmp.Or(options.limit, MaxDiscovery)
	data, err := io.ReadAll(io.LimitReader(body, limit+1))
	if err == nil && int64(len(data)) > limit {
		err = fmt.Errorf("%s is longer than %d bytes", path, limit)
	}
	return resp, data, err
}

// decode calls unmarshal with a document if it has at most maxValues JSON values. Only one document
// is decoded at a time. path is for the error.
func (a *Aggregator) decode(path string, data []byte, maxValues int, unmarshal func([]byte) error) error {
	if n := bytes.Count(data, []byte{','}); n > maxValues { // each value but the first follows a comma
		return fmt.Errorf("%s has %d values; at most %d are read", path, n, maxValues)
	}
	a.decoding.Lock()
	defer a.decoding.Unlock()
	return unmarshal(data)
}

// unmarshalInto returns a function that decodes JSON into v.
func unmarshalInto(v any) func([]byte) error {
	return func(data []byte) error { return json.Unmarshal(data, v) }
}

// readAggregated reads the resources from the server's aggregated discovery document. It returns
// nil without an error if the server has no such document. A group version that the document omits
// has no resources. It returns previous if the document has not changed.
func (r *remote) readAggregated(ctx context.Context, previous *description) (*description, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	root := "/apis"
	if r.spec.Group == "" {
		root = "/api"
	}

	// 1. Request the document.
	resp, body, err := r.get(ctx, root, documentRequest{
		accept: aggregatedForms,
		etag:   previous.etag,
		user:   checkUser,
		groups: []string{api.GroupMasters},
	})
	if err != nil {
		return nil, err
	}

	// 2. Decide by the response whether there is a new document.
	if resp.StatusCode == http.StatusNotModified && previous.etag != "" {
		return previous, nil
	}
	if resp.StatusCode == http.StatusServiceUnavailable {
		return nil, fmt.Errorf("%s: %s", root, resp.Status)
	}
	_, params, err := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	if resp.StatusCode != http.StatusOK || err != nil || params["as"] != "APIGroupDiscoveryList" {
		return nil, nil
	}

	// 3. Decode it, and take the resources of the group version.
	var list apidiscoveryv2.APIGroupDiscoveryList
	if err := r.aggregator.decode(root, body, maxValues, unmarshalInto(&list)); err != nil {
		return nil, err
	}
	out := &description{etag: resp.Header.Get("ETag")}
	for i := range list.Items {
		group := &list.Items[i]
		if group.Name != r.spec.Group {
			continue
		}
		for j := range group.Versions {
			if version := &group.Versions[j]; version.Version == r.spec.Version {
				setResponseKinds(version.Resources)
				out.resources = flatten(version.Resources)
				out.aggregated = version.Resources
			}
		}
	}
	return out, nil
}

// setResponseKinds replaces missing response kinds by empty ones, because clients do not expect nil.
func setResponseKinds(resources []apidiscoveryv2.APIResourceDiscovery) {
	for i := range resources {
		resource := &resources[i]
		if resource.ResponseKind == nil {
			resource.ResponseKind = &metav1.GroupVersionKind{}
		}
		for j := range resource.Subresources {
			if s := &resource.Subresources[j]; s.ResponseKind == nil {
				s.ResponseKind = &metav1.GroupVersionKind{}
			}
		}
	}
}

// flatten converts resources of an aggregated discovery document to the form of a resource list,
// where a subresource is a separate element: "pods/status".
func flatten(resources []apidiscoveryv2.APIResourceDiscovery) []metav1.APIResource {
	var out []metav1.APIResource
	for i := range resources {
		resource := &resources[i]
		flat := metav1.APIResource{
			Name:         resource.Resource,
			SingularName: resource.SingularResource,
			Namespaced:   resource.Scope == apidiscoveryv2.ScopeNamespace,
			Verbs:        resource.Verbs,
			ShortNames:   resource.ShortNames,
			Categories:   resource.Categories,
		}
		flat.Group = resource.ResponseKind.Group
		flat.Version = resource.ResponseKind.Version
		flat.Kind = resource.ResponseKind.Kind
		out = append(out, flat)
		for j := range resource.Subresources {
			subresource := &resource.Subresources[j]
			flatSub := metav1.APIResource{
				Name:       resource.Resource + "/" + subresource.Subresource,
				Namespaced: flat.Namespaced,
				Verbs:      subresource.Verbs,
			}
			flatSub.Group = subresource.ResponseKind.Group
			flatSub.Version = subresource.ResponseKind.Version
			flatSub.Kind = subresource.ResponseKind.Kind
			out = append(out, flatSub)
		}
	}
	return out
}

// readList reads the resources from the server's resource list of the group version.
func (r *remote) readList(ctx context.Context) (*description, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	resp, body, err := r.get(ctx, r.path(), documentRequest{accept: api.MediaJSON, user: checkUser})
	if err != nil {
		return nil, err
	}
	var list metav1.APIResourceList
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s: %s", r.path(), resp.Status)
	}
	if err := r.aggregator.decode(r.path(), body, maxValues, unmarshalInto(&list)); err != nil {
		return nil, err
	}
	return &description{resources: list.APIResources}, nil
}
