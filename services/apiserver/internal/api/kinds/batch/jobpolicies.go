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

// Limits of the policies of jobs.
const (
	mostPolicyRules   = 20
	mostConditions    = 20
	mostExitCodes     = 255
	longestIndexesSet = 64 * 1024
)

// failurePolicyRules validates the effects of failed pods on the job.
func failurePolicyRules(fldPath validate.Path, s *batchv1.JobSpec) {
	validate.MaxItems(fldPath, "rules", s.PodFailurePolicy.Rules, mostPolicyRules)
	containers := validate.Set[string]{}
	for _, list := range [][]corev1.Container{s.Template.Spec.Containers, s.Template.Spec.InitContainers} {
		for i := range list {
			containers.Add(list[i].Name)
		}
	}
	validate.Each(fldPath, "rules", s.PodFailurePolicy.Rules, func(fldPath validate.Path, r *batchv1.PodFailurePolicyRule) {
		if r.Action == batchv1.PodFailurePolicyActionFailIndex && s.BackoffLimitPerIndex == nil {
			fldPath.Invalid("action", r.Action, "requires the backoffLimitPerIndex to be set")
		}
		validate.NamedOneOf(fldPath, "action", r.Action, batchv1.PodFailurePolicyActionCount, batchv1.PodFailurePolicyActionFailIndex,
			batchv1.PodFailurePolicyActionFailJob, batchv1.PodFailurePolicyActionIgnore)
		validate.Optional(fldPath, "onExitCodes", r.OnExitCodes, func(fldPath validate.Path, codes *batchv1.PodFailurePolicyOnExitCodesRequirement) {
			exitCodeRules(fldPath, codes, containers)
		})
		validate.MaxItems(fldPath, "onPodConditions", r.OnPodConditions, mostConditions)
		validate.Each(fldPath, "onPodConditions", r.OnPodConditions, func(fldPath validate.Path, c *batchv1.PodFailurePolicyOnPodConditionsPattern) {
			fldPath.Text("type", string(c.Type), validate.QualifiedName)
			validate.NamedOneOf(fldPath, "status", c.Status, corev1.ConditionFalse, corev1.ConditionTrue, corev1.ConditionUnknown)
		})
		switch codes, conditions := r.OnExitCodes != nil, len(r.OnPodConditions) > 0; {
		case codes && conditions:
			fldPath.InvalidOmitValue("", "specifying both OnExitCodes and OnPodConditions is not supported")
		case !codes && !conditions:
			fldPath.InvalidOmitValue("", "specifying one of OnExitCodes and OnPodConditions is required")
		}
	})
}

func exitCodeRules(fldPath validate.Path, codes *batchv1.PodFailurePolicyOnExitCodesRequirement, containers validate.Set[string]) {
	validate.NamedOneOf(fldPath, "operator", codes.Operator, batchv1.PodFailurePolicyOnExitCodesOpIn, batchv1.PodFailurePolicyOnExitCodesOpNotIn)
	if name := codes.ContainerName; name != nil && !containers.Has(*name) {
		fldPath.Invalid("containerName", *name, "must be one of the container or initContainer names in the pod template")
	}
	if len(codes.Values) == 0 {
		fldPath.Invalid("values", codes.Values, "at least one value is required")
	}
	validate.MaxItems(fldPath, "values", codes.Values, mostExitCodes)
	seen := validate.Set[int32]{}
	validate.Each(fldPath, "values", codes.Values, func(fldPath validate.Path, code *int32) {
		validate.Unique(fldPath, "", *code, seen)
		if *code == 0 && codes.Operator == batchv1.PodFailurePolicyOnExitCodesOpIn {
			fldPath.Invalid("", *code, "must not be 0 for the In operator")
		}
	})
	if !slices.IsSorted(codes.Values) {
		fldPath.Invalid("values", codes.Values, "must be ordered")
	}
}

