package builtin_test

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"binnacle/libs/version"
	"binnacle/services/apiserver/internal/api/kinds/builtin"
	"binnacle/services/apiserver/internal/registry"
)

// TestRuntimeConfigSelectsResources checks which resources each configuration serves.
func TestRuntimeConfigSelectsResources(t *testing.T) {
	all, err := builtin.AllKinds(registry.Settings{})
	if err != nil {
		t.Fatal(err)
	}
	const (
		pods, jobs       = "/v1/pods", "batch/v1/jobs"
		address, beta    = "networking.k8s.io/v1/ipaddresses", "networking.k8s.io/v1beta1/ipaddresses"
		slices, classes  = "resource.k8s.io/v1beta1/resourceslices", "resource.k8s.io/v1beta1/deviceclasses"
		versions, rules  = "internal.apiserver.k8s.io/v1alpha1/storageversions", "resource.k8s.io/v1alpha3/devicetaintrules"
		hpa, older, cron = "autoscaling/v2/horizontalpodautoscalers", "autoscaling/v1/horizontalpodautoscalers", "batch/v1/cronjobs"
	)
	every := []string{pods, jobs, cron, address, beta, slices, classes, versions, rules, hpa, older}
	for config, want := range map[string]string{
		"":                             "pods jobs cron address hpa older",
		"api/beta":                     "pods jobs cron address beta slices classes hpa older",
		"api/beta=true,api/all=false":  "beta slices classes",
		"api/all":                      "pods jobs cron address beta slices classes versions rules hpa older",
		"api/all=false,v1":             "pods",
		"api/all=false,api/v1=true":    "pods",
		"api/ga=false,api/v1=true":     "pods",
		"batch/v1=false":               "pods address hpa older",
		"batch/v1=false,batch/v1/jobs": "pods jobs address hpa older",
		"batch/v1/jobs=false":          "pods cron address hpa older",
		"autoscaling/v1=false":         "pods jobs cron address hpa",
		"autoscaling/v2=false":         "pods jobs cron address older",
		"networking.k8s.io/v1beta1":    "pods jobs cron address beta hpa older",
		"resource.k8s.io/v1beta1=true,resource.k8s.io/v1beta1/deviceclasses=false": "pods jobs cron address slices hpa older",
		"api/v1/pods=false":                         "jobs cron address hpa older",
		"api/alpha=true":                            "pods jobs cron address versions rules hpa older",
		"api/alpha,resource.k8s.io/v1alpha3=false":  "pods jobs cron address versions hpa older",
		"resource.k8s.io/v1alpha3/devicetaintrules": "pods jobs cron address rules hpa older",
	} {
		var runtimeConfig builtin.RuntimeConfig
		if err := runtimeConfig.Set(config); err != nil {
			t.Fatal(err)
		}
		if errs := runtimeConfig.Validate(all); len(errs) > 0 {
			t.Errorf("%s: Validate = %v, want no errors", config, errs)
		}
		serves, err := builtin.Emulation{Minor: version.MinorNumber}.Serves(all, runtimeConfig, func(*registry.Kind) bool { return true })
		if err != nil {
			t.Fatal(err)
		}
		served, err := all.Filter(serves)
		if err != nil {
			t.Fatal(err)
		}
		names := map[string]string{
			pods:     "pods",
			jobs:     "jobs",
			cron:     "cron",
			address:  "address",
			beta:     "beta",
			slices:   "slices",
			classes:  "classes",
			versions: "versions",
			rules:    "rules",
			hpa:      "hpa",
			older:    "older",
		}
		var got []string
		for _, r := range every {
			parts := strings.Split(r, "/")
			gvr := schema.GroupVersionResource{Group: parts[0], Version: parts[1], Resource: parts[2]}
			if served.Resource(gvr) != nil {
				got = append(got, names[r])
			}
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%s: got %v, want %s", config, got, want)
		}
	}
}

