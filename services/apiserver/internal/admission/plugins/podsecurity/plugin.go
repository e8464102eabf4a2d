// Package podsecurity enforces the Pod Security Standards of a namespace on pods and on objects
// with pod templates. k8s.io/pod-security-admission defines the standards and the effect of a
// change of a namespace's labels on its pods. This package connects the library to the chain.
package podsecurity

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	admissionv1 "k8s.io/api/admission/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	library "k8s.io/pod-security-admission/admission"
	"k8s.io/pod-security-admission/admission/api/load"
	"k8s.io/pod-security-admission/api"
	"k8s.io/pod-security-admission/policy"

	"binnacle/services/apiserver/internal/admission"
	"binnacle/services/apiserver/internal/request"
)

// Name is the name of the plugin in flags and configuration.
const Name = "PodSecurity"

// Plugin implements admission.Validator.
type Plugin struct {
	objects   Objects
	standards *library.Admission
	templates library.DefaultPodSpecExtractor
}

// New decodes a PodSecurityConfiguration. An empty one means the default, privileged for all
// namespaces. The caller must call ValidateInitialization afterwards.
func New(configuration []byte, o Objects, m *Metrics) (*Plugin, error) {
	c, err := load.LoadFromData(configuration)
	if err != nil {
		return nil, err
	}
	checks, err := policy.NewEvaluator(policy.DefaultChecks())
	if err != nil {
		return nil, err
	}
	p := &Plugin{objects: o, standards: &library.Admission{
		Configuration: c, Evaluator: checks, Metrics: m, NamespaceGetter: o, PodLister: &listing{}, // replaced by hold
	}}
	return p, nil
}

// ValidateInitialization checks the configuration.
func (p *Plugin) ValidateInitialization() error {
	if err := p.standards.CompleteConfiguration(); err != nil {
		return fmt.Errorf("PodSecurity configuration error: %w", err)
	}
	if err := p.standards.ValidateConfiguration(); err != nil {
		return fmt.Errorf("PodSecurity configuration error: %w", err)
	}
	return nil
}

// Validate rejects objects that violate the enforced standard, and warns about violations of the
// other ones.
func (p *Plugin) Validate(ctx context.Context, r *admission.Request) error {
	if r.Operation != admission.Create && r.Operation != admission.Update {
		return nil
	}
	if !r.Is("", "namespaces") && !p.templates.HasPodSpec(r.Resource.GroupResource()) {
		return nil
	}
	a := &api.AttributesRecord{
		Name: r.Name, Namespace: r.Namespace, Kind: r.Kind, Resource: r.Resource.GVR(), Subresource: r.Subresource,
		Operation: admissionv1.Operation(r.Operation), Object: r.Object, OldObject: r.OldObject,
	}
	if r.User != nil {
		a.Username = r.User.Name
	}
	standards := p.standards
	if r.Is("", "namespaces") {
		l := &listing{objects: p.objects}
		if stricter(r) {
			if err := l.begin(ctx, r.Name); err != nil {
				return err
			}
		}
		standards = l.hold(standards)
	}
	answer := standards.Validate(ctx, a)
	for _, w := range answer.Warnings {
		request.Warn(ctx, w)
	}
	for _, k := range slices.Sorted(maps.Keys(answer.AuditAnnotations)) {
		r.Annotate(api.AuditAnnotationPrefix+k, answer.AuditAnnotations[k])
	}
	if answer.Allowed {
		return nil
	}
	return refusal(r, answer)
}

var errNotAllowed = errors.New("Not allowed by PodSecurity") //nolint:staticcheck // the wording is the API's

func refusal(r *admission.Request, answer *admissionv1.AdmissionResponse) error {
	err := apierrors.NewForbidden(r.Resource.GroupResource(), r.ObjectName(), errNotAllowed)
	s := answer.Result
	if s == nil {
		return err
	}
	if s.Message != "" {
		err.ErrStatus.Message = s.Message
	}
	if s.Reason != "" {
		err.ErrStatus.Reason = s.Reason
	}
	if s.Details != nil {
		err.ErrStatus.Details = s.Details
	}
	if s.Code != 0 {
		err.ErrStatus.Code = s.Code
	}
	return err
}
