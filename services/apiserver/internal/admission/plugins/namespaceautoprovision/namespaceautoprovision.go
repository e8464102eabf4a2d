// Package namespaceautoprovision creates missing namespaces when an object is created in them.
package namespaceautoprovision

import (
	"context"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"binnacle/services/apiserver/internal/admission"
)

// Name is the name of the plugin in flags and configuration.
const Name = "NamespaceAutoProvision"

// Namespaces looks up and creates namespaces.
type Namespaces interface {
	// Phase reports whether a namespace exists and whether it is being terminated.
	Phase(ctx context.Context, name string) (exists, terminating bool, err error)
	// Create creates a namespace that has only a name.
	Create(ctx context.Context, name string) error
}

// Plugin implements admission.Mutator.
type Plugin struct{ Namespaces Namespaces }

// Admit implements admission.Mutator. A dry run creates no namespace.
func (p *Plugin) Admit(ctx context.Context, req *admission.Request) error {
	if req.DryRun || req.Operation != admission.Create || req.Namespace == "" || req.IsResource("", "namespaces") {
		return nil
	}
	exists, _, err := p.Namespaces.Phase(ctx, req.Namespace)
	if err != nil {
		return req.Forbidden(err)
	}
	if exists {
		return nil
	}
	if err := p.Namespaces.Create(ctx, req.Namespace); err != nil && !apierrors.IsAlreadyExists(err) {
		return req.Forbidden(err)
	}
	return nil
}
