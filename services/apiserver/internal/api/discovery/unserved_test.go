package discovery_test

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"testing"

	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"binnacle/services/apiserver/internal/api/discovery"
)

// versionsOf returns the versions that /apis/NAME lists.
func versionsOf(t *testing.T, h http.Handler, name string) string {
	t.Helper()
	responseRecorder := get(h, "/apis/"+name)
	if responseRecorder.Code != http.StatusOK {
		return http.StatusText(responseRecorder.Code)
	}
	var apiGroup metav1.APIGroup
	if err := json.Unmarshal(responseRecorder.Body.Bytes(), &apiGroup); err != nil {
		t.Fatal(err)
	}
	var versions []string
	for _, v := range apiGroup.Versions {
		versions = append(versions, v.Version)
	}
	return strings.Join(versions, " ")
}

// TestUnservedVersionsAreListedWithoutResources checks that a version that nothing serves is in the
// lists of versions and groups, but has no resource list and no entry in the aggregated form.
func TestUnservedVersionsAreListedWithoutResources(t *testing.T) {
	documents, handler := serve(t, discovery.WithVersionPriority(func(schema.GroupVersion) int { return 15 }))
	documents.Replace(append(widgets(),
		discovery.GroupVersion{Group: "example.com", Version: "v9", GroupPriority: 30000, VersionPriority: 200, Unserved: true},
		discovery.GroupVersion{Group: "alone.example.com", Version: "v1", GroupPriority: 5, VersionPriority: 5, Unserved: true},
		discovery.GroupVersion{Group: "apps", Version: "v7", GroupPriority: 1, VersionPriority: 20, Unserved: true},
	))
	for name, want := range map[string]string{"example.com": "v9 v1 v1beta1", "alone.example.com": "v1", "apps": "v7 v1 v2alpha1"} {
		if got := versionsOf(t, handler, name); got != want {
			t.Errorf("%s: got versions %q, want %q", name, got, want)
		}
	}
	var list metav1.APIGroupList
	if err := json.Unmarshal(get(handler, "/apis").Body.Bytes(), &list); err != nil {
		t.Fatal(err)
	}
	if first, last := list.Groups[0].Name, list.Groups[len(list.Groups)-1].Name; first != "example.com" ||
		last != "alone.example.com" {
		t.Errorf("got first group %s, last group %s, want %q, %q", first, last, "example.com", "alone.example.com")
	}
	for _, path := range []string{"/apis/example.com/v9", "/apis/alone.example.com/v1", "/apis/apps/v7"} {
		if w := get(handler, path); w.Code != http.StatusNotFound {
			t.Errorf("%s: got %d %s, want %v", path, w.Code, w.Body, http.StatusNotFound)
		}
	}
	var all apidiscoveryv2.APIGroupDiscoveryList
	if err := json.Unmarshal(get(handler, "/apis", "Accept", "application/json"+asV2).Body.Bytes(), &all); err != nil {
		t.Fatal(err)
	}
	if first := all.Items[0].Name; first != "first.example.com" {
		t.Errorf("aggregated form: got first group %s, want %q", first, "first.example.com")
	}
	for _, g := range all.Items {
		for _, v := range g.Versions {
			if gv := v.Version + "." + g.Name; slices.Contains([]string{"v9.example.com", "v1.alone.example.com", "v7.apps"}, gv) {
				t.Errorf("%s: got an entry in the aggregated form, want none", gv)
			}
		}
	}
	documents.Replace(widgets())
	if got := versionsOf(t, handler, "alone.example.com"); got != http.StatusText(http.StatusNotFound) {
		t.Errorf("removed group: got versions %q, want Not Found", got)
	}
}

// TestIndentedDocumentsEndWithoutNewline checks that only a document on one line ends with a newline.
func TestIndentedDocumentsEndWithoutNewline(t *testing.T) {
	_, h := serve(t)
	for query, want := range map[string]string{"?pretty=true": "}", "": "}\n"} {
		if body := get(h, "/apis"+query).Body.String(); !strings.HasSuffix(body, want) {
			t.Errorf("%q: got end %q, want %q", query, body[len(body)-3:], want)
		}
	}
}
