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

// runtimeClasses declares the cluster-scoped kind RuntimeClass.
func runtimeClasses() *registry.Kind {
	return declare.Kind[nodev1.RuntimeClass, nodev1.RuntimeClassList](&registry.Kind{
		Names: registry.Names{
			Group: group, Version: version, Resource: "runtimeclasses", Kind: "RuntimeClass",
			AllowUnqualifiedFinalizers: true,
		},
		Default: declare.Adapt(func(c *nodev1.RuntimeClass) {
			if c.Overhead != nil {
				poddefaults.Round(c.Overhead.PodFixed)
			}
		}),
		Create: registry.Create{
			Validate: declare.AdaptValidation(validateRuntimeClass),
			Warnings: declare.AdaptResult(runtimeClassWarnings),
		},
		Update: registry.Update{
			Order:               registry.Order{registry.MetaRules, registry.MetaUpdateRules, registry.UpdateRules},
			AllowCreateOnUpdate: true, RequireResourceVersion: true,
			Validate: declare.AdaptUpdateValidation(func(fld validate.Field, c, old *nodev1.RuntimeClass) {
				validateRuntimeClass(fld, c)
				fld.CheckImmutable("handler", c.Handler, old.Handler)
			}),
		},
		Presentation: registry.Presentation{Columns: []registry.Column{
			columns.Name(),
			// This column has no description in Kubernetes.
			columns.Text("Handler", "", func(c *nodev1.RuntimeClass) string { return c.Handler }),
			columns.Age(),
		}},
	})
}

// validateRuntimeClass validates a class. As in Kubernetes, some paths in errors are not those of the
// fields: errors in overhead.podFixed name overhead.limits, and errors in a toleration name
// tolerations twice.
func validateRuntimeClass(fld validate.Field, runtimeClass *nodev1.RuntimeClass) {
	fld.CheckText("handler", runtimeClass.Handler, validate.DNSLabel)
	validate.Optional(fld, "overhead", runtimeClass.Overhead, func(fld validate.Field, o *nodev1.Overhead) {
		podspec.ValidateLimits(fld, o.PodFixed)
	})
	validate.Optional(fld, "scheduling", runtimeClass.Scheduling, func(fld validate.Field, scheduling *nodev1.Scheduling) {
		fld.CheckLabels("nodeSelector", scheduling.NodeSelector)
		validate.Each(fld.Child("tolerations"), "tolerations", scheduling.Tolerations, podspec.TolerationRules)
		seen := validate.Set[corev1.Toleration]{}
		for i, t := range scheduling.Tolerations {
			// The seconds are not part of the list's key.
			if !seen.Add(corev1.Toleration{Key: t.Key, Operator: t.Operator, Value: t.Value, Effect: t.Effect}) {
				fld.Index("tolerations", i).Duplicate("", t)
			}
		}
	})
}

func runtimeClassWarnings(runtimeClass *nodev1.RuntimeClass) (texts []string) {
	if runtimeClass.Scheduling == nil {
		return nil
	}
	for _, key := range slices.Sorted(maps.Keys(runtimeClass.Scheduling.NodeSelector)) {
		if msg := podspec.DeprecatedLabel(key); msg != "" {
			texts = append(texts, "scheduling.nodeSelector: "+msg)
		}
	}
	return texts
}
