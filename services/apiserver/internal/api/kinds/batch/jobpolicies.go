package batch

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"

	"binnacle/services/apiserver/internal/registry/validate"
)

// Limits of the policies of jobs. maxIndexesText is in bytes.
const (
	maxPolicyRules       = 20
	maxConditionPatterns = 20
	maxExitCodes         = 255
	maxIndexesText       = 64 * 1024
)

// validateFailurePolicy validates the effects of failed pods on the job.
func validateFailurePolicy(fld validate.Field, spec *batchv1.JobSpec) {
	validate.MaxItems(fld, "rules", spec.PodFailurePolicy.Rules, maxPolicyRules)
	containers := validate.Set[string]{}
	for _, list := range [][]corev1.Container{spec.Template.Spec.Containers, spec.Template.Spec.InitContainers} {
		for i := range list {
			containers.Add(list[i].Name)
		}
	}
	validate.Each(fld, "rules", spec.PodFailurePolicy.Rules, func(fld validate.Field, rule *batchv1.PodFailurePolicyRule) {
		if rule.Action == batchv1.PodFailurePolicyActionFailIndex && spec.BackoffLimitPerIndex == nil {
			fld.Invalid("action", rule.Action, "requires the backoffLimitPerIndex to be set")
		}
		validate.NamedOneOf(fld, "action", rule.Action, batchv1.PodFailurePolicyActionCount, batchv1.PodFailurePolicyActionFailIndex,
			batchv1.PodFailurePolicyActionFailJob, batchv1.PodFailurePolicyActionIgnore)
		validate.Optional(
			fld,
			"onExitCodes",
			rule.OnExitCodes,
			func(fld validate.Field, codes *batchv1.PodFailurePolicyOnExitCodesRequirement) {
				validateExitCodes(fld, codes, containers)
			},
		)
		validate.MaxItems(fld, "onPodConditions", rule.OnPodConditions, maxConditionPatterns)
		validate.Each(
			fld,
			"onPodConditions",
			rule.OnPodConditions,
			func(fld validate.Field, c *batchv1.PodFailurePolicyOnPodConditionsPattern) {
				fld.CheckText("type", string(c.Type), validate.QualifiedName)
				validate.NamedOneOf(fld, "status", c.Status, corev1.ConditionFalse, corev1.ConditionTrue, corev1.ConditionUnknown)
			},
		)
		switch hasCodes, hasConditions := rule.OnExitCodes != nil, len(rule.OnPodConditions) > 0; {
		case hasCodes && hasConditions:
			fld.InvalidOmitValue("", "specifying both OnExitCodes and OnPodConditions is not supported")
		case !hasCodes && !hasConditions:
			fld.InvalidOmitValue("", "specifying one of OnExitCodes and OnPodConditions is required")
		}
	})
}

// validateExitCodes validates a requirement on exit codes. containers holds the names of the pod's
// containers.
func validateExitCodes(
	fld validate.Field,
	codes *batchv1.PodFailurePolicyOnExitCodesRequirement,
	containers validate.Set[string],
) {
	validate.NamedOneOf(
		fld,
		"operator",
		codes.Operator,
		batchv1.PodFailurePolicyOnExitCodesOpIn,
		batchv1.PodFailurePolicyOnExitCodesOpNotIn,
	)
	if name := codes.ContainerName; name != nil && !containers.Has(*name) {
		fld.Invalid("containerName", *name, "must be one of the container or initContainer names in the pod template")
	}
	if len(codes.Values) == 0 {
		fld.Invalid("values", codes.Values, "at least one value is required")
	}
	validate.MaxItems(fld, "values", codes.Values, maxExitCodes)
	seen := validate.Set[int32]{}
	validate.Each(fld, "values", codes.Values, func(fld validate.Field, code *int32) {
		validate.Unique(fld, "", *code, seen)
		if *code == 0 && codes.Operator == batchv1.PodFailurePolicyOnExitCodesOpIn {
			fld.Invalid("", *code, "must not be 0 for the In operator")
		}
	})
	if !slices.IsSorted(codes.Values) {
		fld.Invalid("values", codes.Values, "must be ordered")
	}
}