// TestInvalidRuntimeConfigIsRejected checks the errors of invalid configurations.
func TestInvalidRuntimeConfigIsRejected(t *testing.T) {
	all, err := builtin.AllKinds(registry.Settings{})
	if err != nil {
		t.Fatal(err)
	}
	for config, want := range map[string]string{
		"api/all=false":                 "invalid key with only api/all=false",
		"nonsense":                      "invalid key nonsense",
		"a/b/c/d":                       "invalid key a/b/c/d",
		"example.com/v1":                "unknown api groups example.com",
		"batch/v3":                      "group version batch/v3 that has not been registered",
		"batch/v2alpha1=true":           "group version batch/v2alpha1 that has not been registered",
		"apidiscovery.k8s.io/v2":        "unknown api groups apidiscovery.k8s.io",
		"batch/v1/Jobs=true":            `invalid key batch/v1/Jobs: group/version/resource and resource is always lowercase plural, not "Jobs"`,
		"batch/v1=maybe":                `invalid value of batch/v1: "maybe" is neither true nor false`,
		"resource.k8s.io/v1alpha4=true": "has not been registered",
	} {
		var runtimeConfig builtin.RuntimeConfig
		_ = runtimeConfig.Set(config)
		if errs := runtimeConfig.Validate(all); len(errs) != 1 || !strings.Contains(errs[0].Error(), want) {
			t.Errorf("%s: Validate = %v, want one error that contains %s", config, errs, want)
		}
	}
}

// TestRuntimeConfigAcceptsUnservedVersions checks that the versions in command lines of older
// clusters are accepted.
func TestRuntimeConfigAcceptsUnservedVersions(t *testing.T) {
	all, err := builtin.AllKinds(registry.Settings{})
	if err != nil {
		t.Fatal(err)
	}
	for _, gv := range []string{
		"admission.k8s.io/v1", "admission.k8s.io/v1beta1", "apiextensions.k8s.io/v1beta1", "apiregistration.k8s.io/v1beta1",
		"apps/v1beta1", "apps/v1beta2",
		"authentication.k8s.io/v1alpha1", "authentication.k8s.io/v1beta1", "authorization.k8s.io/v1beta1", "autoscaling/v2beta1",
		"autoscaling/v2beta2", "batch/v1beta1",
		"coordination.k8s.io/v1alpha2", "discovery.k8s.io/v1beta1", "events.k8s.io/v1beta1", "extensions/v1beta1",
		"flowcontrol.apiserver.k8s.io/v1beta1",
		"flowcontrol.apiserver.k8s.io/v1beta2", "flowcontrol.apiserver.k8s.io/v1beta3", "imagepolicy.k8s.io/v1alpha1",
		"networking.k8s.io/v1alpha1", "node.k8s.io/v1alpha1",
		"node.k8s.io/v1beta1", "policy/v1beta1", "rbac.authorization.k8s.io/v1alpha1", "rbac.authorization.k8s.io/v1beta1",
		"scheduling.k8s.io/v1alpha1",
		"scheduling.k8s.io/v1beta1", "storagemigration.k8s.io/v1alpha1",
	} {
		for _, suffix := range []string{"", "=true", "=false", "=1", "/deployments=true", "/deployments=false"} {
			var runtimeConfig builtin.RuntimeConfig
			if err := runtimeConfig.Set(gv + suffix); err != nil {
				t.Fatal(err)
			}
			if errs := runtimeConfig.Validate(all); len(errs) != 0 {
				t.Errorf("%s%s: Validate = %v, want no errors", gv, suffix, errs)
			}
		}
	}
}

// FuzzRuntimeConfig checks that no configuration causes a panic, and that valid ones are encoded as
// they were decoded.
func FuzzRuntimeConfig(f *testing.F) {
	all, err := builtin.AllKinds(registry.Settings{})
	if err != nil {
		f.Fatal(err)
	}
	f.Add("api/all=false,v1,batch/v1/jobs=true")
	f.Add("=,a=b=c, ,/,//,api/v1x")
	f.Fuzz(func(t *testing.T, text string) {
		var runtimeConfig builtin.RuntimeConfig
		if err := runtimeConfig.Set(text); err != nil {
			return
		}
		valid := len(runtimeConfig.Validate(all)) == 0
		for _, k := range all.Kinds() {
			runtimeConfig.Serves(k)
		}
		var again builtin.RuntimeConfig
		if valid && (again.Set(runtimeConfig.String()) != nil || again.String() != runtimeConfig.String()) {
			t.Errorf("%q: got %q after encoding and decoding, want %q", text, again.String(), runtimeConfig.String())
		}
	})
}
