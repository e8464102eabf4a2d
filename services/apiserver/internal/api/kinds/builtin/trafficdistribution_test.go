package builtin_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"binnacle/libs/features"
	"binnacle/services/apiserver/internal/api/kinds/builtin"
	"binnacle/services/apiserver/internal/registry"
)

// TestTrafficDistributionDependsOnGate checks that the values of the field depend on the feature
// gate.
func TestTrafficDistributionDependsOnGate(t *testing.T) {
	for _, on := range []bool{false, true} {
		gates := features.New()
		if err := gates.Set(fmt.Sprintf("PreferSameTrafficDistribution=%t", on)); err != nil {
			t.Fatal(err)
		}
		all, err := builtin.AllKinds(registry.Settings{Gates: gates})
		if err != nil {
			t.Fatal(err)
		}
		kind := named(all)["v1/services"]
		for value, valid := range map[string]bool{"PreferClose": true, "PreferSameZone": on, "PreferSameNode": on, "Other": false} {
			service := decode(t, kind, map[string]any{
				"metadata": map[string]any{"name": "s", "namespace": "n"},
				"spec": map[string]any{
					"type": "ClusterIP", "trafficDistribution": value, "ports": []any{map[string]any{"port": 1}},
				},
			})
			kind.Default(service)
			_, errs := createOf(kind, service)
			isField := func(text string) bool { return strings.Contains(text, "trafficDistribution") }
			if got := !slices.ContainsFunc(errs, isField); got != valid {
				t.Errorf("gate %t, value %s: got valid %t, want %t: errors %q", on, value, got, valid, errs)
			}
		}
	}
}
