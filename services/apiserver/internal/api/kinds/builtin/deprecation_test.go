package builtin_test

import (
	"maps"
	"testing"

	"binnacle/services/apiserver/internal/api/kinds/builtin"
	"binnacle/services/apiserver/internal/registry"
)

// TestDeprecatedKindsNameRemovalRelease checks the deprecation warning of each kind that has one, and
// the release that removes it.
func TestDeprecatedKindsNameRemovalRelease(t *testing.T) {
	all, err := builtin.AllKinds(registry.Settings{})
	if err != nil {
		t.Fatal(err)
	}
	type deprecation struct{ warning, removed string }
	got := map[string]deprecation{}
	for _, k := range all.Kinds() {
		if k.Presentation.Deprecated != "" {
			got[k.GroupVersion().String()+" "+k.Kind] = deprecation{k.Presentation.Deprecated, k.Presentation.RemovedRelease}
		}
	}
	want := map[string]deprecation{
		"v1 ComponentStatus": {warning: "v1 ComponentStatus is deprecated in v1.19+"},
		"v1 Endpoints":       {warning: "v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice"},
		"admissionregistration.k8s.io/v1beta1 ValidatingAdmissionPolicy": {
			warning: "admissionregistration.k8s.io/v1beta1 ValidatingAdmissionPolicy is deprecated in v1.31+, unavailable in v1.34+",
			removed: "1.34",
		},
		"admissionregistration.k8s.io/v1beta1 ValidatingAdmissionPolicyBinding": {
			warning: "admissionregistration.k8s.io/v1beta1 ValidatingAdmissionPolicyBinding is deprecated in v1.31+, unavailable in v1.34+",
			removed: "1.34",
		},
		"authentication.k8s.io/v1beta1 SelfSubjectReview": {
			warning: "authentication.k8s.io/v1beta1 SelfSubjectReview is deprecated in v1.30+, unavailable in v1.33+",
			removed: "1.33",
		},
		"flowcontrol.apiserver.k8s.io/v1beta3 FlowSchema": {
			warning: "flowcontrol.apiserver.k8s.io/v1beta3 FlowSchema is deprecated in v1.29+, unavailable in v1.32+; use flowcontrol.apiserver.k8s.io/v1 FlowSchema",
			removed: "1.32",
		},
		"flowcontrol.apiserver.k8s.io/v1beta3 PriorityLevelConfiguration": {
			warning: "flowcontrol.apiserver.k8s.io/v1beta3 PriorityLevelConfiguration is deprecated in v1.29+, unavailable in v1.32+; use flowcontrol.apiserver.k8s.io/v1 PriorityLevelConfiguration",
			removed: "1.32",
		},
		"storage.k8s.io/v1alpha1 VolumeAttributesClass": {
			warning: "storage.k8s.io/v1alpha1 VolumeAttributesClass is deprecated in v1.32+, unavailable in v1.35+",
			removed: "1.35",
		},
		"storagemigration.k8s.io/v1alpha1 StorageVersionMigration": {
			warning: "storagemigration.k8s.io/v1alpha1 StorageVersionMigration is deprecated in v1.33+, unavailable in v1.36+",
			removed: "1.36",
		},
	}
	if !maps.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}