// successPolicyRules validates the conditions for the success of a job before all its indexes have
// succeeded.
func successPolicyRules(fldPath validate.Path, s *batchv1.JobSpec) {
	if !indexed(s) {
		fldPath.Invalid("successPolicy", *s.SuccessPolicy, "requires indexed completion mode")
		return
	}
	policy := fldPath.Child("successPolicy")
	if len(s.SuccessPolicy.Rules) == 0 {
		policy.Required("rules", "at least one rules must be specified when the successPolicy is specified")
	}
	validate.MaxItems(policy, "rules", s.SuccessPolicy.Rules, mostPolicyRules)
	validate.Each(policy, "rules", s.SuccessPolicy.Rules, func(fldPath validate.Path, r *batchv1.SuccessPolicyRule) {
		if r.SucceededCount == nil && r.SucceededIndexes == nil {
			fldPath.Required("", "at least one of succeededCount or succeededIndexes must be specified")
		}
		if s.Completions == nil {
			return // already reported
		}
		var named int32
		if r.SucceededIndexes != nil {
			fldPath.MaxBytes("succeededIndexes", *r.SucceededIndexes, longestIndexesSet)
			named = indexesRules(fldPath, "succeededIndexes", *r.SucceededIndexes, *s.Completions)
		}
		validate.OptionalNonNegative(fldPath, "succeededCount", r.SucceededCount)
		if n := r.SucceededCount; n != nil && *n > *s.Completions {
			fldPath.Invalid("succeededCount", *n, fmt.Sprintf("must be less than or equal to %d (the number of specified completions)", *s.Completions))
		}
		if n := r.SucceededCount; n != nil && r.SucceededIndexes != nil && *n > named {
			fldPath.Invalid("succeededCount", *n, fmt.Sprintf("must be less than or equal to %d (the number of indexes in the specified succeededIndexes field)", named))
		}
	})
}

// indexesRules requires a list of indexes and ranges in ascending order, such as "1,3-5", below the
// number of completions. It returns the number of indexes, or zero after an error.
func indexesRules(fldPath validate.Path, name, text string, completions int32) int32 {
	var total int32
	err := eachInterval(text, completions, func(first, last int32) error {
		total += last - first + 1
		return nil
	})
	if err != nil {
		fldPath.Invalid(name, text, fmt.Sprintf("error parsing %s: %v", name, err))
		return 0
	}
	return total
}

// eachInterval calls visit with the intervals of a list of indexes.
func eachInterval(text string, completions int32, visit func(first, last int32) error) error {
	if text == "" {
		return nil
	}
	before := int32(-1)
	for part := range strings.SplitSeq(text, ",") {
		first, last, err := interval(part, completions)
		if err != nil {
			return err
		}
		if before >= 0 && before >= first {
			return fmt.Errorf("non-increasing order, previous: %d, current: %d", before, first)
		}
		before = last
		if err := visit(first, last); err != nil {
			return err
		}
	}
	return nil
}

func interval(part string, completions int32) (first, last int32, err error) {
	from, to, ranged := strings.Cut(part, "-")
	if strings.Contains(to, "-") {
		return 0, 0, fmt.Errorf("the fragment %q violates the requirement that an index interval can have at most two parts separated by '-'", part)
	}
	first, err = index(from, completions)
	if err != nil || !ranged {
		return first, first, err
	}
	last, err = index(to, completions)
	if err == nil && first >= last {
		err = fmt.Errorf("non-increasing order, previous: %d, current: %d", first, last)
	}
	return first, last, err
}

func index(text string, completions int32) (int32, error) {
	n, err := strconv.Atoi(text)
	if err != nil {
		return 0, fmt.Errorf("cannot convert string to integer for index: %q", text)
	}
	if n >= int(completions) {
		return 0, fmt.Errorf("too large index: %q", text)
	}
	return int32(max(n, -1)), nil //nolint:gosec // below completions
}

// overlap returns the first index that two lists of indexes share.
func overlap(a, b string, completions int32) (int32, bool) {
	type span struct{ first, last int32 }
	var spans []span
	for part := range strings.SplitSeq(a, ",") {
		if first, last, err := interval(part, completions); err == nil {
			spans = append(spans, span{first, last})
		}
	}
	for part := range strings.SplitSeq(b, ",") {
		first, last, err := interval(part, completions)
		if err != nil {
			continue
		}
		// Intervals in order, as required, are visited only once.
		for len(spans) > 0 && spans[0].last < first {
			spans = spans[1:]
		}
		if len(spans) > 0 && spans[0].first <= last {
			return max(first, spans[0].first), true
		}
	}
	return 0, false
}
