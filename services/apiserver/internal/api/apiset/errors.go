package apiset

import (
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"binnacle/services/apiserver/internal/codec/negotiation"
	"binnacle/services/apiserver/internal/registry"
	"binnacle/services/apiserver/internal/status"
)

// Errors returns the errors for invalid requests for a kind. Kubernetes has different errors for
// built-in kinds and for custom resources.
type Errors interface {
	// NoSubresource returns the error for a path below an object that names no subresource.
	NoSubresource(object string) error
	// NoVerb returns the error for a verb that the path does not support. collection is true for
	// the path of a collection.
	NoVerb(verb string, collection bool) error
	// NoPatch returns the error for a patch whose media type is not in supported. empty reports
	// whether the request has no body.
	NoPatch(supported []string, empty bool) error
	// NotAcceptable returns the error for an Accept header without a supported media type. streams
	// reports whether the path can be watched.
	NotAcceptable(m negotiation.Media, streams bool) error
}

// Errors returns the errors for invalid requests for the resource.
func (r *Resource) Errors() Errors {
	if r.Custom() {
		return customErrors{kind: r.Kind}
	}
	return builtInErrors{}
}

// builtInErrors returns the errors of built-in resources.
type builtInErrors struct{}

func (builtInErrors) NoSubresource(string) error { return status.NoResource() }

func (builtInErrors) NoVerb(string, bool) error { return status.Method() }

func (builtInErrors) NoPatch(_ []string, empty bool) error {
	if empty { // the router of Kubernetes then checks only the Accept header
		return status.NoRepresentation(nil)
	}
	return status.PatchType()
}

func (builtInErrors) NotAcceptable(media negotiation.Media, streams bool) error {
	if streams {
		return status.NoRepresentation(media.ObjectsAndStreams())
	}
	return status.NoRepresentation(media.Objects())
}

// customErrors returns the errors of custom resources.
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
