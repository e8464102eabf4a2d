package resources_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"binnacle/services/controllers/internal/resources"
)

// TestClientReadsAggregatedDiscovery checks the requests of a client and its results by response.
func TestClientReadsAggregatedDiscovery(t *testing.T) {
	const media = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
	list := func(name string) any {
		return apidiscoveryv2.APIGroupDiscoveryList{
			TypeMeta: metav1.TypeMeta{APIVersion: "apidiscovery.k8s.io/v2", Kind: "APIGroupDiscoveryList"},
			Items:    []apidiscoveryv2.APIGroupDiscovery{group(name, version("v1", resource("widgets", "Widget")))},
		}
	}
	type response struct {
		code int
		body any
	}
	failure := func(code int32) response {
		return response{int(code), metav1.Status{
			TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusFailure,
			Code: code, Message: "broken",
		}}
	}
	core, named := response{200, list("")}, response{200, list("example.com")}
	legacy := response{200, metav1.APIGroupList{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "APIGroupList"},
	}}
	for _, test := range []struct {
		name      string
		core, all response
		want      []string
		err       string
	}{
		{name: "all groups", core: core, all: named, want: []string{"v1 widgets", "example.com/v1 widgets"}},
		{name: "without the core group", core: failure(404), all: named, want: []string{"example.com/v1 widgets"}},
		{name: "core group fails", core: failure(500), all: named, err: "broken"},
		{name: "other groups fail", core: core, all: failure(404), err: "broken"},
		{name: "another format", core: core, all: legacy, err: "not aggregated"},
	} {
		t.Run(test.name, func(t *testing.T) {
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if got := r.Header.Get("Accept"); got != media {
					t.Errorf("%s accepts %s, want %v", r.URL.Path, got, media)
				}
				resp, ok := map[string]response{"/api": test.core, "/apis": test.all}[r.URL.Path]
				if !ok {
					t.Errorf("got an unexpected request for %s", r.URL.Path)
				}
				w.Header().Set("Content-Type", media)
				w.WriteHeader(resp.code)
				_ = json.NewEncoder(w).Encode(resp.body)
			}))
			t.Cleanup(server.Close)
			client, err := resources.NewClient(&rest.Config{Host: server.URL, QPS: -1})
			if err != nil {
				t.Fatal(err)
			}
			table, err := resources.NewCache(client).Get(t.Context(), 0)
			if test.err != "" {
				if err == nil || !strings.Contains(err.Error(), test.err) {
					t.Errorf("Get: got error %v, want one that contains %q", err, test.err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if got := names(table.Preferred); !slices.Equal(got, test.want) {
				t.Errorf("got preferred resources %q, want %q", got, test.want)
			}
		})
	}
}
