package policies

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"binnacle/services/apiserver/internal/admission"
	"binnacle/services/apiserver/internal/admission/matcher"
	"binnacle/services/apiserver/internal/api/apiset"
	"binnacle/services/apiserver/internal/request"
)

// ValidatingName is the name of the plugin.
const ValidatingName = "ValidatingAdmissionPolicy"

// Validating is the plugin of ValidatingAdmissionPolicies.
type Validating struct {
	Config
	configured *configured[*policy, *binding]
}

// NewValidating returns the plugin.
func NewValidating(c Config, policies, bindings Source) *Validating {
	v := &Validating{Config: c}
	v.configured = (&configured[*policy, *binding]{
		policies: policies, bindings: bindings, family: c.Family, log: c.Logger,
		policy: func(o metav1.Object) (*policy, *matcher.Criterion) {
			return newPolicy(o.(*admissionv1.ValidatingAdmissionPolicy), c.Programs)
		},
		binding: func(o metav1.Object) (string, *binding) {
			return newBinding(o.(*admissionv1.ValidatingAdmissionPolicyBinding))
		},
	}).withCompilers()
	if c.Metrics != nil {
		c.Metrics.keepWhileBound(v.configured.pairs)
	}
	return v
}

// refusal is the rejection of a request by a policy.
type refusal struct {
	policy, binding string
	message         string
	reason          metav1.StatusReason
}

// Validate implements admission.Validator. It evaluates all matching policies. The first rejection
// is the result.
func (v *Validating) Validate(ctx context.Context, r *admission.Request) error {
	found, err := candidates(ctx, &v.Config, v.configured, r)
	if err != nil || len(found) == 0 {
		return err
	}
	ctx = r.Metered(ctx)
	q := &validatingEvaluation{Validating: v, requestEvaluation: requestEvaluation{config: &v.Config, ctx: ctx, request: r, views: v.views(ctx, r)}}
	for i := range found {
		if err := q.evaluatePolicy(&found[i]); err != nil {
			return err
		}
	}
	return q.rejection()
}

// validatingEvaluation is the evaluation of one request by all validating policies.
type validatingEvaluation struct {
	*Validating
	requestEvaluation
	refusals []refusal
}

// addRefusal records that a policy or binding could not be evaluated.
func (q *validatingEvaluation) addRefusal(p *policy, b *binding, err error) {
	if p.ignore {
		return
	}
	f := refusal{policy: p.name, reason: metav1.StatusReasonInvalid}
	if b == nil {
		f.message = "failed to configure policy: " + err.Error()
	} else {
		f.binding = b.name
		f.message = "failed to configure binding: " + err.Error()
	}
	q.refusals = append(q.refusals, f)
}

// evaluatePolicy evaluates one policy with all of its bindings.
func (q *validatingEvaluation) evaluatePolicy(c *matcher.Candidate[*boundPolicy[*policy, *binding]]) error {
	p := c.Value.policy
	as, kind, ok, err := q.selects(c)
	if err != nil {
		q.addRefusal(p, nil, err)
		return nil
	}
	if !ok {
		return nil
	}
	notes := annotations{}
	for _, b := range c.Value.bindings {
		if err := q.evaluateBinding(p, b, kind, as, notes); err != nil {
			return err
		}
	}
	for key, values := range notes {
		q.request.Annotate(p.name+"/"+key, strings.Join(values, ", "))
	}
	return nil
}

// evaluateBinding evaluates a policy for each parameter of a binding.
func (q *validatingEvaluation) evaluateBinding(p *policy, b *binding, kind *apiset.Resource, as matcher.MatchedKind, notes annotations) error {
	params, err := q.params(b, kind)
	if requestEnded(q.ctx, err) {
		return err
	}
	if err != nil {
		q.addRefusal(p, b, err)
		return nil
	}
	if len(params) == 0 {
		return nil
	}
	subject, err := q.cachedSubject(as)
	if err != nil {
		return err
	}
	rules := p.compile()
	for i := range params {
		tree, err := params[i].tree(q.ctx)
		if requestEnded(q.ctx, err) {
			return err
		}
		if err != nil {
			q.addRefusal(p, b, err)
			return nil
		}
		o := &policyEvaluation{rules: rules, ctx: q.ctx, input: subject.withParam(tree)}
		q.evaluateParameter(p, b, o, notes)
		if subject.Err != nil {
			return apierrors.NewInternalError(subject.Err)
		}
	}
	return nil
}

