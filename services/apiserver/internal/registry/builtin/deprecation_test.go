package builtin_test

import (
	"maps"
	"testing"

	"binnacle/services/apiserver/internal/registry"
	"binnacle/services/apiserver/internal/registry/builtin"
)

func TestDeprecatedKindsDependOnTheEmulatedVersion(t *testing.T) {
	const admission = "admissionregistration.k8s.io/v1beta1 "
	older := map[string]string{
		admission + "ValidatingAdmissionPolicy is deprecated in v1.31+, unavailable in v1.34+":                                                                                           "1.34",
		admission + "ValidatingAdmissionPolicyBinding is deprecated in v1.31+, unavailable in v1.34+":                                                                                    "1.34",
		"v1 ComponentStatus is deprecated in v1.19+":                                                                                                                                     "",
		"flowcontrol.apiserver.k8s.io/v1beta3 FlowSchema is deprecated in v1.29+, unavailable in v1.32+; use flowcontrol.apiserver.k8s.io/v1 FlowSchema":                                 "1.32",
		"flowcontrol.apiserver.k8s.io/v1beta3 PriorityLevelConfiguration is deprecated in v1.29+, unavailable in v1.32+; use flowcontrol.apiserver.k8s.io/v1 PriorityLevelConfiguration": "1.32",
	}
	older["authentication.k8s.io/v1beta1 SelfSubjectReview is deprecated in v1.30+, unavailable in v1.33+"] = "1.33"
	newer := maps.Clone(older)
	newer["storagemigration.k8s.io/v1alpha1 StorageVersionMigration is deprecated in v1.33+, unavailable in v1.36+"] = "1.36"
	newer["v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice"] = ""
	newer["storage.k8s.io/v1alpha1 VolumeAttributesClass is deprecated in v1.32+, unavailable in v1.35+"] = "1.35"
	for minor, want := range map[int]map[string]string{31: older, 0: newer} {
		all, err := builtin.Everything(registry.Settings{Minor: minor})
		if err != nil {
			t.Fatal(err)
		}
		got := map[string]string{}
		for _, k := range all.Kinds() {
			if k.Shown.Deprecated != "" {
				got[k.Shown.Deprecated] = k.Shown.RemovedIn
			}
		}
		if !maps.Equal(got, want) {
			t.Errorf("emulating 1.%d: %v, want %v", minor, got, want)
		}
	}
}
