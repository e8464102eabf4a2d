package policies

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"binnacle/services/apiserver/internal/admission"
	"binnacle/services/apiserver/internal/admission/matcher"
	"binnacle/services/apiserver/internal/api/apiset"
	"binnacle/services/apiserver/internal/request"
)

// ValidatingName is the name of the plugin.
const ValidatingName = "ValidatingAdmissionPolicy"

// Validating is the plugin that enforces ValidatingAdmissionPolicies.
type Validating struct {
	Config
	policies *policySet
}

// NewValidating returns a plugin that enforces the policies and bindings of two sources.
func NewValidating(config Config, policies, bindings admission.Source) *Validating {
	validating := &Validating{Config: config}
	validating.policies = newPolicySet(&validating.Config, policies, bindings,
		func(o metav1.Object) *policy {
			return newValidatingPolicy(o.(*admissionregistrationv1.ValidatingAdmissionPolicy), config.Programs)
		},
		func(o metav1.Object) *binding {
			return newValidatingBinding(o.(*admissionregistrationv1.ValidatingAdmissionPolicyBinding))
		})
	return validating
}

// rejection is the rejection of a request by a policy.
type rejection struct {
	policy, binding string
	message         string
	reason          metav1.StatusReason
}

// Validate implements admission.Validator. It evaluates all matching policies. The first rejection
// is the result.
func (v *Validating) Validate(ctx context.Context, req *admission.Request) error {
	found, err := candidates(ctx, &v.Config, v.policies, req)
	if err != nil || len(found) == 0 {
		return err
	}
	ctx = req.Metered(ctx)
	evaluation := &validatingEvaluation{
		Validating:        v,
		requestEvaluation: requestEvaluation{config: &v.Config, ctx: ctx, request: req, views: v.views(ctx, req)},
	}
	for i := range found {
		if err := evaluation.evaluatePolicy(&found[i]); err != nil {
			return err
		}
	}
	return evaluation.rejection()
}

// validatingEvaluation is the evaluation of one request by all validating policies.
type validatingEvaluation struct {
	*Validating
	requestEvaluation
	rejections []rejection
}

// recordFailure records that a policy rejects the request because the policy, or its binding if
// binding is not nil, could not be evaluated. It does nothing if the policy ignores failures.
func (e *validatingEvaluation) recordFailure(policy *policy, binding *binding, err error) {
	if policy.ignore {
		return
	}
	rejected := rejection{policy: policy.name, reason: metav1.StatusReasonInvalid}
	if binding == nil {
		rejected.message = "failed to configure policy: " + err.Error()
	} else {
		rejected.binding = binding.name
		rejected.message = "failed to configure binding: " + err.Error()
	}
	e.rejections = append(e.rejections, rejected)
}

// evaluatePolicy evaluates one policy with each of its bindings. It returns an error only if the
// request cannot be processed; rejections by the policy are recorded.
func (e *validatingEvaluation) evaluatePolicy(candidate *matcher.Candidate[*boundPolicy]) error {
	policy := candidate.Value.policy
	matchedKind, kind, ok, err := e.selects(candidate)
	if err != nil {
		e.recordFailure(policy, nil, err)
		return nil
	}
	if !ok {
		return nil
	}
	auditAnnotations := annotations{}
	for _, b := range candidate.Value.bindings {
		if err := e.evaluateBinding(policy, b, kind, matchedKind, auditAnnotations); err != nil {
			return err
		}
	}
	for key, values := range auditAnnotations {
		e.request.Annotate(policy.name+"/"+key, strings.Join(values, ", "))
	}
	return nil
}

// evaluateBinding evaluates a policy for each parameter of a binding.
func (e *validatingEvaluation) evaluateBinding(
	policy *policy,
	binding *binding,
	kind *apiset.Resource,
	matchedKind matcher.MatchedKind,
	auditAnnotations annotations,
) error {
	params, err := e.params(binding, kind)
	if requestEnded(e.ctx, err) {
		return err
	}
	if err != nil {
		e.recordFailure(policy, binding, err)
		return nil
	}
	if len(params) == 0 {
		return nil
	}
	in, err := e.cachedInput(matchedKind)
	if err != nil {
		return err
	}
	rules := policy.compile()
	for i := range params {
		tree, err := params[i].tree(e.ctx)
		if requestEnded(e.ctx, err) {
			return err
		}
		if err != nil {
			e.recordFailure(policy, binding, err)
			return nil
		}
		evaluation := &policyEvaluation{rules: rules, ctx: e.ctx, input: in.withParam(tree)}
		e.evaluateParameter(policy, binding, evaluation, auditAnnotations)
		if in.Err != nil {
			return apierrors.NewInternalError(in.Err)
		}
	}
	return nil
}

