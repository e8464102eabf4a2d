package discovery_test

import (
	"encoding/json"
	"net/http"
	"reflect"
	"slices"
	"testing"

	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"sigs.k8s.io/yaml"
)

const (
	asV2      = ";g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
	asV2beta1 = ";g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList"
)

// TestAcceptDeterminesAggregatedForm checks the media type of the response for values of Accept.
func TestAcceptDeterminesAggregatedForm(t *testing.T) {
	_, handler := serve(t)
	for accept, want := range map[string]string{ // wanted content type; empty for 406
		"": "application/json",
		"application/json" + asV2 + ",application/json" + asV2beta1 + ",application/json": "application/json" + asV2,
		"application/json" + asV2beta1:                                                   "",
		"application/json;as=APIGroupDiscoveryList;v=v2;g=apidiscovery.k8s.io":           "application/json" + asV2,
		"application/json;q=0.5" + asV2 + ",application/yaml" + asV2:                     "application/yaml" + asV2,
		"application/json,application/json" + asV2:                                       "application/json",
		"application/json;g=apidiscovery.k8s.io;v=v9;as=APIGroupDiscoveryList,text/html": "",
		"application/json;g=other;v=v2;as=APIGroupDiscoveryList,application/json":        "application/json",
		"application/vnd.kubernetes.protobuf" + asV2:                                     "application/vnd.kubernetes.protobuf" + asV2,
		"*/*" + asV2: "application/json" + asV2,
		"*/*":        "application/json",
	} {
		responseRecorder := get(handler, "/apis", "Accept", accept)
		if want == "" {
			if responseRecorder.Code != http.StatusNotAcceptable {
				t.Errorf("%q: got status %d, want %v", accept, responseRecorder.Code, http.StatusNotAcceptable)
			}
			continue
		}
		if got := responseRecorder.Header().Get("Content-Type"); got != want || responseRecorder.Code != http.StatusOK {
			t.Errorf("%q: got %d %q, want %q", accept, responseRecorder.Code, got, want)
		}
	}
	if responseRecorder := get(handler, "/apis/", "Accept", "application/json"+asV2); responseRecorder.Code != http.StatusNotAcceptable {
		t.Errorf("/apis/ has no aggregated form: got status %d, want %d", responseRecorder.Code, http.StatusNotAcceptable)
	}
}

// TestAggregatedFormsHaveSameContent checks the aggregated discovery document in all encodings.
func TestAggregatedFormsHaveSameContent(t *testing.T) {
	_, handler := serve(t)
	var list apidiscoveryv2.APIGroupDiscoveryList
	w := get(handler, "/apis", "Accept", "application/json"+asV2)
	if err := json.Unmarshal(w.Body.Bytes(), &list); err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, g := range list.Items {
		names = append(names, g.Name)
	}
	want := []string{}
	for _, g := range groups[1:] {
		want = append(want, g.Name)
	}
	if !slices.Equal(names, want) {
		t.Errorf("got groups %v, want %v", names, want)
	}
	deployments := list.Items[1].Versions[0].Resources[2]
	isDeployment := deployments.Resource == "deployments" && deployments.ResponseKind.Kind == "Deployment" &&
		deployments.Scope == "Namespaced"
	hasScale := len(deployments.Subresources) == 2 && deployments.Subresources[0].ResponseKind.Group == "autoscaling"
	if !isDeployment || !hasScale {
		t.Errorf("got deployments %+v, want the namespaced kind Deployment with scale and status", deployments)
	}

	// Other encodings have the same content.
	var fromYAML, fromProtobuf apidiscoveryv2.APIGroupDiscoveryList
	if err := yaml.Unmarshal(get(handler, "/apis", "Accept", "application/yaml"+asV2).Body.Bytes(), &fromYAML); err != nil {
		t.Fatal(err)
	}
	scheme := runtime.NewScheme()
	if err := apidiscoveryv2.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	body := get(handler, "/apis", "Accept", "application/vnd.kubernetes.protobuf"+asV2).Body.Bytes()
	if _, _, err := protobuf.NewSerializer(scheme, scheme).Decode(body, nil, &fromProtobuf); err != nil {
		t.Fatal(err)
	}
	fromProtobuf.TypeMeta = list.TypeMeta
	if !reflect.DeepEqual(fromYAML, list) {
		t.Errorf("YAML: got %v, want the content of JSON, %v", fromYAML, list)
	}
	if !reflect.DeepEqual(fromProtobuf, list) {
		t.Errorf("protobuf: got %v, want the content of JSON, %v", fromProtobuf, list)
	}
	if got := get(handler, "/apis", "Accept", "application/json"+asV2beta1); got.Code != http.StatusNotAcceptable {
		t.Errorf("older form: got %d, want %v", got.Code, http.StatusNotAcceptable)
	}
}

// TestKnownETagSavesBody checks that a known ETag saves the body until a group changes.
func TestKnownETagSavesBody(t *testing.T) {
	documents, handler := serve(t)
	first := get(handler, "/apis", "Accept", "application/json"+asV2)
	tag := first.Header().Get("ETag")
	if tag == "" || first.Header().Get("Vary") != "Accept" || first.Header().Get("Cache-Control") != "public" {
		t.Fatalf("got headers %v, want an ETag, Vary: Accept and Cache-Control: public", first.Header())
	}
	for _, match := range []string{tag, `"other", ` + tag, "W/" + tag, "*"} {
		again := get(handler, "/apis", "Accept", "application/json"+asV2, "If-None-Match", match)
		if again.Code != http.StatusNotModified || again.Body.Len() != 0 || again.Header().Get("ETag") != tag ||
			again.Header().Get("Cache-Control") != "public" {
			t.Errorf("If-None-Match %s: got %d with %d bytes, want %v without a body", match, again.Code, again.Body.Len(), http.StatusNotModified)
		}
	}
	documents.Replace(widgets())
	changed := get(handler, "/apis", "Accept", "application/json"+asV2, "If-None-Match", tag)
	if changed.Code != http.StatusOK || changed.Header().Get("ETag") == tag {
		t.Errorf("after a change: got %d %s, want %v", changed.Code, changed.Header().Get("ETag"), http.StatusOK)
	}
}
