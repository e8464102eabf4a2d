package resources_test

import (
	"context"
	"errors"
	"slices"
	"testing"

	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"binnacle/services/controllers/internal/resources"
)

// served is a resources.Discovery.
type served []apidiscoveryv2.APIGroupDiscovery

func (s *served) Groups(context.Context) ([]apidiscoveryv2.APIGroupDiscovery, error) { return *s, nil }

func group(name string, versions ...apidiscoveryv2.APIVersionDiscovery) apidiscoveryv2.APIGroupDiscovery {
	return apidiscoveryv2.APIGroupDiscovery{ObjectMeta: metav1.ObjectMeta{Name: name}, Versions: versions}
}

func version(name string, list ...apidiscoveryv2.APIResourceDiscovery) apidiscoveryv2.APIVersionDiscovery {
	return apidiscoveryv2.APIVersionDiscovery{
		Version: name, Resources: list, Freshness: apidiscoveryv2.DiscoveryFreshnessCurrent,
	}
}

func resource(name, kind string) apidiscoveryv2.APIResourceDiscovery {
	return apidiscoveryv2.APIResourceDiscovery{
		Resource: name, ResponseKind: &metav1.GroupVersionKind{Kind: kind},
		Scope: apidiscoveryv2.ScopeCluster, Verbs: []string{"get", "list", "delete"},
	}
}

// names returns resources in the form "version resource".
func names(list []*resources.Resource) (out []string) {
	for _, served := range list {
		out = append(out, served.APIVersion()+" "+served.Resource)
	}
	return out
}

// TestTablePrefersOneVersionOfEachResource checks that each resource appears once, in the preferred
// version that has it.
func TestTablePrefersOneVersionOfEachResource(t *testing.T) {
	pods := resource("pods", "Pod")
	pods.Scope = apidiscoveryv2.ScopeNamespace
	parent := apidiscoveryv2.APIResourceDiscovery{ // of subresources
		Resource: "parents", ResponseKind: &metav1.GroupVersionKind{},
	}
	discovery := served{
		group("", version("v1", pods, parent)),
		group("example.com", version("v2", resource("widgets", "Widget")),
			version("v1", resource("widgets", "Widget"), resource("olds", "Old"))),
	}
	cache := resources.NewCache(&discovery)
	table, err := cache.Get(t.Context(), 0)
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"v1 pods", "example.com/v2 widgets", "example.com/v1 olds"}
	if got := names(table.Preferred); !slices.Equal(got, want) {
		t.Errorf("preferred %q, want %q", got, want)
	}
	if pod, err := table.ByKind("v1", "Pod"); err != nil || !pod.Namespaced {
		t.Errorf("ByKind(v1, Pod) = %+v, %v; want a namespaced resource", pod, err)
	}
	old, err := table.ByKind("example.com/v1", "Widget")
	if err != nil || old.Version != "v1" || !old.Can("list", "delete") || old.Can("watch") || old.Namespaced {
		t.Errorf("ByKind() = %+v, %v, want v1 in the cluster scope that can list and delete, not watch", old, err)
	}
	if _, err := table.ByKind("example.com/v1", "Gadget"); err == nil {
		t.Error("ByKind() of an unknown kind = nil, want an error")
	}
	again, err := cache.Get(t.Context(), 0)
	if err != nil || again == table {
		t.Fatalf("Get(0) = %p again, %v; want no error, other than %v", again, err, table)
	}
	if r, err := again.ByKind("example.com/v1", "Widget"); r != old {
		t.Errorf("ByKind after another Get: got %v, want the same resource %v", err, old)
	}
}

// TestInvalidGroupVersionIsAPartialFailure checks that an invalid group version does not hide other
// resources.
func TestInvalidGroupVersionIsAPartialFailure(t *testing.T) {
	discovery := served{
		group("", version("v1", resource("pods", "Pod"))),
		group("a/b", version("c", resource("widgets", "Widget"))),
	}
	table, err := resources.NewCache(&discovery).Get(t.Context(), 0)
	if err != nil {
		t.Fatal(err)
	}
	if len(table.Preferred) != 1 || table.Failure == nil {
		t.Errorf("got preferred resources %v, failure %v; want one resource and a failure", table.Preferred, table.Failure)
	}
}

// TestStaleGroupVersionKeepsItsResources checks that resources of a group version whose discovery
// fails are kept, and that the failure is reported.
func TestStaleGroupVersionKeepsItsResources(t *testing.T) {
	discovery := served{
		group("", version("v1", resource("pods", "Pod"))),
		group("example.com", version("v1", resource("widgets", "Widget"))),
	}
	cache := resources.NewCache(&discovery)
	if _, err := cache.Get(t.Context(), 0); err != nil {
		t.Fatal(err)
	}
	stale := apidiscoveryv2.DiscoveryFreshnessStale
	discovery[1].Versions[0] = apidiscoveryv2.APIVersionDiscovery{Version: "v1", Freshness: stale}
	for range 2 { // resources of a stale table are kept, too
		table, err := cache.Get(t.Context(), 0)
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(names(table.Preferred), []string{"v1 pods"}) ||
			!slices.Equal(names(table.Stale), []string{"example.com/v1 widgets"}) {
			t.Errorf("preferred %q, stale %q; want [\"v1 pods\"], [\"example.com/v1 widgets\"]",
				names(table.Preferred), names(table.Stale))
		}
		if _, err := table.ByKind("example.com/v1", "Widget"); err != nil {
			t.Error(err)
		}
		const want = "unable to retrieve the complete list of server APIs: " +
			"example.com/v1: stale GroupVersion discovery: example.com/v1"
		var stale *resources.StaleError
		if !errors.As(table.Failure, &stale) || len(stale.Versions) != 1 || table.Failure.Error() != want {
			t.Errorf("failure %v, want %s", table.Failure, want)
		}
	}
}
