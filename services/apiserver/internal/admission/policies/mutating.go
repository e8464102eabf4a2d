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

// Mutating is the plugin of MutatingAdmissionPolicies.
type Mutating struct {
	Config
	policies *policySet
}

// NewMutating returns the plugin.
func NewMutating(c Config, policies, bindings admission.Source) *Mutating {
	m := &Mutating{Config: c}
	m.policies = newPolicySet(&m.Config, policies, bindings,
		func(o metav1.Object) *policy {
			return newMutatingPolicy(o.(*alphav1.MutatingAdmissionPolicy), c.Programs)
		},
		func(o metav1.Object) *binding {
			return newMutatingBinding(o.(*alphav1.MutatingAdmissionPolicyBinding))
		})
	return m
}

// reinvocationKey is the key under which a request keeps the state for its second run.
type reinvocationKey struct{}

// Admit implements admission.Mutator. It first determines the matching policies. Then they change
// the object in order. Each policy sees the changes of earlier ones.
func (m *Mutating) Admit(ctx context.Context, r *admission.Request) error {
	found, err := candidates(ctx, &m.Config, m.policies, r)
	if err != nil || len(found) == 0 {
		return err
	}
	ctx = r.Metered(ctx)
	e := &mutatingEvaluation{requestEvaluation: requestEvaluation{config: &m.Config, ctx: ctx, request: r, views: m.views(ctx, r)}, reinvocation: r.Reinvocation(reinvocationKey{})}
	for i := range found {
		if err := e.collect(&found[i]); err != nil {
			return err
		}
	}
	for i := range e.invocations {
		if err := e.invoke(&e.invocations[i]); err != nil {
			return err
		}
	}
	if err := e.views.WriteBack(); err != nil {
		return err
	}
	if e.changed { // including policies that were evaluated after the last change
		e.reinvocation.Changed()
	}
	e.reinvocation.End()
	return e.rejection()
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
	policy  *policy
	binding *binding
	as      matcher.MatchedKind
	param   parameter
}

// key identifies an invocation.
func (i *invocation) key() string {
	return i.policy.name + "\n" + i.binding.name + "\n" + i.param.name()
}

// addRefusal records a rejection, unless the policy ignores failures.
func (e *mutatingEvaluation) addRefusal(p *policy, b *binding, reason metav1.StatusReason, err error) {
	if p.ignore {
		return
	}
	f := rejection{policy: p.name, message: err.Error(), reason: reason}
	if b != nil {
		f.binding = b.name
	}
	e.rejections = append(e.rejections, f)
}

// collect collects the invocations of a policy. It returns an error if the request has ended or is
// throttled.
func (e *mutatingEvaluation) collect(candidate *matcher.Candidate[*boundPolicy]) error {
	p := candidate.Value.policy
	as, kind, ok, err := e.selects(candidate)
	if err != nil {
		e.addRefusal(p, nil, "", fmt.Errorf("failed to configure policy: %w", err))
		return nil
	}
	if !ok {
		return nil
	}
	for _, b := range candidate.Value.bindings {
		params, err := e.params(b, kind)
		if requestEnded(e.ctx, err) {
			return err
		}
		if err != nil {
			e.addRefusal(p, b, "", fmt.Errorf("failed to configure binding: %w", err))
			continue
		}
		for _, param := range params {
			e.invocations = append(e.invocations, invocation{p, b, as, param})
		}
	}
	return nil
}

// invoke applies a policy to the request if its conditions hold.
func (e *mutatingEvaluation) invoke(i *invocation) error {
	subject, view, err := e.subject(i.as)
	if err != nil {
		return err
	}
	tree, err := i.param.tree(e.ctx)
	if requestEnded(e.ctx, err) {
		return err
	}
	if err != nil {
		e.addRefusal(i.policy, i.binding, "", fmt.Errorf("failed to configure binding: %w", err))
		return nil
	}
	rules := i.policy.compile()
	evaluation := &policyEvaluation{rules: rules, ctx: e.ctx, input: subject.withParam(tree)}
	ok, _, err := rules.conditions.Match(e.ctx, &evaluation.input)
	switch {
	case subject.Err != nil:
		return apierrors.NewInternalError(subject.Err)
	case err != nil:
		e.addRefusal(i.policy, i.binding, metav1.StatusReasonInvalid, err)
		return nil
	case !ok || !e.reinvocation.ShouldCall(i.key()):
		return nil
	}
	for n := range rules.mutations {
		if view.Object == nil { // nothing to change
			break
		}
		start := time.Now()
		obj, class, err := evaluation.mutate(e.config, &rules.mutations[n], view)
		e.config.Metrics.observe(i.policy.name, i.binding.name, class, "", time.Since(start))
		switch {
		case subject.Err != nil:
			return apierrors.NewInternalError(subject.Err)
		case err != nil:
			e.addRefusal(i.policy, i.binding, metav1.StatusReasonInvalid, err)
		case obj != nil && view.Replace(obj):
			e.changed = true
		}
	}
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
	for i, f := range e.rejections {
		message := fmt.Sprintf("policy '%s' with binding '%s' denied request: %s", f.policy, f.binding, f.message)
		if f.binding == "" {
			message = fmt.Sprintf("policy %q denied request: %s", f.policy, f.message)
		}
		if i == 0 {
			status.ErrStatus.Message = message
			if f.reason != "" {
				status.ErrStatus.Reason = f.reason
			}
		}
		status.ErrStatus.Details.Causes = append(status.ErrStatus.Details.Causes, metav1.StatusCause{Message: message})
	}
	return status
}
