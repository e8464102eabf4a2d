package scheduling

import (
	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"

	"binnacle/services/apiserver/internal/registry"
	"binnacle/services/apiserver/internal/registry/columns"
	"binnacle/services/apiserver/internal/registry/declare"
)

func priorityClasses() *registry.Kind {
	return &registry.Kind{
		Group: group, Version: version, Resource: "priorityclasses", Singular: "priorityclass", Kind: "PriorityClass",
		ShortNames: []string{"pc"},
		New:        declare.New[schedulingv1.PriorityClass],
		NewList:    declare.New[schedulingv1.PriorityClassList],
		Stored:     registry.Stored{Prefix: "priorityclasses"},
		Default: declare.Do(func(c *schedulingv1.PriorityClass) {
			declare.FillPtr(&c.PreemptionPolicy, corev1.PreemptLowerPriority)
		}),
		// The generation is told but never rises.
		PrepareCreate: declare.Do(func(c *schedulingv1.PriorityClass) { c.Generation = 1 }),
		Columns:       priorityClassColumns(),
	}
}

func priorityClassColumns() []registry.Column {
	doc := func(name string) string { return columns.Doc(schedulingv1.PriorityClass{}, name) }
	return []registry.Column{
		columns.Name(),
		columns.Int("Value", doc("value"), func(c *schedulingv1.PriorityClass) int64 { return int64(c.Value) }),
		columns.Bool("Global-Default", doc("globalDefault"), func(c *schedulingv1.PriorityClass) bool { return c.GlobalDefault }),
		columns.Age(),
		columns.Text("PreemptionPolicy", doc("preemptionPolicy"), func(c *schedulingv1.PriorityClass) string {
			if c.PreemptionPolicy == nil {
				return ""
			}
			return string(*c.PreemptionPolicy)
		}),
	}
}
