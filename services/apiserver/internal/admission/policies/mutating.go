package policies

import (
	"context"
	"errors"
	"fmt"
	"time"

	alphav1 "k8s.io/api/admissionregistration/v1alpha1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"binnacle/services/apiserver/internal/admission"
	"binnacle/services/apiserver/internal/admission/matcher"
)

// MutatingName is the name of the plugin.
const MutatingName = "MutatingAdmissionPolicy"

// Mutating is the plugin that applies MutatingAdmissionPolicies.
type Mutating struct {
	Config
	policies *policySet
}

// NewMutating returns a plugin that applies the policies and bindings of two sources.
func NewMutating(config Config, policies, bindings admission.Source) *Mutating {
	mutating := &Mutating{Config: config}
	mutating.policies = newPolicySet(&mutating.Config, policies, bindings,
		func(o metav1.Object) *policy {
			return newMutatingPolicy(o.(*alphav1.MutatingAdmissionPolicy), config.Programs)
		},
		func(o metav1.Object) *binding {
			return newMutatingBinding(o.(*alphav1.MutatingAdmissionPolicyBinding))
		})
	return mutating
}

// reinvocationKey is the key under which a request keeps the state for its second run.
type reinvocationKey struct{}

// Admit implements admission.Mutator. It first determines which policies match the object as it is.
// Then it applies these policies in order, and each one sees the changes of earlier ones.
func (m *Mutating) Admit(ctx context.Context, req *admission.Request) error {
	found, err := candidates(ctx, &m.Config, m.policies, req)
	if err != nil || len(found) == 0 {
		return err
	}
	ctx = req.Metered(ctx)
	evaluation := &mutatingEvaluation{
		requestEvaluation: requestEvaluation{config: &m.Config, ctx: ctx, request: req, views: m.views(ctx, req)},
		reinvocation:      req.Reinvocation(reinvocationKey{}),
	}
	// The version before any mutation decides which policies match.
	for i := range found {
		if err := evaluation.addInvocations(&found[i]); err != nil {
			return err
		}
	}
	for i := range evaluation.invocations {
		if err := evaluation.invoke(&evaluation.invocations[i]); err != nil {
			return err
		}
	}
	if err := evaluation.views.WriteBack(); err != nil {
		return err
	}
	if evaluation.changed { // after all invocations, so that a later policy can request reinvocation too
		evaluation.reinvocation.Changed()
	}
	evaluation.reinvocation.End()
	return evaluation.rejection()
}

// mutatingEvaluation is the evaluation of one request by all mutating policies.
type mutatingEvaluation struct {
	requestEvaluation
	reinvocation *admission.Reinvocation
	invocations  []invocation
	rejections   []rejection
	changed      bool
}

// invocation is a matching policy with one of its bindings and one parameter.
type invocation struct {
	policy      *policy
	binding     *binding
	matchedKind matcher.MatchedKind // version in which the policy sees the object
	param       parameter
}

// key identifies an invocation within a request, for admission.Reinvocation.
func (i *invocation) key() string {
	return i.policy.name + "\n" + i.binding.name + "\n" + i.param.name()
}

// recordFailure records that a policy rejects the request because it could not be evaluated. It
// does nothing if the policy ignores failures. binding is nil if the failure concerns the policy
// itself.
func (e *mutatingEvaluation) recordFailure(policy *policy, binding *binding, reason metav1.StatusReason, err error) {
	if policy.ignore {
		return
	}
	rejected := rejection{policy: policy.name, message: err.Error(), reason: reason}
	if binding != nil {
		rejected.binding = binding.name
	}
	e.rejections = append(e.rejections, rejected)
}

// addInvocations adds the invocations of a policy, one for each binding and parameter. It returns
// an error only if the request has ended or is throttled.
func (e *mutatingEvaluation) addInvocations(candidate *matcher.Candidate[*boundPolicy]) error {
	policy := candidate.Value.policy
	matchedKind, kind, ok, err := e.selects(candidate)
	if err != nil {
		e.recordFailure(policy, nil, "", fmt.Errorf("failed to configure policy: %w", err))
		return nil
	}
	if !ok {
		return nil
	}
	for _, binding := range candidate.Value.bindings {
		params, err := e.params(binding, kind)
		if requestEnded(e.ctx, err) {
			return err
		}
		if err != nil {
			e.recordFailure(policy, binding, "", fmt.Errorf("failed to configure binding: %w", err))
			continue
		}
		for _, param := range params {
			e.invocations = append(e.invocations, invocation{policy: policy, binding: binding, matchedKind: matchedKind, param: param})
		}
	}
	return nil
}

// invoke applies the mutations of a policy to the object if the policy's match conditions are true.
func (e *mutatingEvaluation) invoke(i *invocation) error {
	// 1. Collect the values that the policy's expressions see.
	in, view, err := e.newInput(i.matchedKind)
	if err != nil {
		return err
	}
	tree, err := i.param.tree(e.ctx)
	if requestEnded(e.ctx, err) {
		return err
	}
	if err != nil {
		e.recordFailure(i.policy, i.binding, "", fmt.Errorf("failed to configure binding: %w", err))
		return nil
	}

	// 2. Check the match conditions, and whether a reinvocation concerns this policy.
	rules := i.policy.compile()
	evaluation := &policyEvaluation{rules: rules, ctx: e.ctx, input: in.withParam(tree)}
	ok, _, err := rules.conditions.Match(e.ctx, &evaluation.input)
	switch {
	case in.Err != nil:
		return apierrors.NewInternalError(in.Err)
	case err != nil:
		e.recordFailure(i.policy, i.binding, metav1.StatusReasonInvalid, err)
		return nil
	case !ok || !e.reinvocation.ShouldCall(i.key()):
		return nil
	}

	// 3. Apply the mutations in order. A failure does not prevent the next ones.
	for index := range rules.mutations {
		if view.Object == nil { // nothing to change
			break
		}
		start := time.Now()
		obj, class, err := evaluation.mutate(e.config, &rules.mutations[index], view)
		e.config.Metrics.observe(i.policy.name, i.binding.name, class, "", time.Since(start))
		switch {
		case in.Err != nil:
			return apierrors.NewInternalError(in.Err)
		case err != nil:
			e.recordFailure(i.policy, i.binding, metav1.StatusReasonInvalid, err)
		case obj != nil && view.Replace(obj):
			e.changed = true
		}
	}

	// 4. Let the policy run again if a later plugin or policy changes the object.
	if i.policy.reinvoke {
		e.reinvocation.WantsReinvocation(i.key())
	}
	return nil
}

// rejection returns one error for all rejections, with the message of the first one. Each rejection
// is a cause.
func (e *mutatingEvaluation) rejection() error {
	if len(e.rejections) == 0 {
		return nil
	}
	err := e.request.Forbidden(errors.New("admission request denied by policy"))
	var status *apierrors.StatusError
	if !errors.As(err, &status) {
		return err
	}
	for i, rejected := range e.rejections {
		message := fmt.Sprintf("policy '%s' with binding '%s' denied request: %s", rejected.policy, rejected.binding, rejected.message)
		if rejected.binding == "" {
			message = fmt.Sprintf("policy %q denied request: %s", rejected.policy, rejected.message)
		}
		if i == 0 {
			status.ErrStatus.Message = message
			if rejected.reason != "" {
				status.ErrStatus.Reason = rejected.reason
			}
		}
		status.ErrStatus.Details.Causes = append(status.ErrStatus.Details.Causes, metav1.StatusCause{Message: message})
	}
	return status
}
