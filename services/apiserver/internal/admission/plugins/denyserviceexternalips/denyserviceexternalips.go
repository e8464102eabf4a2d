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
func (Plugin) Validate(_ context.Context, req *admission.Request) error {
	service, ok := req.Object.(*corev1.Service)
	if !ok || !req.IsObject("", "services") || req.Operation != admission.Create && req.Operation != admission.Update {
		return nil
	}
	var existing []string
	if old, ok := req.OldObject.(*corev1.Service); ok {
		existing = old.Spec.ExternalIPs
	}
	for _, ip := range service.Spec.ExternalIPs {
		if !slices.Contains(existing, ip) {
			return req.Forbiddenf("Use of external IPs is denied by admission control")
		}
	}
	return nil
}
