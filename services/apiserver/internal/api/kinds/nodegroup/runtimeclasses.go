package nodegroup

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"

	"binnacle/services/apiserver/internal/api/kinds/podspec"
	"binnacle/services/apiserver/internal/api/kinds/podspec/poddefaults"
	"binnacle/services/apiserver/internal/registry"
	"binnacle/services/apiserver/internal/registry/columns"
	"binnacle/services/apiserver/internal/registry/declare"
	"binnacle/services/apiserver/internal/registry/validate"
)

func runtimeClasses() *registry.Kind {
	return &registry.Kind{
		Names: registry.Names{
			Group: group, Version: version, Resource: "runtimeclasses", Singular: "runtimeclass", Kind: "RuntimeClass",
			AnyFinalizer: true,
		},
		New:     declare.New[nodev1.RuntimeClass],
		NewList: declare.New[nodev1.RuntimeClassList],
		Stored:  registry.StorageForm{Prefix: "runtimeclasses"},
		Default: declare.Do(func(c *nodev1.RuntimeClass) {
			if c.Overhead != nil {
				poddefaults.Round(c.Overhead.PodFixed)
			}
		}),
		Create: registry.Create{Validate: declare.Rules(runtimeClassRules), Warnings: declare.Get(runtimeClassWarnings)},
		Update: registry.Update{
			Order:   registry.Order{registry.Meta, registry.MetaChange, registry.Rules},
			Creates: true, NeedsVersion: true,
			Validate: declare.Changes(func(at validate.At, c, old *nodev1.RuntimeClass) {
				runtimeClassRules(at, c)
				at.Immutable("handler", c.Handler, old.Handler)
			}),
		},
		Presentation: registry.Presentation{Columns: []registry.Column{
			columns.Name(),
			// This column has no description in Kubernetes.
			columns.Text("Handler", "", func(c *nodev1.RuntimeClass) string { return c.Handler }),
			columns.Age(),
		}},
	}
}

// runtimeClassRules validates a class. Some names in errors differ from those of the fields, as in
// Kubernetes.
func runtimeClassRules(at validate.At, c *nodev1.RuntimeClass) {
	at.Text("handler", c.Handler, validate.DNSLabel)
	validate.Optional(at, "overhead", c.Overhead, func(at validate.At, o *nodev1.Overhead) {
		podspec.LimitRules(at, o.PodFixed)
	})
	validate.Optional(at, "scheduling", c.Scheduling, func(at validate.At, s *nodev1.Scheduling) {
		at.Labels("nodeSelector", s.NodeSelector)
		validate.Each(at.Child("tolerations"), "tolerations", s.Tolerations, podspec.TolerationRules)
		seen := validate.Set[corev1.Toleration]{}
		for i, t := range s.Tolerations {
			// The seconds are not part of the list's key.
			if !seen.Add(corev1.Toleration{Key: t.Key, Operator: t.Operator, Value: t.Value, Effect: t.Effect}) {
				at.Index("tolerations", i).Duplicate("", t)
			}
		}
	})
}

func runtimeClassWarnings(c *nodev1.RuntimeClass) (texts []string) {
	if c.Scheduling == nil {
		return nil
	}
	for _, key := range slices.Sorted(maps.Keys(c.Scheduling.NodeSelector)) {
		if msg := podspec.DeprecatedLabel(key); msg != "" {
			texts = append(texts, "scheduling.nodeSelector: "+msg)
		}
	}
	return texts
}
