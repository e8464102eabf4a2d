package builtin

import (
	"slices"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"binnacle/libs/features"
	"binnacle/libs/version"
	"binnacle/services/apiserver/internal/api/kinds/admissionregistration"
	"binnacle/services/apiserver/internal/api/kinds/apiextensions"
	"binnacle/services/apiserver/internal/api/kinds/apiregistration"
	"binnacle/services/apiserver/internal/api/kinds/apiserverinternal"
	"binnacle/services/apiserver/internal/api/kinds/apps"
	"binnacle/services/apiserver/internal/api/kinds/authentication"
	"binnacle/services/apiserver/internal/api/kinds/authorization"
	"binnacle/services/apiserver/internal/api/kinds/autoscaling"
	"binnacle/services/apiserver/internal/api/kinds/batch"
	"binnacle/services/apiserver/internal/api/kinds/certificates"
	"binnacle/services/apiserver/internal/api/kinds/coordination"
	"binnacle/services/apiserver/internal/api/kinds/core"
	"binnacle/services/apiserver/internal/api/kinds/discoverygroup"
	"binnacle/services/apiserver/internal/api/kinds/events"
	"binnacle/services/apiserver/internal/api/kinds/flowcontrolgroup"
	"binnacle/services/apiserver/internal/api/kinds/networking"
	"binnacle/services/apiserver/internal/api/kinds/nodegroup"
	"binnacle/services/apiserver/internal/api/kinds/policygroup"
	"binnacle/services/apiserver/internal/api/kinds/rbacgroup"
	"binnacle/services/apiserver/internal/api/kinds/resource"
	"binnacle/services/apiserver/internal/api/kinds/scheduling"
	"binnacle/services/apiserver/internal/api/kinds/storagegroup"
	"binnacle/services/apiserver/internal/api/kinds/storagemigration"
	"binnacle/services/apiserver/internal/registry"
)

// member is a group with the function that declares its kinds.
type member struct {
	registry.Group
	kinds func() []*registry.Kind
}

// withSettings binds settings to a group whose kinds depend on them.
func withSettings(s registry.Settings, kinds func(registry.Settings) []*registry.Kind) func() []*registry.Kind {
	return func() []*registry.Kind { return kinds(s) }
}

// groupMembers returns the groups in discovery order. The group of API services precedes every
// other named group, regardless of the priorities of API services.
func groupMembers(settings registry.Settings) []member {
	newMember := func(name string, priority int, kinds func() []*registry.Kind, versions ...string) member {
		return member{registry.Group{Name: name, Priority: priority, Versions: versions}, kinds}
	}
	return []member{
		newMember("apiregistration.k8s.io", 20000, apiregistration.Kinds, "v1"),
		newMember("", 18000, withSettings(settings, core.Kinds), "v1"),
		newMember("apps", 17800, withSettings(settings, apps.Kinds), "v1"),
		newMember("events.k8s.io", 17750, events.Kinds, "v1"),
		newMember("authentication.k8s.io", 17700, authentication.Kinds, "v1", "v1beta1"),
		newMember("authorization.k8s.io", 17600, authorization.Kinds, "v1"),
		newMember("autoscaling", 17500, withSettings(settings, autoscaling.Kinds), "v2", "v1"),
		newMember("batch", 17400, withSettings(settings, batch.Kinds), "v1"),
		newMember("certificates.k8s.io", 17300, certificates.Kinds, "v1", "v1beta1", "v1alpha1"),
		newMember("networking.k8s.io", 17200, networking.Kinds, "v1", "v1beta1"),
		newMember("policy", 17100, policygroup.Kinds, "v1"),
		newMember("rbac.authorization.k8s.io", 17000, rbacgroup.Kinds, "v1"),
		newMember("storage.k8s.io", 16800, withSettings(settings, storagegroup.Kinds), "v1", "v1beta1", "v1alpha1"),
		newMember("admissionregistration.k8s.io", 16700, admissionregistration.Kinds, "v1", "v1beta1", "v1alpha1"),
		newMember("apiextensions.k8s.io", 16700, withSettings(settings, apiextensions.Kinds), "v1"),
		newMember("scheduling.k8s.io", 16600, scheduling.Kinds, "v1"),
		newMember("coordination.k8s.io", 16500, withSettings(settings, coordination.Kinds), "v1", "v1beta1", "v1alpha2"),
		newMember("node.k8s.io", 16300, nodegroup.Kinds, "v1"),
		newMember("discovery.k8s.io", 16200, withSettings(settings, discoverygroup.Kinds), "v1"),
		newMember("resource.k8s.io", 16200, withSettings(settings, resource.Kinds), "v1beta2", "v1beta1", "v1alpha3"),
		newMember("flowcontrol.apiserver.k8s.io", 16100, flowcontrolgroup.Kinds, "v1", "v1beta3"),
		newMember("internal.apiserver.k8s.io", 16000, apiserverinternal.Kinds, "v1alpha1"),
		newMember("storagemigration.k8s.io", 15800, storagemigration.Kinds, "v1alpha1"),
	}
}

