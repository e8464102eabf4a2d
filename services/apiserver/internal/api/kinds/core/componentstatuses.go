package core

import (
	corev1 "k8s.io/api/core/v1"

	"binnacle/services/apiserver/internal/registry"
	"binnacle/services/apiserver/internal/registry/columns"
	"binnacle/services/apiserver/internal/registry/declare"
)

// componentStatuses declares the cluster-scoped kind ComponentStatus.
func componentStatuses() *registry.Kind {
	return declare.Kind[corev1.ComponentStatus, corev1.ComponentStatusList](&registry.Kind{
		Names:   registry.Names{Version: version, Resource: "componentstatuses", Kind: "ComponentStatus", ShortNames: []string{"cs"}},
		Virtual: true,
		Verbs:   []string{"get", "list"},
		Presentation: registry.Presentation{
			Columns: []registry.Column{
				columns.Name(),
				columns.Text("Status", "Status of the component conditions", func(c *corev1.ComponentStatus) string {
					switch h := healthConditionOf(c); {
					case h == nil:
						return "Unknown"
					case h.Status == corev1.ConditionTrue:
						return "Healthy"
					default:
						return "Unhealthy"
					}
				}),
				columns.Text("Message", "Message of the component conditions", func(c *corev1.ComponentStatus) string {
					if h := healthConditionOf(c); h != nil {
						return h.Message
					}
					return ""
				}),
				columns.Text("Error", "Error of the component conditions", func(c *corev1.ComponentStatus) string {
					if h := healthConditionOf(c); h != nil {
						return h.Error
					}
					return ""
				}),
			},
		},
	})
}

func healthConditionOf(c *corev1.ComponentStatus) *corev1.ComponentCondition {
	for i := range c.Conditions {
		if c.Conditions[i].Type == corev1.ComponentHealthy {
			return &c.Conditions[i]
		}
	}
	return nil
}
