// Package podsecurity applies the Pod Security Standards that the labels of a namespace select. It
// rejects pods that violate the enforced standard, and warns about pods and pod templates that
// violate the others. When the labels of a namespace change, it warns about existing pods.
// k8s.io/pod-security-admission defines the standards and the configuration.
package podsecurity

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	admissionv1 "k8s.io/api/admission/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	configapi "k8s.io/pod-security-admission/admission/api"
	"k8s.io/pod-security-admission/admission/api/load"
	"k8s.io/pod-security-admission/admission/api/validation"
	"k8s.io/pod-security-admission/api"
	"k8s.io/pod-security-admission/policy"

	"binnacle/services/apiserver/internal/admission"
	"binnacle/services/apiserver/internal/request"
)

// Name is the name of the plugin in flags and configuration.
const Name = "PodSecurity"

// Plugin implements admission.Validator.
type Plugin struct {
	configuration *configapi.PodSecurityConfiguration
	standards     standards
}

// New returns a plugin with a PodSecurityConfiguration. An empty configuration means the standard
// privileged for namespaces without labels. The caller must call ValidateInitialization before it
// uses the plugin.
func New(configuration []byte, o Objects, m *Metrics) (*Plugin, error) {
	c, err := load.LoadFromData(configuration)
	if err != nil {
		return nil, err
	}
	checks, err := policy.NewEvaluator(policy.DefaultChecks())
	if err != nil {
		return nil, err
	}
	return &Plugin{configuration: c, standards: standards{exemptions: c.Exemptions, checks: checks, metrics: m, objects: o}}, nil
}

// ValidateInitialization validates the configuration and applies its defaults.
func (p *Plugin) ValidateInitialization() error {
	defaults, err := configapi.ToPolicy(p.configuration.Defaults)
	if err != nil {
		return fmt.Errorf("PodSecurity configuration error: %w", err)
	}
	if err := validation.ValidatePodSecurityConfiguration(p.configuration).ToAggregate(); err != nil {
		return fmt.Errorf("PodSecurity configuration error: %w", err)
	}
	p.standards.defaults = defaults
	return nil
}

// Validate rejects objects that violate the enforced standard, and warns about violations of the
// other ones.
func (p *Plugin) Validate(ctx context.Context, r *admission.Request) error {
	if r.Operation != admission.Create && r.Operation != admission.Update {
		return nil
	}
	isNamespace, isPod := r.IsResource("", "namespaces"), r.IsResource("", "pods")
	if !isNamespace && !isPod && !hasTemplate(r) {
		return nil
	}
	attrs := &api.AttributesRecord{
		Name: r.Name, Namespace: r.Namespace, Kind: r.Kind, Resource: r.Resource.GVR(), Subresource: r.Subresource,
		Operation: admissionv1.Operation(r.Operation), Object: r.Object, OldObject: r.OldObject,
	}
	if r.User != nil {
		attrs.Username = r.User.Name
	}
	var res result
	switch {
	case isNamespace:
		var err error
		if res, err = p.standards.evaluateNamespace(ctx, attrs, r.Object, r.OldObject); err != nil {
			return err
		}
	case isPod:
		res = p.standards.evaluatePod(ctx, attrs, r.Object, r.OldObject)
	default:
		res = p.standards.evaluateTemplate(ctx, attrs, r.Object)
	}
	for _, w := range res.warnings {
		request.Warn(ctx, w)
	}
	for _, k := range slices.Sorted(maps.Keys(res.annotations)) {
		r.Annotate(api.AuditAnnotationPrefix+k, res.annotations[k])
	}
	if res.rejected == nil {
		return nil
	}
	return rejection(r, res.rejected)
}

var errNotAllowed = errors.New("Not allowed by PodSecurity") //nolint:staticcheck // the wording is the API's

// rejection returns a Forbidden error with the message and reason of a status.
func rejection(r *admission.Request, s *metav1.Status) error {
	err := apierrors.NewForbidden(r.Resource.GroupResource(), r.ObjectName(), errNotAllowed)
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
