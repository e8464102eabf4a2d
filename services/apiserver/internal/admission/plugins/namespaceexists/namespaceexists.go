// Package namespaceexists rejects writes into namespaces that do not exist.
package namespaceexists

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"binnacle/services/apiserver/internal/admission"
)

// Name is the name of the plugin in flags and configuration.
const Name = "NamespaceExists"

// Namespaces looks up namespaces.
type Namespaces interface {
	// Phase reports whether a namespace exists and whether it is being terminated.
	Phase(ctx context.Context, name string) (exists, terminating bool, err error)
}

// Plugin implements admission.Validator.
type Plugin struct{ Namespaces Namespaces }

// Validate implements admission.Validator.
func (p *Plugin) Validate(ctx context.Context, req *admission.Request) error {
	if req.Namespace == "" || req.IsResource("", "namespaces") || req.Operation == admission.Connect {
		return nil
	}
	exists, _, err := p.Namespaces.Phase(ctx, req.Namespace)
	switch {
	case err != nil:
		return apierrors.NewInternalError(err)
	case !exists:
		return apierrors.NewNotFound(corev1.Resource("namespaces"), req.Namespace)
	}
	return nil
}
