package flowcontrolgroup

import (
	flowcontrolv1 "k8s.io/api/flowcontrol/v1"

	"binnacle/services/apiserver/internal/json/transcode"
	"binnacle/services/apiserver/internal/registry"
	"binnacle/services/apiserver/internal/registry/columns"
	"binnacle/services/apiserver/internal/registry/declare"
	"binnacle/services/apiserver/internal/registry/validate"
)

// flowSchemas declares the cluster-scoped kind FlowSchema.
func flowSchemas() *registry.Kind {
	return declare.Kind[flowcontrolv1.FlowSchema, flowcontrolv1.FlowSchemaList](&registry.Kind{
		Names: registry.Names{Group: group, Version: version, Resource: "flowschemas", Kind: "FlowSchema"},
		Parts: declare.SpecStatusAccessors(func(f *flowcontrolv1.FlowSchema) (*flowcontrolv1.FlowSchemaSpec, *flowcontrolv1.FlowSchemaStatus) {
			return &f.Spec, &f.Status
		}),
		Default: declare.Adapt(func(s *flowcontrolv1.FlowSchema) {
			declare.SetDefault(&s.Spec.MatchingPrecedence, defaultPrecedence)
		}),
		DefaultedRules: transcode.Rules(transcode.FieldsSet[flowcontrolv1.FlowSchemaSpec]("matchingPrecedence")),
		Create:         registry.Create{Validate: declare.AdaptValidation(validateFlowSchema)},
		Update: registry.Update{
			Order:      registry.Order{registry.MetaRules, registry.UpdateRules},
			Generation: true,
			Validate: declare.AdaptUpdateValidation(
				func(fld validate.Field, s, _ *flowcontrolv1.FlowSchema) { validateFlowSchema(fld, s) },
			),
		},
		Presentation: registry.Presentation{
			Columns:  flowSchemaColumns(),
			RowOrder: declare.AdaptResult(func(s *flowcontrolv1.FlowSchema) int { return int(s.Spec.MatchingPrecedence) }),
		},
		Subresources: []registry.Subresource{
			declare.WithResetFields(declare.ValidatedView("status", "FlowSchema", func(s, old *flowcontrolv1.FlowSchema) {
				s.Spec = old.Spec
				keepAllMeta(&s.ObjectMeta, &old.ObjectMeta)
			}, func(fld validate.Field, s, _ *flowcontrolv1.FlowSchema) { validateFlowSchemaStatus(fld, s) }), "spec", "metadata"),
		},
	})
}

// defaultPrecedence is the default matching precedence of a schema.
const defaultPrecedence = 1000

func flowSchemaColumns() []registry.Column {
	spec := func(name string) string { return columns.Doc(flowcontrolv1.FlowSchemaSpec{}, name) }
	return []registry.Column{
		columns.Name(),
		columns.Text(
			"PriorityLevel",
			columns.Doc(flowcontrolv1.PriorityLevelConfigurationReference{}, "name"),
			func(flowSchema *flowcontrolv1.FlowSchema) string {
				return flowSchema.Spec.PriorityLevelConfiguration.Name
			},
		),
		columns.New("MatchingPrecedence", columns.String, "", spec("matchingPrecedence"), 0, func(flowSchema *flowcontrolv1.FlowSchema) any {
			return int64(flowSchema.Spec.MatchingPrecedence)
		}),
		columns.Text("DistinguisherMethod", spec("distinguisherMethod"), func(flowSchema *flowcontrolv1.FlowSchema) string {
			if flowSchema.Spec.DistinguisherMethod == nil {
				return columns.None
			}
			return string(flowSchema.Spec.DistinguisherMethod.Type)
		}),
		columns.Age(),
		columns.Text("MissingPL", "references a broken or non-existent PriorityLevelConfiguration", danglingText),
	}
}

// danglingText returns the status of the condition Dangling, or "?" without that condition.
func danglingText(s *flowcontrolv1.FlowSchema) string {
	for _, c := range s.Status.Conditions {
		if c.Type == flowcontrolv1.FlowSchemaConditionDangling {
			return string(c.Status)
		}
	}
	return "?"
}
