// Package fieldvalidation handles unknown and duplicate fields of bodies and patches as the
// fieldValidation parameter of a write requires (specification: "Field validation"). It has no
// state. Packages handlers and patch use it.
package fieldvalidation

import (
	"context"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"binnacle/services/apiserver/internal/request"
)

// DetectsUnknown reports whether a fieldValidation value requires the detection of unknown and
// duplicate fields.
func DetectsUnknown(validation string) bool { return validation != metav1.FieldValidationIgnore }

// ReportUnknown rejects unknown and duplicate fields, adds warnings for them, or ignores them,
// depending on fieldValidation. reject converts the strict decoding error to an API error.
func ReportUnknown(ctx context.Context, validation string, unknown []error, reject func(error) error) error {
	switch {
	case len(unknown) == 0, !DetectsUnknown(validation):
		return nil
	case validation == metav1.FieldValidationStrict:
		return reject(runtime.NewStrictDecodingError(unknown))
	}
	for _, e := range unknown {
		for _, text := range splitErrors(e) {
			request.Warn(ctx, text)
		}
	}
	return nil
}

// yamlPrefixes are the prefixes of strict YAML errors that list several fields.
var yamlPrefixes = []string{"yaml: unmarshal errors:\n", "error converting YAML to JSON: yaml: unmarshal errors:\n"}

// splitErrors splits an error of strict decoding into one warning for each field.
func splitErrors(err error) []string {
	text := err.Error()
	for _, prefix := range yamlPrefixes {
		if rest, ok := strings.CutPrefix(text, prefix); ok {
			lines := strings.Split(rest, "\n")
			for i := range lines {
				lines[i] = strings.TrimSpace(lines[i])
			}
			return lines
		}
	}
	return []string{text}
}
