package builtin_test

import (
	"slices"
	"strings"
	"testing"

	"binnacle/services/apiserver/internal/api/kinds/builtin"
	"binnacle/services/apiserver/internal/registry"
)

// TestResetFieldsEqualReference compares the fields that a write cannot change with the strategies of
// Kubernetes 1.33. Paths that are not listed reset status, or spec for the status subresource.
func TestResetFieldsEqualReference(t *testing.T) {
	special := map[string]string{
		"admissionregistration.k8s.io/validatingadmissionpolicies/status": "metadata spec",
		"apiextensions.k8s.io/customresourcedefinitions/status":           "metadata spec",
		"apiregistration.k8s.io/apiservices/status":                       "metadata spec",
		"apps/deployments/status":                                         "metadata.labels spec",
		"certificates.k8s.io/certificatesigningrequests":                  "spec status",
		"certificates.k8s.io/certificatesigningrequests/approval":         "spec status.certificate",
		"certificates.k8s.io/certificatesigningrequests/status":           "spec status.conditions",
		"flowcontrol.apiserver.k8s.io/flowschemas/status":                 "metadata spec",
		"flowcontrol.apiserver.k8s.io/prioritylevelconfigurations/status": "metadata spec",
		"internal.apiserver.k8s.io/storageversions/status":                "metadata spec",
		"/namespaces/finalize":                                            "status",
		// The strategy names the group "networking", so it resets nothing.
		"networking.k8s.io/servicecidrs":                          "",
		"networking.k8s.io/servicecidrs/status":                   "",
		"/pods/status":                                            "metadata.deletionTimestamp metadata.ownerReferences spec",
		"storage.k8s.io/volumeattachments/status":                 "metadata spec",
		"storagemigration.k8s.io/storageversionmigrations/status": "metadata spec",
	}
	seen := map[string]bool{}
	all, err := builtin.AllKinds(registry.Settings{})
	if err != nil {
		t.Fatal(err)
	}
	for _, kind := range all.Kinds() {
		name := kind.Group + "/" + kind.Resource
		check := func(path string, got []string) {
			want, ok := special[path]
			seen[path] = true
			switch {
			case ok:
			case path == name && kind.HasStatus():
				want = "status"
			case path == name+"/status":
				want = "spec"
			}
			got = slices.Sorted(slices.Values(got))
			if strings.Join(got, " ") != want {
				t.Errorf("%s of %s: got reset fields %q, want %q", path, kind.Version, got, want)
			}
		}
		check(name, kind.ResetFields(nil))
		for i := range kind.Subresources {
			check(name+"/"+kind.Subresources[i].Name, kind.ResetFields(&kind.Subresources[i]))
		}
	}
	for path := range special {
		if !seen[path] {
			t.Errorf("no kind with path %s, want one", path)
		}
	}
}