// evaluateParameter records the results of a policy for one parameter.
func (e *validatingEvaluation) evaluateParameter(
	policy *policy,
	binding *binding,
	evaluation *policyEvaluation,
	auditAnnotations annotations,
) {
	ok, _, err := evaluation.conditions.Match(e.ctx, &evaluation.input)
	switch {
	case err != nil:
		e.applyActions(policy, binding, 0, failedDecision(err, errorInvalid))
		return
	case !ok:
		return
	}
	for i, d := range evaluation.validate() {
		e.applyActions(policy, binding, i, d)
	}
	found, err := evaluation.auditAnnotations()
	if err != nil {
		e.applyActions(policy, binding, 0, failedDecision(err, errorBudget))
		return
	}
	for _, auditAnnotation := range found {
		switch {
		case auditAnnotation.err == nil:
			auditAnnotations.add(auditAnnotation.key, auditAnnotation.value)
		case !policy.ignore:
			e.Metrics.observe(policy.name, binding.name, errorInvalid, denied, 0)
			e.rejections = append(e.rejections,
				rejection{policy: policy.name, binding: binding.name, message: auditAnnotation.err.Error(), reason: metav1.StatusReasonInvalid})
		}
	}
}

// applyActions carries out the actions of a binding (Deny, Warn, Audit) for a decision. index is
// the index of the validation in the policy.
func (e *validatingEvaluation) applyActions(policy *policy, binding *binding, index int, result decision) {
	if !result.denied || result.failed && policy.ignore {
		e.Metrics.observe(policy.name, binding.name, result.class, allowed, result.duration)
		return
	}
	for _, action := range binding.actions {
		switch action {
		case admissionregistrationv1.Deny:
			e.Metrics.observe(policy.name, binding.name, result.class, denied, result.duration)
			e.rejections = append(e.rejections, rejection{policy: policy.name, binding: binding.name, message: result.message, reason: result.reason})
		case admissionregistrationv1.Warn:
			e.Metrics.observe(policy.name, binding.name, result.class, warned, result.duration)
			request.Warn(e.ctx,
				fmt.Sprintf("Validation failed for ValidatingAdmissionPolicy '%s' with binding '%s': %s", policy.name, binding.name, result.message))
		case admissionregistrationv1.Audit:
			e.Metrics.observe(policy.name, binding.name, result.class, audited, result.duration)
			e.annotateFailure(policy, binding, index, result.message)
		}
	}
}

// failureKey is the key of the audit annotation that records a failed validation.
const failureKey = "validation.policy.admission.k8s.io/validation_failure"

// annotateFailure adds the audit annotation failureKey to the request.
func (e *validatingEvaluation) annotateFailure(policy *policy, binding *binding, index int, message string) {
	type failure struct {
		Message           string                                     `json:"message"`
		Policy            string                                     `json:"policy"`
		Binding           string                                     `json:"binding"`
		ExpressionIndex   int                                        `json:"expressionIndex"`
		ValidationActions []admissionregistrationv1.ValidationAction `json:"validationActions"`
	}
	if data, err := json.Marshal([]failure{{Message: message, Policy: policy.name, Binding: binding.name, ExpressionIndex: index, ValidationActions: binding.actions}}); err == nil {
		e.request.Annotate(failureKey, string(data))
	}
}

// rejection returns the first recorded rejection as a Status, or nil if there is none.
func (e *validatingEvaluation) rejection() error {
	if len(e.rejections) == 0 {
		return nil
	}
	rejected := e.rejections[0]
	message := fmt.Sprintf("ValidatingAdmissionPolicy '%s' denied request: %s", rejected.policy, rejected.message)
	if rejected.binding != "" {
		message = fmt.Sprintf("ValidatingAdmissionPolicy '%s' with binding '%s' denied request: %s", rejected.policy, rejected.binding, rejected.message)
	}
	return rejectionStatus(e.request, message, rejected.reason)
}

// rejectionStatus returns a Status with a reason. If the reason is empty, it is Invalid.
func rejectionStatus(r *admission.Request, message string, reason metav1.StatusReason) error {
	err := r.Forbidden(errors.New(message))
	var status *apierrors.StatusError
	if !errors.As(err, &status) {
		return err
	}
	if reason == "" {
		reason = metav1.StatusReasonInvalid
	}
	status.ErrStatus.Reason = reason
	status.ErrStatus.Code = httpCodeOf(reason)
	status.ErrStatus.Details.Causes = append(status.ErrStatus.Details.Causes, metav1.StatusCause{Message: message})
	return status
}

// httpCodeOf returns the HTTP status code for a reason that a policy may give.
func httpCodeOf(reason metav1.StatusReason) int32 {
	switch reason {
	case metav1.StatusReasonForbidden:
		return http.StatusForbidden
	case metav1.StatusReasonUnauthorized:
		return http.StatusUnauthorized
	case metav1.StatusReasonRequestEntityTooLarge:
		return http.StatusRequestEntityTooLarge
	}
	return http.StatusUnprocessableEntity
}

// maxAnnotation is the maximum length in bytes of an audit annotation's value.
const maxAnnotation = 10 << 10

// annotations holds the values of one policy's audit annotations by key, without duplicates.
type annotations map[string][]string

// add adds a value, truncated to maxAnnotation.
func (a annotations) add(key, value string) {
	if len(value) > maxAnnotation {
		value = value[:maxAnnotation]
	}
	if !slices.Contains(a[key], value) {
		a[key] = append(a[key], value)
	}
}
