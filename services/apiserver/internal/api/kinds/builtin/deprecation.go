package builtin

import (
	"fmt"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"binnacle/libs/version"
	"binnacle/services/apiserver/internal/registry"
)

// setDeprecations sets the deprecation warning and the removal of each kind from the
// lifecycle of its type. The version of the server decides, not the emulated
// version, as in Kubernetes.
func setDeprecations(kinds []*registry.Kind) {
	types := Documented()
	for _, kind := range kinds {
		obj, err := types.New(kind.GroupVersion().WithKind(kind.Kind))
		if err != nil {
			continue
		}
		o, ok := obj.(interface {
			APILifecycleDeprecated() (major, minor int)
		})
		if !ok {
			continue
		}
		major, minor := o.APILifecycleDeprecated()
		if minor == 0 || minor > version.MinorNumber {
			continue
		}
		kind.Presentation.Deprecated = fmt.Sprintf("%s %s is deprecated in v%d.%d+", kind.GroupVersion(), kind.Kind, major, minor)
		if _, removed := lifecycle(types, kind); removed != 0 {
			kind.Presentation.RemovedRelease = fmt.Sprintf("%d.%d", major, removed)
			kind.Presentation.Deprecated += fmt.Sprintf(", unavailable in v%d.%d+", major, removed)
		}
		if r, ok := obj.(interface {
			APILifecycleReplacement() schema.GroupVersionKind
		}); ok {
			use := r.APILifecycleReplacement()
			kind.Presentation.Deprecated += fmt.Sprintf("; use %s %s", use.GroupVersion(), use.Kind)
		}
	}
}
