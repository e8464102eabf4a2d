package builtin_test

import (
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"binnacle/services/apiserver/internal/api/kinds/builtin"
	"binnacle/services/apiserver/internal/registry"
)

// TestNewerResourcesAreServedOnlyOnRequest checks that resources that are newer than the emulated
// version are served only on request.
func TestNewerResourcesAreServedOnlyOnRequest(t *testing.T) {
	all, err := builtin.AllKinds(registry.Settings{})
	if err != nil {
		t.Fatal(err)
	}
	const (
		stable, beta   = "networking.k8s.io/v1/ipaddresses", "networking.k8s.io/v1beta1/ipaddresses"
		claims, older  = "resource.k8s.io/v1beta2/resourceclaims", "resource.k8s.io/v1beta1/resourceclaims"
		oldest         = "resource.k8s.io/v1alpha3/resourceclaims"
		always         = "networking.k8s.io/v1/networkpolicies"
		reviews, flows = "authentication.k8s.io/v1beta1/selfsubjectreviews", "flowcontrol.apiserver.k8s.io/v1beta3/flowschemas"
	)
	for _, test := range []struct {
		name      string
		emulation builtin.Emulation
		config    string
		want      []string
		wantErr   string
	}{
		{name: "current version", emulation: builtin.Emulation{Minor: 33}, want: []string{always, stable}},
		{name: "previous version", emulation: builtin.Emulation{Minor: 32}, want: []string{always}},
		{name: "beta versions enabled", emulation: builtin.Emulation{Minor: 32}, config: "networking.k8s.io/v1beta1=true,resource.k8s.io/v1beta1=true", want: []string{always, beta, older}},
		{name: "version without the beta version", emulation: builtin.Emulation{Minor: 31}, config: "resource.k8s.io/v1beta1=true,resource.k8s.io/v1alpha3=true", want: []string{always, oldest}},
		{name: "forward compatible", emulation: builtin.Emulation{Minor: 32, Forward: true}, config: "networking.k8s.io/v1beta1=true,resource.k8s.io/v1beta1=true", want: []string{always, beta, stable, older, claims}},
		{name: "forward compatible, nothing enabled", emulation: builtin.Emulation{Minor: 32, Forward: true}, want: []string{always}},
		{name: "forward compatible over two versions", emulation: builtin.Emulation{Minor: 31, Forward: true}, config: "resource.k8s.io/v1alpha3=true", want: []string{always, oldest, older, claims}},
		{name: "forward compatible, newer version disabled", emulation: builtin.Emulation{Minor: 32, Forward: true}, config: "resource.k8s.io/v1beta1=true,resource.k8s.io/v1beta2=false", want: []string{always, older}},
		{name: "newer version enabled", emulation: builtin.Emulation{Minor: 32}, config: "resource.k8s.io/v1beta2=true", want: []string{always}},
		{name: "newer version enabled, named ones allowed", emulation: builtin.Emulation{Minor: 32, Named: true}, config: "resource.k8s.io/v1beta2=true", want: []string{always, claims}},
		{name: "newer resource enabled", emulation: builtin.Emulation{Minor: 32}, config: "resource.k8s.io/v1beta2/resourceclaims=true",
			wantErr: "cannot enable resource resource.k8s.io/v1beta2, Resource=resourceclaims in runtime-config because it is introduced at 1.33 after the current version 1.32. Consider setting --runtime-config-emulation-forward-compatible=true"},
		{name: "newer resource enabled, named ones allowed", emulation: builtin.Emulation{Minor: 32, Named: true}, config: "resource.k8s.io/v1beta2/resourceclaims=true", want: []string{always, claims}},
		{name: "all versions enabled", emulation: builtin.Emulation{Minor: 32}, config: "api/all=true", want: []string{always, beta, older, oldest, reviews}},
		{name: "version before the removal", emulation: builtin.Emulation{Minor: 31}, config: "flowcontrol.apiserver.k8s.io/v1beta3=true,authentication.k8s.io/v1beta1=true", want: []string{always, flows, reviews}},
		{name: "version before the removal, not enabled", emulation: builtin.Emulation{Minor: 31}, want: []string{always}},
		{name: "version after the removal", emulation: builtin.Emulation{Minor: 33}, config: "flowcontrol.apiserver.k8s.io/v1beta3=true,authentication.k8s.io/v1beta1=true", want: []string{always, stable}},
	} {
		t.Run(test.name, func(t *testing.T) {
			var config builtin.RuntimeConfig
			if err := config.Set(test.config); err != nil {
				t.Fatal(err)
			}
			serves, err := test.emulation.Serves(all, config, func(*registry.Kind) bool { return true })
			if test.wantErr != "" {
				if err == nil || err.Error() != test.wantErr {
					t.Errorf("got error %v, want %s", err, test.wantErr)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, r := range []string{always, beta, stable, oldest, older, claims, reviews, flows} {
				parts := strings.Split(r, "/")
				if serves(all.Resource(schema.GroupVersionResource{Group: parts[0], Version: parts[1], Resource: parts[2]})) {
					got = append(got, r)
				}
			}
			for _, r := range []string{always, beta, stable, oldest, older, claims, reviews, flows} {
				if slices.Contains(got, r) != slices.Contains(test.want, r) {
					t.Errorf("%s: got served %v, want %v", r, slices.Contains(got, r), slices.Contains(test.want, r))
				}
			}
		})
	}
}

// TestDisabledGateWinsOverForwardCompatibility checks that forward compatibility serves no kind whose
// feature gate is disabled.
func TestDisabledGateWinsOverForwardCompatibility(t *testing.T) {
	all, err := builtin.AllKinds(registry.Settings{})
	if err != nil {
		t.Fatal(err)
	}
	config := builtin.RuntimeConfig{"networking.k8s.io/v1beta1": "true"}
	isGateEnabled := func(k *registry.Kind) bool { return k.Resource != "ipaddresses" }
	serves, err := builtin.Emulation{Minor: 32, Forward: true}.Serves(all, config, isGateEnabled)
	if err != nil {
		t.Fatal(err)
	}
	ipAddresses := schema.GroupVersionResource{Group: "networking.k8s.io", Version: "v1", Resource: "ipaddresses"}
	if serves(all.Resource(ipAddresses)) {
		t.Error("got a served kind with a disabled gate, want none")
	}
}
