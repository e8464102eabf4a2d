package noderestriction

import (
	"context"
	"errors"
	"slices"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"binnacle/services/apiserver/internal/admission"
	"binnacle/services/apiserver/internal/security/authz"
)

// checkToken checks that a requested service account token is bound to a pod on the node and has an
// audience that the pod uses. Other subresources and operations need no check.
func (p *Plugin) checkToken(ctx context.Context, req *nodeRequest) error {
	if req.Operation != admission.Create || req.Subresource != "token" {
		return nil
	}
	tokenRequest, ok := req.Object.(*authenticationv1.TokenRequest)
	if !ok {
		return req.unexpectedType()
	}
	ref := tokenRequest.Spec.BoundObjectRef
	switch {
	case ref == nil || ref.APIVersion != "v1" || ref.Kind != "Pod" || ref.Name == "":
		return req.forbid("node requested token not bound to a pod")
	case ref.UID == "":
		return req.forbid("node requested token with a pod binding without a uid")
	}
	pod, err := p.Objects.Pod(ctx, req.Namespace, ref.Name)
	switch {
	case err != nil:
		return req.lookupError(err)
	case ref.UID != pod.UID:
		return req.forbid(
			"the UID in the bound object reference (%s) does not match the UID in record. The object might have been deleted and then recreated",
			ref.UID,
		)
	case pod.Spec.NodeName != req.node:
		return req.forbid("node requested token bound to a pod scheduled on a different node")
	}
	if !p.Audiences {
		return nil
	}
	return p.checkAudience(ctx, req, pod, tokenRequest.Spec.Audiences)
}

// checkAudience checks that a volume of the pod uses the audience of a requested token. Otherwise
// the node needs the verb request-serviceaccounts-token-audience for the audience.
func (p *Plugin) checkAudience(ctx context.Context, req *nodeRequest, pod *corev1.Pod, audiences []string) error {
	if len(audiences) > 1 {
		return req.forbid("node may only request 0 or 1 audiences")
	}
	audience := ""
	if len(audiences) == 1 {
		audience = audiences[0]
	}
	mounted, err := p.mountsAudience(ctx, pod, audience)
	if mounted {
		return nil
	}
	if err != nil {
		return req.forbid("error validating audience %q: %w", audience, err)
	}
	decision, _, err := p.Authorizer.Authorize(ctx, &authz.Attributes{
		User: req.User, Verb: "request-serviceaccounts-token-audience", Resource: true, Namespace: req.Namespace, Version: "v1",
		ResourceName: audience, Name: req.Name,
	})
	switch {
	case decision == authz.Allow:
		return nil
	case err != nil:
		return req.forbid(
			"audience %q not found in pod spec volume, error authorizing %s to request tokens for this audience: %w",
			audience,
			req.User.Name,
			err,
		)
	}
	return req.forbid(
		"audience %q not found in pod spec volume, %s is not authorized to request tokens for this audience",
		audience,
		req.User.Name,
	)
}

// mountsAudience reports whether a volume of the pod needs tokens for an audience. It returns an
// error for a volume that cannot be resolved, unless another volume needs such tokens.
func (p *Plugin) mountsAudience(ctx context.Context, pod *corev1.Pod, audience string) (bool, error) {
	var errs []error
	for i := range pod.Spec.Volumes {
		volume := &pod.Spec.Volumes[i]
		if volume.Projected != nil && slices.ContainsFunc(volume.Projected.Sources, func(s corev1.VolumeProjection) bool {
			return s.ServiceAccountToken != nil && s.ServiceAccountToken.Audience == audience
		}) {
			return true, nil
		}
		driver, err := p.driverOf(ctx, pod, volume)
		if err == nil && driver != nil &&
			slices.ContainsFunc(driver.Spec.TokenRequests, func(r storagev1.TokenRequest) bool { return r.Audience == audience }) {
			return true, nil
		}
		errs = append(errs, err)
	}
	return false, errors.Join(errs...)
}

// driverOf returns the CSI driver of a volume of a pod. The volume may name the driver itself, or
// refer to a claim whose bound volume does. For an in-tree plugin, driverOf returns the driver that
// replaces it. It returns nil for volumes without a driver.
func (p *Plugin) driverOf(ctx context.Context, pod *corev1.Pod, v *corev1.Volume) (*storagev1.CSIDriver, error) {
	claim := ""
	switch driver := inlineDriver(&v.VolumeSource); {
	case driver != "":
		return p.csiDriver(ctx, driver, v.CSI != nil)
	case v.Ephemeral != nil && v.Ephemeral.VolumeClaimTemplate != nil:
		claim = pod.Name + "-" + v.Name // the name that the ephemeral volume controller gives
	case v.PersistentVolumeClaim != nil:
		claim = v.PersistentVolumeClaim.ClaimName
	default:
		return nil, nil
	}
	c, err := p.Objects.Claim(ctx, pod.Namespace, claim)
	if err != nil {
		return nil, err
	}
	volume, err := p.Objects.Volume(ctx, c.Spec.VolumeName)
	if err != nil {
		return nil, err
	}
	driver := boundDriver(&volume.Spec.PersistentVolumeSource)
	if driver == "" {
		return nil, nil
	}
	return p.csiDriver(ctx, driver, volume.Spec.CSI != nil)
}

// csiDriver returns a driver by name. A missing driver is an error if it is required. Otherwise
// csiDriver returns nil: a missing driver that replaces an in-tree plugin needs no tokens.
func (p *Plugin) csiDriver(ctx context.Context, name string, required bool) (*storagev1.CSIDriver, error) {
	driver, err := p.Objects.Driver(ctx, name)
	if !required && apierrors.IsNotFound(err) {
		return nil, nil
	}
	return driver, err
}
