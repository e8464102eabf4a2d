package handlers

import (
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"bytes"
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"binnacle/libs/api"
	"binnacle/services/apiserver/internal/codec"
	"binnacle/services/apiserver/internal/registry"
	"binnacle/services/apiserver/internal/request"
	"binnacle/services/apiserver/internal/rest/fieldvalidation"
	"binnacle/services/apiserver/internal/status"
)

// readBody reads a body of at most request.MaxBody bytes.
func readBody(r *http.Request) ([]byte, error) {
	if r.ContentLength > request.MaxBody {
		return nil, errBodyTooLarge()
	}
	b, err := request.ReadBody(r)
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		return nil, status.Error(http.StatusRequestTimeout, metav1.StatusReasonTimeout, "the body of the request did not arrive in time", nil)
	case err != nil:
		return nil, apierrors.NewBadRequest(fmt.Sprintf("the body of the request could not be read: %v", err))
	case len(b) > request.MaxBody:
		return nil, errBodyTooLarge()
	}
	return b, nil
}

func errBodyTooLarge() error {
	return apierrors.NewRequestEntityTooLargeError(fmt.Sprintf("limit is %d", request.MaxBody))
}

// body returns a request's body and its media type.
func (a *API) body(c *Call) ([]byte, string, error) {
	media, ok := a.Media.Body(c.R)
	if !ok {
		return nil, "", status.BodyType(a.Media.Objects())
	}
	b, err := readBody(c.R)
	return b, media, err
}

// decode decodes an object of the kind.
func (a *API) decode(c *Call, body []byte, media, validation string) (registry.Object, error) {
	obj, err := a.decodeAs(c, c.GVK(), body, media, validation)
	if err != nil {
		return nil, err
	}
	out, ok := obj.(registry.Object)
	if !ok {
		return nil, fmt.Errorf("%T is not an API object", obj)
	}
	return out, nil
}

// decodeAs decodes an object of a type. Unknown and duplicate fields are rejected, reported as
// warnings, or ignored (specification: "Field validation").
func (a *API) decodeAs(c *Call, want schema.GroupVersionKind, body []byte, media, validation string) (runtime.Object, error) {
	if len(body) < request.LargeBody { // larger bodies have been limited on arrival
		weight := request.PerValue * a.Codec.Values(media, body, want)
		if weight > 0 { // it may contain JSON
			weight = max(weight, request.PerValue*request.Values(body))
		}
		if want == c.GVK() {
			weight = cmp.Or(c.DocumentCost(body, media == api.MediaCBOR), weight)
		}
		if err := request.Estimate(c.Context(), weight); err != nil {
			return nil, err
		}
	}
	strict := fieldvalidation.Detects(validation)
	var d codec.Decoded
	var err error
	if want != c.GVK() || c.Coder == nil {
		d, err = a.Codec.Decode(media, body, want, nil, strict)
	} else {
		d, err = c.Coder.DecodeBody(media, body, strict)
	}
	if invalid := new(codec.ValueError); errors.As(err, &invalid) {
		return nil, status.InvalidValue(want.GroupKind(), "", invalid.Path, invalid.Reason)
	}
	if err != nil {
		return nil, undecodable(err, d.GVK, want.Kind, body)
	}
	if !d.AnyType && (d.GVK.Kind != want.Kind || d.GVK.Group != want.Group) {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("%s in version %q cannot be handled as a %s: converting (%s.%s) to (%s.%s): unknown conversion",
			d.GVK.Kind, d.GVK.Version, want.Kind, d.GVK.Version, d.GVK.Kind, groupName(want.Group), want.Kind))
	}
	if d.GVK.GroupVersion() != want.GroupVersion() {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("the API version in the data (%s) does not match the expected API version (%s)", d.GVK.GroupVersion(), want.GroupVersion()))
	}
	err = fieldvalidation.Report(c.Context(), validation, d.Unknown, func(err error) error {
		return apierrors.NewBadRequest(fmt.Sprintf("%s in version %q cannot be handled as a %s: %v", d.GVK.Kind, d.GVK.Version, d.GVK.Kind, err))
	})
	if err == nil {
		a.asked(c, want, d.Object)
	}
	return d.Object, err
}

// groupName returns the short name of a group in messages.
func groupName(group string) string {
	if group == "" {
		return "core"
	}
	name, _, _ := strings.Cut(group, ".")
	return name
}

// undecodable returns the 400 error for a body that cannot be decoded as the kind.
func undecodable(err error, seen schema.GroupVersionKind, want string, body []byte) error {
	if seen.Kind != "" {
		return apierrors.NewBadRequest(fmt.Sprintf("%s in version %q cannot be handled as a %s: %v", seen.Kind, seen.Version, want, err))
	}
	return apierrors.NewBadRequest(fmt.Sprintf("the object provided is unrecognized (must be of type %s): %v (%s)", want, err, summary(body)))
}

// summary returns the beginning of a body: as text if it looks like JSON, otherwise in hexadecimal.
func summary(body []byte) string {
	const most = 30
	switch {
	case len(body) == 0:
		return "<empty>"
	case len(bytes.TrimSpace(body)) > 0 && bytes.TrimSpace(body)[0] == '{':
		if len(body) > most {
			return string(body[:most]) + " ..."
		}
		return string(body)
	case len(body) > most:
		return fmt.Sprintf("%x ...", body[:most])
	}
	return fmt.Sprintf("%x", body)
}
