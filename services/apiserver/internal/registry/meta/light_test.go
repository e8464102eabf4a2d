package meta_test

import (
	"fmt"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"binnacle/services/apiserver/internal/registry"
	"binnacle/services/apiserver/internal/registry/meta"
)

// TestInvalidManagedFieldsOfDocumentsAreRejected checks the validation errors of managedFields of custom resources,
// which are validated without their field sets.
func TestInvalidManagedFieldsOfDocumentsAreRejected(t *testing.T) {
	kind := &registry.Kind{Names: registry.Names{Kind: "Widget", AllowUnqualifiedFinalizers: true}}
	valid := map[string]any{
		"manager":    "m",
		"operation":  "Update",
		"apiVersion": "v1",
		"fieldsType": "FieldsV1",
		"time":       "2026-11-23T00:00:00Z",
		"fieldsV1":   map[string]any{"f:spec": map[string]any{}},
	}
	validExcept := func(name string, v any) map[string]any {
		entry := runtime.DeepCopyJSON(valid)
		entry[name] = v
		return entry
	}
	for name, test := range map[string]struct {
		entries []any
		want    string
	}{
		"valid entries": {entries: []any{valid, valid}, want: ""},
		"unknown operation": {
			entries: []any{valid, validExcept("operation", "Delete")},
			want:    "metadata.managedFields[1].operation: Invalid value: \"Delete\": must be `Apply` or `Update`",
		},
		"unknown fieldsType": {
			entries: []any{validExcept("fieldsType", "FieldsV2")},
			want:    "metadata.managedFields[0].fieldsType: Invalid value: \"FieldsV2\": must be `FieldsV1`",
		},
		"long manager": {
			entries: []any{validExcept("manager", strings.Repeat("m", 200))},
			want:    "metadata.managedFields[0].manager: Too long: may not be more than 128 bytes",
		},
		"long subresource": {
			entries: []any{validExcept("subresource", strings.Repeat("s", 300))},
			want:    "metadata.managedFields[0].subresource: Too long: may not be more than 256 bytes",
		},
		// A malformed entry makes unstructured.Unstructured drop all entries.
		"malformed time":  {entries: []any{validExcept("time", "now"), validExcept("operation", "Delete")}, want: ""},
		"malformed entry": {entries: []any{"x", validExcept("operation", "Delete")}, want: ""},
	} {
		object := func() *unstructured.Unstructured {
			return &unstructured.Unstructured{Object: map[string]any{"metadata": map[string]any{
				"name": "a", "uid": "u", "resourceVersion": "1", "managedFields": test.entries,
			}}}
		}
		if got := fmt.Sprint(meta.ValidateCreate(kind, object())); got != "["+test.want+"]" {
			t.Errorf("creation with %s: got errors %s, want [%s]", name, got, test.want)
		}
		got := ""
		if errs := meta.ValidateUpdate(kind, nil, object(), object(), noRules); len(errs) > 0 {
			got = errs[0].Error()
		}
		if got != test.want {
			t.Errorf("update with %s: got first error %q, want %q", name, got, test.want)
		}
	}
}