// validateSuccessPolicy validates the conditions for the success of a job before all its indexes
// have succeeded.
func validateSuccessPolicy(fld validate.Field, jobSpec *batchv1.JobSpec) {
	if !isIndexed(jobSpec) {
		fld.Invalid("successPolicy", *jobSpec.SuccessPolicy, "requires indexed completion mode")
		return
	}
	policy := fld.Child("successPolicy")
	if len(jobSpec.SuccessPolicy.Rules) == 0 {
		policy.Required("rules", "at least one rules must be specified when the successPolicy is specified")
	}
	validate.MaxItems(policy, "rules", jobSpec.SuccessPolicy.Rules, maxPolicyRules)
	validate.Each(policy, "rules", jobSpec.SuccessPolicy.Rules, func(fld validate.Field, rule *batchv1.SuccessPolicyRule) {
		if rule.SucceededCount == nil && rule.SucceededIndexes == nil {
			fld.Required("", "at least one of succeededCount or succeededIndexes must be specified")
		}
		if jobSpec.Completions == nil {
			return // validateIndexing reports it
		}
		var indexCount int32
		if rule.SucceededIndexes != nil {
			fld.CheckMaxBytes("succeededIndexes", *rule.SucceededIndexes, maxIndexesText)
			indexCount = validateIndexes(fld, "succeededIndexes", *rule.SucceededIndexes, *jobSpec.Completions)
		}
		validate.OptionalNonNegative(fld, "succeededCount", rule.SucceededCount)
		if n := rule.SucceededCount; n != nil && *n > *jobSpec.Completions {
			fld.Invalid("succeededCount", *n,
				fmt.Sprintf("must be less than or equal to %d (the number of specified completions)", *jobSpec.Completions))
		}
		if n := rule.SucceededCount; n != nil && rule.SucceededIndexes != nil && *n > indexCount {
			fld.Invalid("succeededCount", *n,
				fmt.Sprintf("must be less than or equal to %d (the number of indexes in the specified succeededIndexes field)", indexCount))
		}
	})
}

// validateIndexes requires a list of indexes and ranges in ascending order, such as "1,3-5", below
// the number of completions. It returns the number of indexes, or zero after an error.
func validateIndexes(fld validate.Field, name, text string, completions int32) int32 {
	var total int32
	err := eachInterval(text, completions, func(first, last int32) error {
		total += last - first + 1
		return nil
	})
	if err != nil {
		fld.Invalid(name, text, fmt.Sprintf("error parsing %s: %v", name, err))
		return 0
	}
	return total
}

// eachInterval calls visit with the intervals of a list of indexes, which must be in ascending order.
func eachInterval(text string, completions int32, visit func(first, last int32) error) error {
	if text == "" {
		return nil
	}
	previous := int32(-1)
	for part := range strings.SplitSeq(text, ",") {
		first, last, err := parseInterval(part, completions)
		if err != nil {
			return err
		}
		if previous >= 0 && previous >= first {
			return fmt.Errorf("non-increasing order, previous: %d, current: %d", previous, first)
		}
		previous = last
		if err := visit(first, last); err != nil {
			return err
		}
	}
	return nil
}

// parseInterval parses an index, or the first and the last index of a range.
func parseInterval(part string, completions int32) (first, last int32, err error) {
	from, to, isRange := strings.Cut(part, "-")
	if strings.Contains(to, "-") {
		return 0, 0, fmt.Errorf(
			"the fragment %q violates the requirement that an index interval can have at most two parts separated by '-'",
			part)
	}
	first, err = parseIndex(from, completions)
	if err != nil || !isRange {
		return first, first, err
	}
	last, err = parseIndex(to, completions)
	if err == nil && first >= last {
		err = fmt.Errorf("non-increasing order, previous: %d, current: %d", first, last)
	}
	return first, last, err
}

// parseIndex parses an index, which must be less than the number of completions.
func parseIndex(text string, completions int32) (int32, error) {
	n, err := strconv.Atoi(text)
	if err != nil {
		return 0, fmt.Errorf("cannot convert string to integer for index: %q", text)
	}
	if n >= int(completions) {
		return 0, fmt.Errorf("too large index: %q", text)
	}
	return int32(max(n, -1)), nil //nolint:gosec // below completions
}

// firstSharedIndex returns the first index that two lists of indexes share. It ignores invalid parts.
func firstSharedIndex(a, b string, completions int32) (index int32, found bool) {
	type span struct{ first, last int32 }
	var spans []span
	for part := range strings.SplitSeq(a, ",") {
		if first, last, err := parseInterval(part, completions); err == nil {
			spans = append(spans, span{first, last})
		}
	}
	for part := range strings.SplitSeq(b, ",") {
		first, last, err := parseInterval(part, completions)
		if err != nil {
			continue
		}
		// Both lists are in ascending order, so the intervals of a below this one are done.
		for len(spans) > 0 && spans[0].last < first {
			spans = spans[1:]
		}
		if len(spans) > 0 && spans[0].first <= last {
			return max(first, spans[0].first), true
		}
	}
	return 0, false
}
