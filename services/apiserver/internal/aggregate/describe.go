package aggregate

import (
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

// description is what a server serves of its group version.
type description struct {
	resources []metav1.APIResource
	// stale tells that it was not found out.
	stale bool
	// tag is that of the aggregated document.
	tag string
}

// maxDocument is the largest document that is read, in bytes.
const maxDocument = 16 << 20

const aggregatedForms = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList," +
	"application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList"

// describe finds out what the server serves; changed tells whether it is something
// else than before.
func (r *remote) describe(ctx context.Context) (changed bool) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	before := r.known.Load()
	next, err := r.aggregated(ctx, before)
	if err != nil || next == nil {
		next, err = r.listed(ctx)
	}
	if err != nil {
		r.all.Logger.Debug("what an extension server serves could not be read", "apiservice", r.name, "error", err)
		next = &description{resources: before.resources, stale: true}
	}
	r.known.Store(next)
	return next.stale != before.stale || !reflect.DeepEqual(next.resources, before.resources)
}

// get asks the server for a document.
func (r *remote) get(ctx context.Context, path, accept, tag string) (*http.Response, []byte, error) {
	at, err := r.locate(ctx, path)
	if err != nil {
		return nil, nil, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, at.String(), nil)
	if err != nil {
		return nil, nil, err
	}
	req.Header.Set("Accept", accept)
	if tag != "" {
		req.Header.Set("If-None-Match", tag)
	}
	transport.SetAuthProxyHeaders(req, asker, "", []string{api.GroupMasters}, nil)
	resp, err := r.carry.RoundTrip(req)
	if err != nil {
		return nil, nil, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxDocument+1))
	if err == nil && len(body) > maxDocument {
		err = fmt.Errorf("%s is longer than %d bytes", path, maxDocument)
	}
	return resp, body, err
}

// aggregated reads the document of all groups; nil when the server has none.
func (r *remote) aggregated(ctx context.Context, before *description) (*description, error) {
	root := "/apis"
	if r.spec.Group == "" {
		root = "/api"
	}
	resp, body, err := r.get(ctx, root, aggregatedForms, before.tag)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode == http.StatusNotModified && before.tag != "" {
		return before, nil
	}
	_, params, err := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	if resp.StatusCode != http.StatusOK || err != nil || params["as"] != "APIGroupDiscoveryList" {
		return nil, nil
	}
	var list apidiscoveryv2.APIGroupDiscoveryList
	if err := json.Unmarshal(body, &list); err != nil {
		return nil, err
	}
	for i := range list.Items {
		if list.Items[i].Name != r.spec.Group {
			continue
		}
		for j := range list.Items[i].Versions {
			if v := &list.Items[i].Versions[j]; v.Version == r.spec.Version {
				return &description{resources: flat(v.Resources), tag: resp.Header.Get("ETag"), stale: v.Freshness == apidiscoveryv2.DiscoveryFreshnessStale}, nil
			}
		}
	}
	return nil, fmt.Errorf("%s/%s is not in %s", r.spec.Group, r.spec.Version, root)
}

// flat lists resources and sub-resources beside each other.
func flat(in []apidiscoveryv2.APIResourceDiscovery) []metav1.APIResource {
	var out []metav1.APIResource
	for i := range in {
		d := &in[i]
		r := metav1.APIResource{
			Name: d.Resource, SingularName: d.SingularResource, Namespaced: d.Scope == apidiscoveryv2.ScopeNamespace,
			Verbs: d.Verbs, ShortNames: d.ShortNames, Categories: d.Categories,
		}
		if k := d.ResponseKind; k != nil {
			r.Group, r.Version, r.Kind = k.Group, k.Version, k.Kind
		}
		out = append(out, r)
		for j := range d.Subresources {
			s := &d.Subresources[j]
			sub := metav1.APIResource{Name: d.Resource + "/" + s.Subresource, Namespaced: r.Namespaced, Verbs: s.Verbs}
			if k := s.ResponseKind; k != nil {
				sub.Group, sub.Version, sub.Kind = k.Group, k.Version, k.Kind
			}
			out = append(out, sub)
		}
	}
	return out
}

// listed reads the list of the group version alone.
func (r *remote) listed(ctx context.Context) (*description, error) {
	resp, body, err := r.get(ctx, r.path(), api.MediaJSON, "")
	if err != nil {
		return nil, err
	}
	var list metav1.APIResourceList
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s: %s", r.path(), resp.Status)
	}
	if err := json.Unmarshal(body, &list); err != nil {
		return nil, err
	}
	return &description{resources: list.APIResources}, nil
}
