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
func New(configuration []byte, objects Objects, metrics *Metrics) (*Plugin, error) {
	c, err := load.LoadFromData(configuration)
	if err != nil {
		return nil, err
	}
	checks, err := policy.NewEvaluator(policy.DefaultChecks())
	if err != nil {
		return nil, err
	}
	return &Plugin{configuration: c, standards: standards{exemptions: c.Exemptions, checks: checks, metrics: metrics, objects: objects}}, nil
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
func (p *Plugin) Validate(ctx context.Context, req *admission.Request) error {
	if req.Operation != admission.Create && req.Operation != admission.Update {
		return nil
	}
	isNamespace, isPod := req.IsResource("", "namespaces"), req.IsResource("", "pods")
	if !isNamespace && !isPod && !hasTemplate(req) {
		return nil
	}
	attrs := &api.AttributesRecord{
		Name: req.Name, Namespace: req.Namespace, Kind: req.Kind, Resource: req.Resource.GVR(), Subresource: req.Subresource,
		Operation: admissionv1.Operation(req.Operation), Object: req.Object, OldObject: req.OldObject,
	}
	if req.User != nil {
		attrs.Username = req.User.Name
	}
	var res result
	switch {
	case isNamespace:
		var err error
		if res, err = p.standards.evaluateNamespace(ctx, attrs, req.Object, req.OldObject); err != nil {
			return err
		}
	case isPod:
		res = p.standards.evaluatePod(ctx, attrs, req.Object, req.OldObject)
	default:
		res = p.standards.evaluateTemplate(ctx, attrs, req.Object)
	}
	for _, w := range res.warnings {
		request.Warn(ctx, w)
	}
	for _, k := range slices.Sorted(maps.Keys(res.annotations)) {
		req.Annotate(api.AuditAnnotationPrefix+k, res.annotations[k])
	}
	if res.rejected == nil {
		return nil
	}
	return rejection(req, res.rejected)
}

var errNotAllowed = errors.New("Not allowed by PodSecurity") //nolint:staticcheck // the wording is the API's

// rejection returns a Forbidden error with the message and reason of a status.
func rejection(r *admission.Request, status *metav1.Status) error {
	err := apierrors.NewForbidden(r.Resource.GroupResource(), r.ObjectName(), errNotAllowed)
	if status.Message != "" {
		err.ErrStatus.Message = status.Message
	}
	if status.Reason != "" {
		err.ErrStatus.Reason = status.Reason
	}
	if status.Details != nil {
		err.ErrStatus.Details = status.Details
	}
	if status.Code != 0 {
		err.ErrStatus.Code = status.Code
	}
	return err
}
