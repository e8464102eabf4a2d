// Package namespacelifecycle rejects writes into namespaces that do not exist or are being
// terminated, and deletions of the namespaces that the system needs.
package namespacelifecycle

import (
	"context"
	"errors"
	"fmt"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"binnacle/libs/api"
	"binnacle/services/apiserver/internal/admission"
)

// Name is the name of the plugin in flags and configuration.
const Name = "NamespaceLifecycle"

// Namespaces looks up namespaces.
type Namespaces interface {
	// Phase reports whether a namespace exists and whether it is being terminated. It reads the
	// store before it reports that a namespace does not exist.
	Phase(ctx context.Context, name string) (exists, terminating bool, err error)
}

// Plugin implements admission.Mutator.
type Plugin struct{ Namespaces Namespaces }

// immortal holds the namespaces that must not be deleted.
var immortal = map[string]bool{api.DefaultNamespace: true, api.SystemNamespace: true, api.PublicNamespace: true}

// Admit rejects forbidden operations.
func (p *Plugin) Admit(ctx context.Context, req *admission.Request) error {
	isNamespace := req.Resource.Group == "" && req.Resource.Resource == "namespaces"
	if isNamespace && req.Operation == admission.Delete && immortal[req.Name] {
		return apierrors.NewForbidden(req.Resource.GroupResource(), req.Name, errors.New("this namespace may not be deleted"))
	}
	review := req.Resource.Group == authorizationv1.GroupName // reviews may name any namespace
	if isNamespace || req.Namespace == "" || review || req.Operation == admission.Delete {
		return nil
	}
	exists, terminating, err := p.Namespaces.Phase(ctx, req.Namespace)
	switch {
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled): // the request itself has ended
		return apierrors.NewTimeoutError("request did not complete within requested timeout", 0)
	case err != nil:
		return apierrors.NewInternalError(fmt.Errorf("namespace %s: %w", req.Namespace, err))
	case !exists:
		return apierrors.NewNotFound(corev1.Resource("namespaces"), req.Namespace)
	case terminating && req.Operation == admission.Create:
		err := apierrors.NewForbidden(
			req.Resource.GroupResource(),
			req.ObjectName(),
			fmt.Errorf("unable to create new content in namespace %s because it is being terminated", req.Namespace),
		)
		err.ErrStatus.Details.Causes = append(err.ErrStatus.Details.Causes, metav1.StatusCause{
			Type:    corev1.NamespaceTerminatingCause,
			Message: fmt.Sprintf("namespace %s is being terminated", req.Namespace),
			Field:   "metadata.namespace",
		})
		return err
	}
	return nil
}
