package apply

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"reflect"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/structured-merge-diff/v4/fieldpath"
	"sigs.k8s.io/structured-merge-diff/v4/typed"

	"binnacle/services/apiserver/internal/json/tape"
	"binnacle/services/apiserver/internal/registry"
)

// representation is how the objects of a view are processed: as values of a Go type, or as
// documents.
type representation interface {
	// convert returns an object converted to another version. It does not change the object.
	convert(ctx context.Context, obj registry.Object, to *view) (registry.Object, error)
	// setDefaults returns a merged object with defaults.
	setDefaults(obj registry.Object) (registry.Object, error)
	// prepareForStorage removes from an object what is not stored, such as the kind of a Go type.
	prepareForStorage(obj registry.Object)
	// apiError returns the error of an apply as clients see it.
	apiError(err error) error
}

// representationOf returns how the objects of a kind are processed.
func representationOf(kind *registry.Kind) representation {
	if kind.Custom() {
		return documentRepresentation{kind}
	}
	return typedRepresentation{kind}
}

// typedRepresentation processes objects with a Go type.
type typedRepresentation struct{ kind *registry.Kind }

// convert converts an object through the stored version.
func (f typedRepresentation) convert(_ context.Context, obj registry.Object, to *view) (registry.Object, error) {
	obj = obj.DeepCopyObject().(registry.Object)
	var err error
	if f.kind.Stored.ToStored != nil {
		if obj, err = f.kind.Stored.ToStored(obj); err != nil {
			return nil, err
		}
	}
	if to.kind.Stored.FromStored != nil {
		if obj, err = to.kind.Stored.FromStored(obj); err != nil {
			return nil, err
		}
	}
	if expected, got := to.goType(), reflect.TypeOf(obj).Elem(); expected != got {
		return nil, fmt.Errorf("%s is not %s", got, expected)
	}
	return to.representation.setDefaults(obj)
}

// setDefaults sets the defaults of the kind, if it has any.
func (f typedRepresentation) setDefaults(obj registry.Object) (registry.Object, error) {
	if f.kind.Default != nil {
		f.kind.Default(obj)
	}
	return obj, nil
}

func (typedRepresentation) prepareForStorage(obj registry.Object) {
	obj.GetObjectKind().SetGroupVersionKind(schema.GroupVersionKind{})
}

func (typedRepresentation) apiError(err error) error { return err }

// documentRepresentation processes objects without a Go type.
type documentRepresentation struct{ kind *registry.Kind }

// convert converts an object as a JSON document.
func (f documentRepresentation) convert(ctx context.Context, obj registry.Object, to *view) (registry.Object, error) {
	object, ok := obj.DeepCopyObject().(*unstructured.Unstructured)
	if !ok {
		return nil, fmt.Errorf("%T is not a document", obj)
	}
	object.SetGroupVersionKind(f.kind.GVK())
	raw, err := object.MarshalJSON()
	if err != nil {
		return nil, err
	}
	out, err := f.kind.Document.Convert(ctx, [][]byte{raw}, to.kind.Version)
	if err != nil {
		return nil, err
	}
	converted := &unstructured.Unstructured{}
	return converted, converted.UnmarshalJSON(out[0])
}

// setDefaults also removes unknown fields and malformed metadata. It keeps nulls, because a merge
// replaces an applied value that became empty by null, which validation must reject.
func (f documentRepresentation) setDefaults(obj registry.Object) (registry.Object, error) {
	raw, err := tape.AppendValue(nil, obj.(*unstructured.Unstructured).Object)
	if err != nil {
		return nil, err
	}
	served, err := f.kind.Document.Normalize(raw, registry.DocumentOptions{KeepNulls: true, DropMalformedMetadata: true})
	if err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	doc, err := tape.Parse(served.Doc)
	if err != nil {
		return nil, err
	}
	defer doc.Release()
	content, ok := doc.Any(tape.Root).(map[string]any)
	if !ok {
		return nil, fmt.Errorf("%s is not a JSON object", f.kind.Kind)
	}
	return &unstructured.Unstructured{Object: content}, nil
}

func (documentRepresentation) prepareForStorage(registry.Object) {}

// apiError returns any error that is not an API error, such as an error of a conversion, as an
// internal error with the same text and without a reason.
func (documentRepresentation) apiError(err error) error {
	if apierrors.ReasonForError(err) != metav1.StatusReasonUnknown {
		return err
	}
	return &apierrors.StatusError{
		ErrStatus: metav1.Status{Status: metav1.StatusFailure, Code: http.StatusInternalServerError, Message: err.Error()},
	}
}

// convert returns an object of this version converted to another version through the stored form.
// It does not change the object.
func (v *view) convert(ctx context.Context, obj registry.Object, to *view) (registry.Object, error) {
	if v == to {
		return obj, nil
	}
	return v.representation.convert(ctx, obj, to)
}

var errNoVersion = errors.New("the version is not served")

// versions converts typed values so that sets recorded in other versions can be merged. It serves
// one write.
type versions struct {
	*view
	ctx context.Context // of the write: the library passes none
}

var _ merger = (*versions)(nil)

// merger is the interface that the merge library requires of versions.
type merger interface {
	Convert(*typed.TypedValue, fieldpath.APIVersion) (*typed.TypedValue, error)
	IsMissingVersionError(error) bool
}

// Convert converts a value of any version of the kind to another version.
func (v *versions) Convert(typedValue *typed.TypedValue, version fieldpath.APIVersion) (*typed.TypedValue, error) {
	from := v.view
	if typedValue.AsValue() != nil && typedValue.AsValue().IsMap() {
		if apiVersion, ok := typedValue.AsValue().AsMap().Get("apiVersion"); ok && apiVersion.IsString() {
			if from = v.inVersion(apiVersion.AsString()); from == nil {
				return typedValue, errNoVersion
			}
		}
	}
	to := v.inVersion(string(version))
	switch {
	case to == nil:
		return typedValue, errNoVersion
	case from == to:
		return typedValue, nil
	}
	obj, err := from.fromTyped(typedValue)
	if err != nil {
		return typedValue, err
	}
	converted, err := from.convert(v.ctx, obj, to)
	if err != nil {
		return typedValue, err
	}
	converted.GetObjectKind().SetGroupVersionKind(to.kind.GVK())
	return to.asTyped(converted, typed.AllowDuplicates)
}

// IsMissingVersionError reports whether the version of a set is no longer served, which drops the
// set.
func (v *versions) IsMissingVersionError(err error) bool { return errors.Is(err, errNoVersion) }
