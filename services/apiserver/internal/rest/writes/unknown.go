package writes

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"binnacle/services/apiserver/internal/request"
)

// LooksForUnknown reports whether a fieldValidation value requires the detection of unknown and
// duplicate fields.
func LooksForUnknown(validation string) bool { return validation != metav1.FieldValidationIgnore }

// ReportUnknown rejects unknown and duplicate fields, adds warnings for them, or ignores them,
// depending on fieldValidation (specification: "Field validation").
func ReportUnknown(ctx context.Context, validation string, unknown []error, refuse func(error) error) error {
	switch {
	case len(unknown) == 0, !LooksForUnknown(validation):
		return nil
	case validation == metav1.FieldValidationStrict:
		return refuse(runtime.NewStrictDecodingError(unknown))
	}
	for _, e := range unknown {
		for _, text := range fieldWarnings(e) {
			request.Warn(ctx, text)
		}
	}
	return nil
}