// DefaultCatalog returns the built-in kinds that are served by default.
func DefaultCatalog() (*registry.Catalog, error) {
	all, err := AllKinds(registry.Settings{})
	if err != nil {
		return nil, err
	}
	var noRuntimeConfig RuntimeConfig
	everyGateEnabled := func(*registry.Kind) bool { return true }
	serves, err := Emulation{Minor: version.MinorNumber}.Serves(all, noRuntimeConfig, everyGateEnabled)
	if err != nil {
		return nil, err
	}
	return all.Filter(serves)
}

// AllKinds returns the catalog of all built-in kinds, including those that are off by default.
// Groups are in discovery order. Kinds are in the order of their groups, with the core group first.
func AllKinds(settings registry.Settings) (*registry.Catalog, error) {
	all := groupMembers(settings)
	groups := make([]registry.Group, len(all))
	for i, m := range all {
		groups[i] = m.Group
	}
	coreIndex := slices.IndexFunc(all, func(m member) bool { return m.Name == "" })
	kinds := all[coreIndex].kinds()
	for i, m := range all {
		if i != coreIndex {
			kinds = append(kinds, m.kinds()...)
		}
	}
	setDeprecations(kinds)
	if settings.Enabled(features.StrictIPCIDRValidation) {
		for _, k := range kinds {
			requireCanonicalValues(k)
		}
	}
	if settings.StoreJSON {
		for _, k := range kinds {
			k.Stored.JSON = true
		}
	}
	return registry.NewCatalog(groups, kinds)
}

// VersionPriority returns the versionPriority of a built-in group version's APIService.
func VersionPriority(groupVersion schema.GroupVersion) int {
	switch groupVersion {
	case schema.GroupVersion{Version: "v1"}:
		return 1
	case schema.GroupVersion{Group: "resource.k8s.io", Version: "v1beta2"}:
		return 15
	case schema.GroupVersion{Group: "certificates.k8s.io", Version: "v1alpha1"},
		schema.GroupVersion{Group: "storage.k8s.io", Version: "v1alpha1"},
		schema.GroupVersion{Group: "resource.k8s.io", Version: "v1alpha3"}:
		return 1
	case schema.GroupVersion{Group: "flowcontrol.apiserver.k8s.io", Version: "v1beta3"}:
		return 18
	case schema.GroupVersion{Group: "admissionregistration.k8s.io", Version: "v1beta1"},
		schema.GroupVersion{Group: "coordination.k8s.io", Version: "v1alpha2"}:
		return 12
	case schema.GroupVersion{Group: "coordination.k8s.io", Version: "v1beta1"}:
		return 13
	case schema.GroupVersion{Group: "autoscaling", Version: "v2"}:
		return 30
	case schema.GroupVersion{Group: "flowcontrol.apiserver.k8s.io", Version: "v1"}:
		return 21
	default:
		if isOffByDefault(groupVersion) {
			return 9
		}
		return 15
	}
}
