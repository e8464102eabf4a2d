// Package denyserviceexternalips prevents services from adding external addresses. They may keep or
// remove existing ones.
package denyserviceexternalips

import (
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"binnacle/services/apiserver/internal/admission"
)

// Name is the name of the plugin in flags and configuration.
const Name = "DenyServiceExternalIPs"

// Plugin implements admission.Validator.
type Plugin struct{}

// Validate implements admission.Validator.
func (Plugin) Validate(_ context.Context, r *admission.Request) error {
	service, ok := r.Object.(*corev1.Service)
	if !ok || !r.IsObject("", "services") || r.Operation != admission.Create && r.Operation != admission.Update {
		return nil
	}
	var existing []string
	if old, ok := r.OldObject.(*corev1.Service); ok {
		existing = old.Spec.ExternalIPs
	}
	for _, ip := range service.Spec.ExternalIPs {
		if !slices.Contains(existing, ip) {
			return r.Forbiddenf("Use of external IPs is denied by admission control")
		}
	}
	return nil
}
