package apiset

import (
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"binnacle/services/apiserver/internal/codec/negotiation"
	"binnacle/services/apiserver/internal/registry"
	"binnacle/services/apiserver/internal/status"
)

// Errors words the errors of requests for a kind. Kubernetes words them differently for built-in
// kinds and for custom resources.
type Errors interface {
	// NoSubresource returns the error for a path below an object that names no subresource.
	NoSubresource(object string) error
	// NoVerb returns the error for a verb that the path does not support. collection is true for
	// the path of a collection.
	NoVerb(verb string, collection bool) error
	// NoPatch returns the error for a media type other than those of supported patches. empty reports
	// whether the request has no body.
	NoPatch(supported []string, empty bool) error
	// NotAcceptable returns the error for an Accept header without a known media type. streams is
	// true for a path that can be watched.
	NotAcceptable(m negotiation.Media, streams bool) error
}

// Errors returns the wording of the kind's errors.
func (r *Resource) Errors() Errors {
	if r.Custom() {
		return customErrors{r.Kind}
	}
	return builtInErrors{}
}

// builtInErrors returns the errors of built-in resources.
type builtInErrors struct{}

func (builtInErrors) NoSubresource(string) error { return status.NoResource() }

func (builtInErrors) NoVerb(string, bool) error { return status.Method() }

func (builtInErrors) NoPatch(_ []string, empty bool) error {
	if empty { // as the router of Kubernetes, which checks the type of a body only if there is one
		return status.NoRepresentation(nil)
	}
	return status.PatchType()
}

func (builtInErrors) NotAcceptable(m negotiation.Media, streams bool) error {
	if streams {
		return status.NoRepresentation(m.ObjectsAndStreams())
	}
	return status.NoRepresentation(m.Objects())
}

// customErrors returns the errors of custom resources, which differ from those of built-in ones.
type customErrors struct{ kind *registry.Kind }

func (e customErrors) NoSubresource(object string) error {
	return apierrors.NewNotFound(e.kind.GroupResource(), object)
}

func (e customErrors) NoVerb(verb string, collection bool) error {
	if collection && (verb == "update" || verb == "patch") {
		return apierrors.NewBadRequest("name must be provided")
	}
	return apierrors.NewMethodNotSupported(e.kind.GroupResource(), verb)
}

func (customErrors) NoPatch(supported []string, _ bool) error { return status.BodyType(supported) }

func (customErrors) NotAcceptable(m negotiation.Media, _ bool) error {
	return status.NotAcceptable(m.Objects())
}
