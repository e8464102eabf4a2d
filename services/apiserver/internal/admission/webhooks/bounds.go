package webhooks

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"

	"binnacle/services/apiserver/internal/status"
)

// Bounds of the warnings and annotations of a response, which are kept with the request.
const (
	// maxWarnings bounds the number of warnings; request.Warn bounds their length.
	maxWarnings = 1000
	// maxAnnotations bounds the number of audit annotations, and maxAnnotationBytes the length of
	// all their keys and values.
	maxAnnotations     = 1000
	maxAnnotationBytes = 256 << 10
	// omittedKey is the key of the annotation that contains the number of omitted ones.
	omittedKey = "annotations-left-out"
)

// truncate removes what exceeds the bounds.
func (v *reviewResponse) truncate() {
	v.warnings = slices.Clone(v.warnings[:min(len(v.warnings), maxWarnings)])
	if v.result != nil {
		v.result = status.Shortened(v.result)
	}
	maps.DeleteFunc(v.auditAnnotations, func(key, _ string) bool { return !validAnnotation(key) })
	size := 0
	for key, value := range v.auditAnnotations {
		size += len(key) + len(value)
	}
	if len(v.auditAnnotations) <= maxAnnotations && size <= maxAnnotationBytes {
		return
	}
	kept := map[string]string{}
	size = 0
	for _, key := range slices.Sorted(maps.Keys(v.auditAnnotations)) {
		value := v.auditAnnotations[key]
		if size += len(key) + len(value); size > maxAnnotationBytes || len(kept) == maxAnnotations {
			break
		}
		kept[key] = value
	}
	kept[omittedKey] = fmt.Sprint(len(v.auditAnnotations) - len(kept))
	v.auditAnnotations = kept
}

// validAnnotation reports whether a key is valid after the name of a webhook and a slash. The audit
// log omits others.
func validAnnotation(key string) bool {
	return !strings.Contains(key, "/") && len(validation.IsQualifiedName(key)) == 0
}
