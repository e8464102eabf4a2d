package builtin_test

import (
	"testing"

	"sigs.k8s.io/yaml"

	"binnacle/services/apiserver/internal/registry"
)

// BenchmarkRules measures defaults and validation of a write.
func BenchmarkRules(b *testing.B) {
	kinds := byName(b)
	for _, name := range []string{"pod", "deployment", "service", "configmap", "node", "lease"} {
		b.Run(name, func(b *testing.B) {
			var c kindCase
			data, err := kindCases.ReadFile("testdata/kinds/" + name + ".yaml")
			if err != nil {
				b.Fatal(err)
			}
			if err := yaml.UnmarshalStrict(data, &c); err != nil {
				b.Fatal(err)
			}
			kind := kinds[c.Kind]
			minimal := decode(b, kind, c.Minimal)
			for b.Loop() {
				obj := minimal.DeepCopyObject().(registry.Object)
				if _, errs := createOf(kind, obj); len(errs) > 0 {
					b.Fatal(errs)
				}
				if kind.Create.Warnings != nil {
					kind.Create.Warnings(obj)
				}
			}
		})
	}
}
