package writes

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"binnacle/services/apiserver/internal/request"
)

// LooksForUnknown tells whether a fieldValidation wants to know of unknown and
// duplicate fields.
func LooksForUnknown(validation string) bool { return validation != metav1.FieldValidationIgnore }

// ReportUnknown refuses unknown and duplicate fields, or warns of them, or does
// nothing, as fieldValidation has it (specification: "Field validation").
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