// evaluateParameter records the results of a policy for one parameter.
func (q *validatingEvaluation) evaluateParameter(p *policy, b *binding, o *policyEvaluation, notes annotations) {
	ok, _, err := o.conditions.Hold(q.ctx, &o.input)
	switch {
	case err != nil:
		q.applyActions(p, b, 0, failedDecision(err, errorInvalid))
		return
	case !ok:
		return
	}
	for i, d := range o.validate() {
		q.applyActions(p, b, i, d)
	}
	found, err := o.auditAnnotations()
	if err != nil {
		q.applyActions(p, b, 0, failedDecision(err, errorBudget))
		return
	}
	for _, n := range found {
		switch {
		case n.err == nil:
			notes.add(n.key, n.value)
		case !p.ignore:
			q.Metrics.observe(p.name, b.name, errorInvalid, denied, 0)
			q.refusals = append(q.refusals, refusal{p.name, b.name, n.err.Error(), metav1.StatusReasonInvalid})
		}
	}
}

// applyActions applies the actions of a binding to a result.
func (q *validatingEvaluation) applyActions(p *policy, b *binding, index int, d decision) {
	if !d.denied || d.failed && p.ignore {
		q.Metrics.observe(p.name, b.name, d.class, allowed, d.duration)
		return
	}
	for _, action := range b.actions {
		switch action {
		case admissionv1.Deny:
			q.Metrics.observe(p.name, b.name, d.class, denied, d.duration)
			q.refusals = append(q.refusals, refusal{p.name, b.name, d.message, d.reason})
		case admissionv1.Warn:
			q.Metrics.observe(p.name, b.name, d.class, warned, d.duration)
			request.Warn(q.ctx, fmt.Sprintf("Validation failed for ValidatingAdmissionPolicy '%s' with binding '%s': %s", p.name, b.name, d.message))
		case admissionv1.Audit:
			q.Metrics.observe(p.name, b.name, d.class, audited, d.duration)
			q.annotateFailure(p, b, index, d.message)
		}
	}
}

// failureKey is the audit annotation of a failed validation.
const failureKey = "validation.policy.admission.k8s.io/validation_failure"

// annotateFailure adds the audit annotation of a failed validation.
func (q *validatingEvaluation) annotateFailure(p *policy, b *binding, index int, message string) {
	type failure struct {
		Message           string                         `json:"message"`
		Policy            string                         `json:"policy"`
		Binding           string                         `json:"binding"`
		ExpressionIndex   int                            `json:"expressionIndex"`
		ValidationActions []admissionv1.ValidationAction `json:"validationActions"`
	}
	if text, err := json.Marshal([]failure{{message, p.name, b.name, index, b.actions}}); err == nil {
		q.request.Annotate(failureKey, string(text))
	}
}

// rejection returns one error for all rejections.
func (q *validatingEvaluation) rejection() error {
	if len(q.refusals) == 0 {
		return nil
	}
	f := q.refusals[0]
	message := fmt.Sprintf("ValidatingAdmissionPolicy '%s' denied request: %s", f.policy, f.message)
	if f.binding != "" {
		message = fmt.Sprintf("ValidatingAdmissionPolicy '%s' with binding '%s' denied request: %s", f.policy, f.binding, f.message)
	}
	return rejected(q.request, message, f.reason)
}

// rejected returns a Status with a reason.
func rejected(r *admission.Request, message string, reason metav1.StatusReason) error {
	err := r.Forbidden(errors.New(message))
	var status *apierrors.StatusError
	if !errors.As(err, &status) {
		return err
	}
	if reason == "" {
		reason = metav1.StatusReasonInvalid
	}
	status.ErrStatus.Reason = reason
	status.ErrStatus.Code = codeOf(reason)
	status.ErrStatus.Details.Causes = append(status.ErrStatus.Details.Causes, metav1.StatusCause{Message: message})
	return status
}

// codeOf returns the HTTP status code of a reason.
func codeOf(reason metav1.StatusReason) int32 {
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

// annotations holds the audit annotations of one policy without duplicate values.
type annotations map[string][]string

func (a annotations) add(key, value string) {
	if len(value) > maxAnnotation {
		value = value[:maxAnnotation]
	}
	if !slices.Contains(a[key], value) {
		a[key] = append(a[key], value)
	}
}
