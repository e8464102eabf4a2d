package webhooks

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"

	"binnacle/services/apiserver/internal/status"
)

// Bounds of what a webhook says beside its verdict, which is kept and told with the request.
const (
	// maxWarnings is how many warnings there are; request.Warn bounds what they say.
	maxWarnings = 1000
	// maxAnnotations is how many audit annotations there are, and maxAnnotated how many bytes
	// of keys and values.
	maxAnnotations = 1000
	maxAnnotated   = 256 << 10
	// leftOut is the key that says how many there are no more.
	leftOut = "annotations-left-out"
)

// shorten leaves out what nobody is told.
func (v *verdict) shorten() {
	v.warnings = slices.Clone(v.warnings[:min(len(v.warnings), maxWarnings)])
	if v.result != nil {
		v.result = status.Shortened(v.result)
	}
	maps.DeleteFunc(v.auditAnnotations, func(key, _ string) bool { return !annotates(key) })
	size := 0
	for key, value := range v.auditAnnotations {
		size += len(key) + len(value)
	}
	if len(v.auditAnnotations) <= maxAnnotations && size <= maxAnnotated {
		return
	}
	kept := map[string]string{}
	size = 0
	for _, key := range slices.Sorted(maps.Keys(v.auditAnnotations)) {
		value := v.auditAnnotations[key]
		if size += len(key) + len(value); size > maxAnnotated || len(kept) == maxAnnotations {
			break
		}
		kept[key] = value
	}
	kept[leftOut] = fmt.Sprint(len(v.auditAnnotations) - len(kept))
	v.auditAnnotations = kept
}

// annotates tells of a key that is one behind the webhook's name; the audit log has no others.
func annotates(key string) bool {
	return !strings.Contains(key, "/") && len(validation.IsQualifiedName(key)) == 0
}
