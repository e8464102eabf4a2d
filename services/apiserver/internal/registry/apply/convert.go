package apply

import (
	"context"
	"errors"

	"sigs.k8s.io/structured-merge-diff/v4/fieldpath"
	"sigs.k8s.io/structured-merge-diff/v4/typed"

	"binnacle/services/apiserver/internal/registry"
)

// convert returns an object of this version converted to another version through the stored form.
// It does not change the object.
func (v *view) convert(ctx context.Context, obj registry.Object, to *view) (registry.Object, error) {
	if v == to {
		return obj, nil
	}
	return v.form.convert(ctx, obj, to)
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
func (v *versions) Convert(t *typed.TypedValue, version fieldpath.APIVersion) (*typed.TypedValue, error) {
	from := v.view
	if t.AsValue() != nil && t.AsValue().IsMap() {
		if have, ok := t.AsValue().AsMap().Get("apiVersion"); ok && have.IsString() {
			if from = v.in(have.AsString()); from == nil {
				return t, errNoVersion
			}
		}
	}
	to := v.in(string(version))
	switch {
	case to == nil:
		return t, errNoVersion
	case from == to:
		return t, nil
	}
	obj, err := from.fromTyped(t)
	if err != nil {
		return t, err
	}
	converted, err := from.convert(v.ctx, obj, to)
	if err != nil {
		return t, err
	}
	converted.GetObjectKind().SetGroupVersionKind(to.kind.GVK())
	return to.asTyped(converted, typed.AllowDuplicates)
}

// IsMissingVersionError reports whether the version of a set is no longer served, which drops the
// set.
func (v *versions) IsMissingVersionError(err error) bool { return errors.Is(err, errNoVersion) }
