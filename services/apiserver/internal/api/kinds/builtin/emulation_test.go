package builtin_test

import (
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"binnacle/services/apiserver/internal/api/kinds/builtin"
	"binnacle/services/apiserver/internal/registry"
)

// TestEmulatedVersions checks that resources that are newer than the emulated version are served
// only on request.
func TestEmulatedVersions(t *testing.T) {
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
		named, forward = true, true
	)
	for _, test := range []struct {
		name   string
		e      builtin.Emulation
		config string
		want   []string
		err    string
	}{
		{name: "now", e: builtin.Emulation{Minor: 33}, want: []string{always, stable}},
		{name: "then", e: builtin.Emulation{Minor: 32}, want: []string{always}},
		{name: "beta then", e: builtin.Emulation{Minor: 32}, config: "networking.k8s.io/v1beta1=true,resource.k8s.io/v1beta1=true", want: []string{always, beta, older}},
		{name: "not yet beta", e: builtin.Emulation{Minor: 31}, config: "resource.k8s.io/v1beta1=true,resource.k8s.io/v1alpha3=true", want: []string{always, oldest}},
		{name: "forward", e: builtin.Emulation{Minor: 32, Forward: forward}, config: "networking.k8s.io/v1beta1=true,resource.k8s.io/v1beta1=true", want: []string{always, beta, stable, older, claims}},
		{name: "forward from nothing", e: builtin.Emulation{Minor: 32, Forward: forward}, want: []string{always}},
		{name: "forward over two", e: builtin.Emulation{Minor: 31, Forward: forward}, config: "resource.k8s.io/v1alpha3=true", want: []string{always, oldest, older, claims}},
		{name: "forward, but not there", e: builtin.Emulation{Minor: 32, Forward: forward}, config: "resource.k8s.io/v1beta1=true,resource.k8s.io/v1beta2=false", want: []string{always, older}},
		{name: "a later version", e: builtin.Emulation{Minor: 32}, config: "resource.k8s.io/v1beta2=true", want: []string{always}},
		{name: "a later version that is named", e: builtin.Emulation{Minor: 32, Named: named}, config: "resource.k8s.io/v1beta2=true", want: []string{always, claims}},
		{name: "a later resource", e: builtin.Emulation{Minor: 32}, config: "resource.k8s.io/v1beta2/resourceclaims=true",
			err: "cannot enable resource resource.k8s.io/v1beta2, Resource=resourceclaims in runtime-config because it is introduced at 1.33 after the current version 1.32. Consider setting --runtime-config-emulation-forward-compatible=true"},
		{name: "a later resource that is named", e: builtin.Emulation{Minor: 32, Named: named}, config: "resource.k8s.io/v1beta2/resourceclaims=true", want: []string{always, claims}},
		{name: "everything", e: builtin.Emulation{Minor: 32}, config: "api/all=true", want: []string{always, beta, older, oldest, reviews}},
		{name: "not yet removed", e: builtin.Emulation{Minor: 31}, config: "flowcontrol.apiserver.k8s.io/v1beta3=true,authentication.k8s.io/v1beta1=true", want: []string{always, flows, reviews}},
		{name: "off by default before the removal", e: builtin.Emulation{Minor: 31}, want: []string{always}},
		{name: "removed since", e: builtin.Emulation{Minor: 33}, config: "flowcontrol.apiserver.k8s.io/v1beta3=true,authentication.k8s.io/v1beta1=true", want: []string{always, stable}},
	} {
		t.Run(test.name, func(t *testing.T) {
			var config builtin.RuntimeConfig
			if err := config.Set(test.config); err != nil {
				t.Fatal(err)
			}
			serves, err := test.e.Serves(all, config, func(*registry.Kind) bool { return true })
			if test.err != "" {
				if err == nil || err.Error() != test.err {
					t.Errorf("got error %v, want %s", err, test.err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, r := range []string{always, beta, stable, oldest, older, claims, reviews, flows} {
				p := strings.Split(r, "/")
				if serves(all.Resource(schema.GroupVersionResource{Group: p[0], Version: p[1], Resource: p[2]})) {
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
	none := func(k *registry.Kind) bool { return k.Resource != "ipaddresses" }
	if serves, err := (builtin.Emulation{Minor: 32, Forward: true}).Serves(all, builtin.RuntimeConfig{"networking.k8s.io/v1beta1": "true"}, none); err != nil ||
		serves(all.Resource(schema.GroupVersionResource{Group: "networking.k8s.io", Version: "v1", Resource: "ipaddresses"})) {
		t.Errorf("got a kind with a disabled gate, or error %v", err)
	}
}
