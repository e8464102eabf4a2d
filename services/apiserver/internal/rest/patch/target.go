package patch

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"binnacle/services/apiserver/internal/codec"
	"binnacle/services/apiserver/internal/codec/doccheck"
	"binnacle/services/apiserver/internal/registry"
	"binnacle/services/apiserver/internal/rest/fieldvalidation"
	"binnacle/services/apiserver/internal/status"
)

// strategy applies a decoded patch of one type.
type strategy interface {
	// apply returns the patched value. It changes neither the patch nor the target. The value may
	// share memory with both.
	apply(ctx context.Context, t *Target) (registry.Object, error)
}

// Target is a value to patch.
type Target struct {
	// Object is the value, GVK its type, and Name its name in errors.
	Object registry.Object
	GVK    schema.GroupVersionKind
	Name   string
	// FieldValidation determines the handling of unknown and duplicate fields.
	FieldValidation string

	// Codec knows the Go types of values.
	Codec *codec.Codec
	// New returns an empty value.
	New func() runtime.Object
	// Encode returns the JSON of Object. Decode decodes JSON that a patch has changed.
	Encode func() ([]byte, error)
	Decode func(doc []byte, strict bool) (codec.Decoded, error)
	// Convertible, if set, returns the error that Decode returns for a value.
	Convertible func(runtime.Object) error
	// Merge applies the configuration of a server-side apply.
	Merge func(ctx context.Context, configuration map[string]any) (registry.Object, error)
	// Defaulted reports whether Object, which has no Go type, has the defaults of its version.
	Defaulted func() bool

	// Cost returns the cost in bytes of decoding and defaulting a document. Estimate waits until
	// work of that cost may start.
	Cost     func(doc []byte, cbor bool) int
	Estimate func(ctx context.Context, cost int) error
}

// findsUnknown reports whether unknown and duplicate fields must be found.
func (t *Target) findsUnknown() bool { return fieldvalidation.DetectsUnknown(t.FieldValidation) }

// reportUnknown reports the unknown and duplicate fields of a patch and of its result.
func (t *Target) reportUnknown(ctx context.Context, patch, result []error, invalid func(error) error) error {
	return fieldvalidation.ReportUnknown(ctx, t.FieldValidation, slices.Concat(patch, result), invalid)
}

// changeJSON changes the JSON of the object and decodes the result. unknown holds the unknown and
// duplicate fields of the patch. cost returns the cost of change in bytes.
func (t *Target) changeJSON(
	ctx context.Context,
	unknown []error,
	cost func(doc []byte) int,
	change func(doc []byte) ([]byte, error),
) (registry.Object, error) {
	// 1. Change the JSON.
	doc, err := t.Encode()
	if err != nil {
		return nil, err
	}
	if err := t.Estimate(ctx, cost(doc)); err != nil {
		return nil, err
	}
	patched, err := change(doc)
	if err != nil {
		return nil, err
	}
	if err := t.Estimate(ctx, t.Cost(patched, false)); err != nil { // copies and defaults may enlarge it
		return nil, err
	}

	// 2. Reject a result without a version as Kubernetes does: it sees an object without fields.
	invalid := func(err error) error { return invalidResult(string(patched), err) }
	fields, lacksVersion := fieldsWithoutVersion(patched)
	if lacksVersion && t.hasInternalType() {
		if err := t.reportUnknown(ctx, unknown, fields, invalid); err != nil {
			return nil, err
		}
		return nil, apierrors.NewBadRequest(fmt.Sprintf(
			"the name of the object (%s based on URL) was undeterminable: name must be provided", t.Name))
	}

	// 3. Decode the result.
	decoded, err := t.Decode(patched, t.findsUnknown())
	var invalidValue *doccheck.ValueError
	if errors.As(err, &invalidValue) {
		return nil, status.InvalidValue(t.GVK.GroupKind(), t.Name, invalidValue.Path, invalidValue.Reason)
	}
	if err != nil {
		return nil, invalid(err)
	}
	return decoded.Object.(registry.Object), t.reportUnknown(ctx, unknown, decoded.Unknown, invalid)
}

// hasInternalType reports whether Kubernetes decodes the object through an internal type.
func (t *Target) hasInternalType() bool {
	_, isDocument := t.Object.(*unstructured.Unstructured)
	return !isDocument && t.GVK.Kind != "Scale"
}

// fieldsWithoutVersion reports whether a document lacks the apiVersion, because the patch removed it.
// Kubernetes then decodes none of the fields, so unknown holds an error for each of them.
func fieldsWithoutVersion(doc []byte) (unknown []error, lacksVersion bool) {
	// Fast path: the encoder writes the kind and the version first, and most patches keep them
	// there.
	head, _, _ := bytes.Cut(doc, []byte(`"metadata":`))
	if bytes.Contains(head, []byte(`"apiVersion":"`)) && !bytes.Contains(head, []byte(`"apiVersion":""`)) {
		return nil, false
	}
	var fields map[string]json.RawMessage
	if json.Unmarshal(doc, &fields) != nil {
		return nil, false
	}
	if text, exists := fields["apiVersion"]; exists {
		var version string
		if err := json.Unmarshal(text, &version); err != nil || version != "" {
			return nil, false // another type is an error of decoding
		}
	}
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		if name != "kind" && name != "apiVersion" {
			unknown = append(unknown, fmt.Errorf("unknown field %q", name))
		}
	}
	return unknown, true
}

// checkError returns the API error for an error of checking a patch, whose lists may need too much
// memory once decoded.
func (t *Target) checkError(err error) error {
	var invalid *doccheck.ValueError
	if errors.As(err, &invalid) {
		return status.InvalidValue(t.GVK.GroupKind(), t.Name, invalid.Path, invalid.Reason)
	}
	if err != nil {
		return undecodableError(err)
	}
	return nil
}

// invalidResult returns the 422 error for a patch whose result cannot be decoded. value is the value
// that the error shows.
func invalidResult(value string, err error) error {
	return status.Invalid(schema.GroupKind{}, "", field.ErrorList{field.Invalid(field.NewPath("patch"), value, err.Error())})
}

// undecodableError returns the 400 error for a patch that cannot be decoded.
func undecodableError(err error) error {
	return apierrors.NewBadRequest(fmt.Sprintf("error decoding patch: %v", err))
}
