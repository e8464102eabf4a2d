package flowcontrolgroup

import (
	"fmt"
	"math"

	flowcontrolv1 "k8s.io/api/flowcontrol/v1"

	"binnacle/services/apiserver/internal/registry/declare"
	"binnacle/services/apiserver/internal/registry/validate"
)

const (
	// maxQueues is the maximum number of queues of a level.
	maxQueues = 10_000_000
	// hashBits is the entropy in bits of a flow's hash. The hash selects the hand of queues to which
	// the requests of a flow are assigned, so dealing a hand must not need more bits.
	hashBits = 60
)

// validatePriorityLevel validates a new or changed priority level.
func validatePriorityLevel(fld validate.Field, configuration *flowcontrolv1.PriorityLevelConfiguration) {
	spec := fld.Child("spec")
	const exempt, limited = flowcontrolv1.PriorityLevelEnablementExempt, flowcontrolv1.PriorityLevelEnablementLimited
	if (configuration.Name == flowcontrolv1.PriorityLevelConfigurationNameExempt) != (configuration.Spec.Type == exempt) {
		spec.Invalid("type", configuration.Spec.Type, "type must be 'Exempt' if and only if name is 'exempt'")
	}
	switch configuration.Spec.Type {
	case exempt:
		spec.ForbidSet("limited", configuration.Spec.Limited != nil, "must be nil if the type is not Limited")
		validate.Optional(spec, "exempt", configuration.Spec.Exempt, func(fld validate.Field, e *flowcontrolv1.ExemptPriorityLevelConfiguration) {
			validateShares(fld, e.NominalConcurrencyShares)
			validateLendablePercent(fld, e.LendablePercent)
		})
	case limited:
		spec.ForbidSet("exempt", configuration.Spec.Exempt != nil, "must be nil if the type is Limited")
		spec.RequireSetWithDetail("limited", configuration.Spec.Limited != nil, "must not be empty when type is Limited")
		validate.Optional(spec, "limited", configuration.Spec.Limited, validateLimitedLevel)
	default:
		validate.OneOf(spec, "type", configuration.Spec.Type, exempt, limited)
	}
	validateMandatoryLevel(fld, configuration)
	validatePriorityLevelStatus(fld, configuration)
}

// validateMandatoryLevel requires the fixed spec of a mandatory level. Only spec.exempt of the level
// exempt may differ from it.
func validateMandatoryLevel(fld validate.Field, l *flowcontrolv1.PriorityLevelConfiguration) {
	fixed := mandatoryLevelSpec(l.Name)
	if fixed == nil {
		return
	}
	exception := ""
	if l.Name == flowcontrolv1.PriorityLevelConfigurationNameExempt {
		fixed.Exempt = l.Spec.Exempt
		exception = " except the 'spec.exempt' field"
	}
	if !validate.SemanticEqual(&l.Spec, fixed) {
		fld.Invalid("spec", l.Spec, fmt.Sprintf("spec of '%s'%s must equal the fixed value", l.Name, exception))
	}
}

func validatePriorityLevelStatus(fld validate.Field, l *flowcontrolv1.PriorityLevelConfiguration) {
	validateConditions(
		fld.Child("status"),
		l.Status.Conditions,
		func(c *flowcontrolv1.PriorityLevelConfigurationCondition) string { return string(c.Type) },
	)
}

func validateLimitedLevel(fld validate.Field, l *flowcontrolv1.LimitedPriorityLevelConfiguration) {
	validateShares(fld, l.NominalConcurrencyShares)
	validateLimitResponse(fld.Child("limitResponse"), &l.LimitResponse)
	validateLendablePercent(fld, l.LendablePercent)
	if p := l.BorrowingLimitPercent; p != nil && *p < 0 {
		fld.Invalid("borrowingLimitPercent", *p, "if specified, must be a non-negative integer")
	}
}

func validateShares(fld validate.Field, shares *int32) {
	if n := declare.Deref(shares); n < 0 {
		fld.Invalid("nominalConcurrencyShares", n, "must be a non-negative integer")
	}
}

func validateLendablePercent(fld validate.Field, percent *int32) {
	if p := declare.Deref(percent); p < 0 || p > 100 {
		fld.Invalid("lendablePercent", p, "must be between 0 and 100, inclusive")
	}
}

func validateLimitResponse(fld validate.Field, limitResponse *flowcontrolv1.LimitResponse) {
	switch limitResponse.Type {
	case flowcontrolv1.LimitResponseTypeReject:
		fld.ForbidSet("queuing", limitResponse.Queuing != nil, "must be nil if limited.limitResponse.type is not Limited")
	case flowcontrolv1.LimitResponseTypeQueue:
		fld.RequireSetWithDetail("queuing", limitResponse.Queuing != nil, "must not be empty if limited.limitResponse.type is Limited")
		validate.Optional(fld, "queuing", limitResponse.Queuing, validateQueuing)
	default:
		validate.OneOf(fld, "type", limitResponse.Type, flowcontrolv1.LimitResponseTypeQueue, flowcontrolv1.LimitResponseTypeReject)
	}
}

func validateQueuing(fld validate.Field, configuration *flowcontrolv1.QueuingConfiguration) {
	const positive = "must be positive"
	if configuration.QueueLengthLimit <= 0 {
		fld.Invalid("queueLengthLimit", configuration.QueueLengthLimit, positive)
	}
	switch {
	case configuration.Queues <= 0:
		fld.Invalid("queues", configuration.Queues, positive)
	case configuration.Queues > maxQueues:
		fld.Invalid("queues", configuration.Queues, fmt.Sprintf("must not be greater than %d", maxQueues))
	}
	switch {
	case configuration.HandSize <= 0:
		fld.Invalid("handSize", configuration.HandSize, positive)
	case configuration.HandSize > configuration.Queues:
		fld.Invalid("handSize", configuration.HandSize, fmt.Sprintf("should not be greater than queues (%d)", configuration.Queues))
	case handBits(configuration) > hashBits:
		fld.Invalid(
			"handSize",
			configuration.HandSize,
			fmt.Sprintf("required entropy bits of deckSize %d and handSize %d should not be greater than %d",
				configuration.Queues, configuration.HandSize, hashBits),
		)
	}
}

// handBits returns the number of bits of a hash that dealing a hand of queues uses.
func handBits(q *flowcontrolv1.QueuingConfiguration) int {
	return int(math.Ceil(math.Log2(float64(q.Queues)) * float64(q.HandSize)))
}
