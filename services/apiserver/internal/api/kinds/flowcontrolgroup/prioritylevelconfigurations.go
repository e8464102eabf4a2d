package flowcontrolgroup

import (
	flowcontrolv1 "k8s.io/api/flowcontrol/v1"

	"binnacle/services/apiserver/internal/registry"
	"binnacle/services/apiserver/internal/registry/columns"
	"binnacle/services/apiserver/internal/registry/declare"
	"binnacle/services/apiserver/internal/registry/validate"
)

// priorityLevelConfigurations declares the cluster-scoped kind PriorityLevelConfiguration.
func priorityLevelConfigurations() *registry.Kind {
	return declare.Kind[flowcontrolv1.PriorityLevelConfiguration, flowcontrolv1.PriorityLevelConfigurationList](&registry.Kind{
		Names: registry.Names{Group: group, Version: version, Resource: "prioritylevelconfigurations", Kind: "PriorityLevelConfiguration"},
		Parts: declare.SpecStatusAccessors(func(p *flowcontrolv1.PriorityLevelConfiguration) (*flowcontrolv1.PriorityLevelConfigurationSpec, *flowcontrolv1.PriorityLevelConfigurationStatus) {
			return &p.Spec, &p.Status
		}),
		Default: declare.Adapt(defaultPriorityLevel),
		Create:  registry.Create{Validate: declare.AdaptValidation(validatePriorityLevel)},
		Update: registry.Update{
			Order:      registry.Order{registry.MetaRules, registry.UpdateRules},
			Generation: true,
			Validate: declare.AdaptUpdateValidation(func(fld validate.Field, l, _ *flowcontrolv1.PriorityLevelConfiguration) {
				validatePriorityLevel(fld, l)
			}),
		},
		Presentation: registry.Presentation{Columns: priorityLevelColumns()},
		Subresources: []registry.Subresource{
			declare.WithResetFields(
				declare.ValidatedView("status", "PriorityLevelConfiguration", func(l, old *flowcontrolv1.PriorityLevelConfiguration) {
					l.Spec = old.Spec
					keepAllMeta(&l.ObjectMeta, &old.ObjectMeta)
				}, func(fld validate.Field, l, _ *flowcontrolv1.PriorityLevelConfiguration) {
					validatePriorityLevelStatus(fld, l)
				}),
				"spec",
				"metadata",
			),
		},
	})
}

// Defaults of a limited level with queues.
const (
	defaultQueues      = 64
	defaultHandSize    = 8
	defaultQueueLength = 50
)

func defaultPriorityLevel(l *flowcontrolv1.PriorityLevelConfiguration) {
	if e := l.Spec.Exempt; e != nil {
		declare.SetDefaultPtr(&e.NominalConcurrencyShares, 0)
		declare.SetDefaultPtr(&e.LendablePercent, 0)
	}
	if limited := l.Spec.Limited; limited != nil {
		declare.SetDefaultPtr(&limited.NominalConcurrencyShares, defaultShares)
		declare.SetDefaultPtr(&limited.LendablePercent, 0)
		if q := limited.LimitResponse.Queuing; q != nil {
			declare.SetDefault(&q.Queues, defaultQueues)
			declare.SetDefault(&q.HandSize, defaultHandSize)
			declare.SetDefault(&q.QueueLengthLimit, defaultQueueLength)
		}
	}
}

func priorityLevelColumns() []registry.Column {
	// queuing returns a column with a number, or "<none>" for a level without queues. As in
	// Kubernetes, its type is string.
	queuing := func(name, field string, valueOf func(*flowcontrolv1.QueuingConfiguration) int32) registry.Column {
		return columns.New(name, columns.String, "", columns.Doc(flowcontrolv1.QueuingConfiguration{}, field), 0,
			func(l *flowcontrolv1.PriorityLevelConfiguration) any {
				if l.Spec.Limited == nil || l.Spec.Limited.LimitResponse.Queuing == nil {
					return columns.None
				}
				return int64(valueOf(l.Spec.Limited.LimitResponse.Queuing))
			})
	}
	return []registry.Column{
		columns.Name(),
		columns.Text(
			"Type",
			columns.Doc(flowcontrolv1.PriorityLevelConfigurationSpec{}, "type"),
			func(l *flowcontrolv1.PriorityLevelConfiguration) string {
				return string(l.Spec.Type)
			},
		),
		columns.New(
			"NominalConcurrencyShares",
			columns.String,
			"",
			columns.Doc(flowcontrolv1.LimitedPriorityLevelConfiguration{}, "nominalConcurrencyShares"),
			0,
			func(l *flowcontrolv1.PriorityLevelConfiguration) any { return sharesCell(l) },
		),
		queuing("Queues", "queues", func(q *flowcontrolv1.QueuingConfiguration) int32 { return q.Queues }),
		queuing("HandSize", "handSize", func(q *flowcontrolv1.QueuingConfiguration) int32 { return q.HandSize }),
		queuing(
			"QueueLengthLimit",
			"queueLengthLimit",
			func(q *flowcontrolv1.QueuingConfiguration) int32 { return q.QueueLengthLimit },
		),
		columns.Age(),
	}
}

// defaultShares is the default number of shares of a level.
const defaultShares = 30

// sharesCell returns the shares of a limited level, or "<none>" for another one.
func sharesCell(l *flowcontrolv1.PriorityLevelConfiguration) any {
	switch {
	case l.Spec.Limited == nil:
		return columns.None
	case l.Spec.Limited.NominalConcurrencyShares == nil:
		return int64(defaultShares)
	default:
		return int64(*l.Spec.Limited.NominalConcurrencyShares)
	}
}
