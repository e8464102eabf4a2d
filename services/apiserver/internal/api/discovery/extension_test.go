package discovery_test

import (
	"encoding/json"
	"net/http/httptest"
	"reflect"
	"testing"

	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"binnacle/services/apiserver/internal/api/discovery"
)

// TestAggregatedFormOfExtensionServerIsUnchanged checks that the aggregated form has the resources
// of an extension server as the server describes them. The test uses fields that the list of a
// group version cannot express: no scope, and accepted types.
func TestAggregatedFormOfExtensionServerIsUnchanged(t *testing.T) {
	documents, handler := serve(t)
	want := []apidiscoveryv2.APIResourceDiscovery{{
		Resource:     "jobs",
		ResponseKind: &metav1.GroupVersionKind{},
		Verbs:        []string{"create"},
		Subresources: []apidiscoveryv2.APISubresourceDiscovery{{
			Subresource:   "run",
			ResponseKind:  &metav1.GroupVersionKind{Kind: "Run"},
			Verbs:         []string{"create"},
			AcceptedTypes: []metav1.GroupVersionKind{{Group: "a.example.com", Version: "v1", Kind: "Input"}},
		}},
	}}
	documents.Replace([]discovery.GroupVersion{{
		Group: "a.example.com", Version: "v1", GroupPriority: 1000, VersionPriority: 15, Aggregated: want,
	}})
	r := httptest.NewRequest("GET", "/apis", nil)
	r.Header.Set("Accept", "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList")
	w := httptest.NewRecorder()
	handler.ServeHTTP(w, r)
	var list apidiscoveryv2.APIGroupDiscoveryList
	if err := json.Unmarshal(w.Body.Bytes(), &list); err != nil {
		t.Fatal(err)
	}
	for _, discovered := range list.Items {
		if discovered.Name != "a.example.com" {
			continue
		}
		if got := discovered.Versions[0].Resources; !reflect.DeepEqual(got, want) {
			t.Errorf("got %+v\nwant %+v", got, want)
		}
		return
	}
	t.Errorf("got groups %+v, want a.example.com among them", list.Items)
}
