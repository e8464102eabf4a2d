package discovery_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"binnacle/services/apiserver/internal/api/discovery"
)

// TestSharedPartsDoNotAffectDocuments checks that documents that share parts with earlier documents
// equal documents that share nothing.
func TestSharedPartsDoNotAffectDocuments(t *testing.T) {
	random := rand.New(rand.NewPCG(20261123, 1))
	list := func(group string) []metav1.APIResource {
		name := fmt.Sprintf("widget%ds", random.IntN(3))
		return []metav1.APIResource{
			{Name: name, Kind: group + name, Namespaced: random.IntN(2) == 0, Verbs: metav1.Verbs{"get"}},
			{Name: name + "/status", Kind: "W", Verbs: metav1.Verbs{"get"}},
		}
	}
	var versions []discovery.GroupVersion
	for _, group := range []string{"a.example.com", "b.example.com", "apps", "policy"} { // some are built-in groups
		for _, v := range []string{"v1", "v2beta1"} {
			versions = append(versions,
				discovery.GroupVersion{Group: group, Version: v, GroupPriority: 1000, VersionPriority: 100, Resources: list(group)})
		}
	}
	paths := []string{"/api", "/apis", "/api/v1", "/"}
	for _, v := range versions {
		paths = append(paths, "/apis/"+v.Group, "/apis/"+v.Group+"/"+v.Version)
	}
	shared, sharedHandler := serve(t)
	for round := range 60 {
		changed := &versions[random.IntN(len(versions))]
		switch random.IntN(4) {
		case 0:
			changed.Resources = list(changed.Group)
		case 1:
			changed.Stale = !changed.Stale
		case 2:
			changed.FillResponseKinds = !changed.FillResponseKinds
		case 3:
			changed.GroupPriority = 1000 + random.IntN(20_000)
		}
		var some []discovery.GroupVersion
		for _, v := range versions {
			if random.IntN(5) > 0 {
				some = append(some, v)
			}
		}
		shared.Replace(some)
		fresh, freshHandler := serve(t)
		fresh.Replace(some)
		for _, accept := range []string{
			"application/json", "application/vnd.kubernetes.protobuf",
			"application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList",
			"application/vnd.kubernetes.protobuf;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList",
			"application/yaml;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList",
		} {
			for _, path := range paths {
				got, want := get(sharedHandler, path, "Accept", accept), get(freshHandler, path, "Accept", accept)
				if got.Code != want.Code || got.Header().Get("ETag") != want.Header().Get("ETag") ||
					got.Body.String() != want.Body.String() {
					t.Fatalf("round %d: %s as %s:\n%d %.300s\nwant as without earlier documents:\n%d %.300s",
						round, path, accept, got.Code, got.Body, want.Code, want.Body)
				}
			}
		}
	}
}

// BenchmarkReplaceOneOfManyGroups changes one group, which must not rebuild the documents of others.
func BenchmarkReplaceOneOfManyGroups(b *testing.B) {
	var versions []discovery.GroupVersion
	list := func() (all []metav1.APIResource) {
		for i := range 50 {
			all = append(all, metav1.APIResource{
				Name:  fmt.Sprintf("widget%ds", i),
				Kind:  fmt.Sprintf("Widget%d", i),
				Verbs: metav1.Verbs{"get", "list", "watch"},
			})
		}
		return all
	}
	for i := range 100 {
		versions = append(versions,
			discovery.GroupVersion{Group: fmt.Sprintf("g%d.example.com", i), Version: "v1", Resources: list()})
	}
	docs, h := serve(b)
	for b.Loop() {
		versions[7].Resources = list()
		docs.Replace(versions)
		get(h, "/apis", "Accept", "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList")
	}
}
