package builtin_test

import (
	"maps"
	"strings"
	"testing"

	"binnacle/libs/features"
	"binnacle/services/apiserver/internal/api/kinds/builtin"
	"binnacle/services/apiserver/internal/registry"
)

// TestGatesOfEmulatedVersionDropFields checks that disabled gates drop fields, except for those that
// the old object has. The gates can be disabled in 1.31, but not in 1.33.
func TestGatesOfEmulatedVersionDropFields(t *testing.T) {
	gates := features.New()
	gates.Emulate(31)
	if err := gates.Set("LoadBalancerIPMode=false,CustomResourceFieldSelectors=false,CRDValidationRatcheting=false"); err != nil {
		t.Fatal(err)
	}
	all, err := builtin.AllKinds(registry.Settings{Gates: gates})
	if err != nil {
		t.Fatal(err)
	}
	disabled, enabled := named(all), byName(t)
	service := map[string]any{
		"metadata": map[string]any{"name": "s", "namespace": "n"},
		"spec": map[string]any{
			"type":           "LoadBalancer",
			"clusterIP":      "10.0.0.1",
			"clusterIPs":     []any{"10.0.0.1"},
			"ipFamilies":     []any{"IPv4"},
			"ipFamilyPolicy": "SingleStack",
			"ports":          []any{map[string]any{"port": 1}},
		},
	}
	withMode := maps.Clone(service)
	withMode["status"] = map[string]any{
		"loadBalancer": map[string]any{"ingress": []any{map[string]any{"ip": "1.2.3.4", "ipMode": "Proxy"}}},
	}
	definition := definitionWithGatedFields()
	for gateState, kinds := range map[string]map[string]*registry.Kind{"disabled": disabled, "enabled": enabled} {
		t.Run(gateState, func(t *testing.T) {
			kind := kinds["v1/services"]
			old, changed := decode(t, kind, service), decode(t, kind, withMode)
			kind.Default(old)
			if errs := changeOf(kind, changed, old, "status"); len(errs) > 0 {
				t.Errorf("status: got errors %q", errs)
			}
			if kept := strings.Contains(mustYAML(t, toMap(t, changed)), "ipMode"); kept != (gateState == "enabled") {
				t.Errorf("got ipMode kept: %t", kept)
			}
			used := decode(t, kind, withMode)
			changeOf(kind, used, decode(t, kind, withMode), "status")
			if !strings.Contains(mustYAML(t, toMap(t, used)), "ipMode: Proxy") {
				t.Error("ipMode was dropped although the old status has it")
			}

			kind = kinds["apiextensions.k8s.io/v1/customresourcedefinitions"]
			created, errs := createOf(kind, decode(t, kind, definition))
			if len(errs) > 0 {
				t.Fatalf("definition: got errors %q", errs)
			}
			for _, field := range []string{"selectableFields", "optionalOldSelf"} {
				if kept := strings.Contains(mustYAML(t, toMap(t, created)), field); kept != (gateState == "enabled") {
					t.Errorf("%s: got kept on create: %t", field, kept)
				}
				updated := decode(t, kind, definition)
				changeOf(kind, updated, decode(t, kind, definition), "")
				if !strings.Contains(mustYAML(t, toMap(t, updated)), field) {
					t.Errorf("%s was dropped although the old definition has it", field)
				}
			}
		})
	}
}

// definitionWithGatedFields returns a definition that uses the fields of feature gates.
func definitionWithGatedFields() map[string]any {
	return map[string]any{
		"metadata": map[string]any{"name": "as.g.example"},
		"spec": map[string]any{
			"group": "g.example", "scope": "Namespaced",
			"names": map[string]any{"plural": "as", "singular": "a", "kind": "A", "listKind": "AList"},
			"versions": []any{map[string]any{
				"name": "v1", "served": true, "storage": true,
				"selectableFields": []any{map[string]any{"jsonPath": ".spec.color"}},
				"schema": map[string]any{"openAPIV3Schema": map[string]any{"type": "object", "properties": map[string]any{
					"spec": map[string]any{"type": "object", "properties": map[string]any{"color": map[string]any{
						"type": "string", "maxLength": 9,
						"x-kubernetes-validations": []any{map[string]any{"rule": "oldSelf == oldSelf", "optionalOldSelf": true}},
					}}},
				}}},
			}},
		},
	}
}
