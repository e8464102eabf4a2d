package builtin

import (
	"fmt"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"binnacle/services/apiserver/internal/registry"
)

// deprecate sets the deprecation warnings of kinds that are deprecated in a minor version of
// Kubernetes 1, as their types say.
func deprecate(kinds []*registry.Kind, minor int) {
	types := Documented()
	for _, k := range kinds {
		obj, err := types.New(k.GroupVersion().WithKind(k.Kind))
		if err != nil {
			continue // the type is not of Kubernetes
		}
		deprecated, ok := obj.(interface {
			APILifecycleDeprecated() (major, minor int)
		})
		if !ok {
			continue
		}
		_, since := deprecated.APILifecycleDeprecated()
		if since == 0 || since > minor {
			continue
		}
		k.Shown.Deprecated = fmt.Sprintf("%s %s is deprecated in v1.%d+", k.GroupVersion(), k.Kind, since)
		if _, removed := lifecycle(types, k); removed != 0 {
			k.Shown.RemovedIn = fmt.Sprintf("1.%d", removed)
			k.Shown.Deprecated += ", unavailable in v" + k.Shown.RemovedIn + "+"
		}
		if replaced, ok := obj.(interface {
			APILifecycleReplacement() schema.GroupVersionKind
		}); ok {
			by := replaced.APILifecycleReplacement()
			k.Shown.Deprecated += fmt.Sprintf("; use %s %s", by.GroupVersion(), by.Kind)
		}
	}
}
