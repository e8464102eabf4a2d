package flowcontrol

import (
	flowcontrolv1 "k8s.io/api/flowcontrol/v1"

	"binnacle/services/apiserver/internal/registry"
	"binnacle/services/apiserver/internal/registry/columns"
	"binnacle/services/apiserver/internal/registry/declare"
)

func flowSchemas() *registry.Kind {
	return &registry.Kind{
		Group: group, Version: version, Resource: "flowschemas", Singular: "flowschema", Kind: "FlowSchema",
		New:     declare.New[flowcontrolv1.FlowSchema],
		NewList: declare.New[flowcontrolv1.FlowSchemaList],
		Stored:  registry.Stored{Prefix: "flowschemas"},
		Default: declare.Do(func(s *flowcontrolv1.FlowSchema) {
			declare.Fill(&s.Spec.MatchingPrecedence, defaultPrecedence)
		}),
		Generation: true,
		Columns:    flowSchemaColumns(),
		Subresources: []registry.Subresource{
			declare.Resetting(declare.View("status", "FlowSchema", declare.Change(func(s, old *flowcontrolv1.FlowSchema) {
				s.Spec = old.Spec
				keepAllMeta(&s.ObjectMeta, &old.ObjectMeta)
			})), "spec", "metadata"),
		},
	}
}

// defaultPrecedence of a schema that does not say its own.
const defaultPrecedence = 1000

func flowSchemaColumns() []registry.Column {
	spec := func(name string) string { return columns.Doc(flowcontrolv1.FlowSchemaSpec{}, name) }
	return []registry.Column{
		columns.Name(),
		columns.Text("PriorityLevel", columns.Doc(flowcontrolv1.PriorityLevelConfigurationReference{}, "name"), func(s *flowcontrolv1.FlowSchema) string {
			return s.Spec.PriorityLevelConfiguration.Name
		}),
		columns.Of("MatchingPrecedence", columns.String, "", spec("matchingPrecedence"), 0, func(s *flowcontrolv1.FlowSchema) any {
			return int64(s.Spec.MatchingPrecedence)
		}),
		columns.Text("DistinguisherMethod", spec("distinguisherMethod"), func(s *flowcontrolv1.FlowSchema) string {
			if s.Spec.DistinguisherMethod == nil {
				return columns.None
			}
			return string(s.Spec.DistinguisherMethod.Type)
		}),
		columns.Age(),
		columns.Text("MissingPL", "references a broken or non-existent PriorityLevelConfiguration", danglingText),
	}
}

// danglingText tells whether the priority level is missing; nobody knows
// before the condition is there.
func danglingText(s *flowcontrolv1.FlowSchema) string {
	for _, c := range s.Status.Conditions {
		if c.Type == flowcontrolv1.FlowSchemaConditionDangling {
			return string(c.Status)
		}
	}
	return "?"
}
