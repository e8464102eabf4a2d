package storageversions

import (
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"binnacle/services/apiserver/internal/registry"
	apiextensionsv1 "binnacle/services/apiserver/internal/registry/apis/apiextensions/v1"
)

// TestWaitEndsWithTheNewestDefinition checks how long a request waits if the definition changes
// meanwhile: until the record of the newest definition is written, and no longer.
func TestWaitEndsWithTheNewestDefinition(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		manager := New(nil, "a", &registry.Catalog{}, &registry.Catalog{}, time.Now)
		defined := func(versions ...string) *apiextensionsv1.CustomResourceDefinition {
			definition := &apiextensionsv1.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{Name: "foos.example.com"}}
			definition.Spec.Group, definition.Spec.Names.Plural = "example.com", "foos"
			for _, version := range versions {
				definition.Spec.Versions = append(definition.Spec.Versions, apiextensionsv1.CustomResourceDefinitionVersion{Name: version, Served: true})
			}
			return definition
		}
		foos := schema.GroupResource{Group: "example.com", Resource: "foos"}
		manager.Define([]*apiextensionsv1.CustomResourceDefinition{defined("v1")})
		blocked := make(chan bool, 1)
		go func() {
			_, isBlocked := manager.waitForCustom(t.Context(), foos)
			blocked <- isBlocked
		}()
		synctest.Wait()
		manager.Define([]*apiextensionsv1.CustomResourceDefinition{defined("v1", "v2")})
		synctest.Wait()
		if len(blocked) != 0 {
			t.Fatal("the wait ended before the newer definition was published")
		}
		manager.mu.Lock()
		record := manager.custom[foos]
		record.written = true
		record.closeAttempted()
		manager.mu.Unlock()
		start := time.Now()
		if isBlocked := <-blocked; isBlocked || time.Since(start) > 0 {
			t.Errorf("after the publication: got blocked: %t after %v, want false at once", isBlocked, time.Since(start))
		}
	})
}
