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

// TestManagedFieldsOfDocuments checks that errors in managedFields of documents equal those of
// other objects.
func TestManagedFieldsOfDocuments(t *testing.T) {
	k := &registry.Kind{Names: registry.Names{Kind: "Widget", AllowUnqualifiedFinalizers: true}}
	good := map[string]any{
		"manager": "m", "operation": "Update", "apiVersion": "v1", "fieldsType": "FieldsV1", "time": "2026-11-23T00:00:00Z",
		"fieldsV1": map[string]any{"f:spec": map[string]any{}},
	}
	with := func(name string, v any) map[string]any {
		m := runtime.DeepCopyJSON(good)
		m[name] = v
		return m
	}
	for name, c := range map[string]struct {
		entries []any
		want    string
	}{
		"good": {entries: []any{good, good}, want: ""},
		"an operation": {entries: []any{good, with("operation", "Delete")},
			want: "metadata.managedFields[1].operation: Invalid value: \"Delete\": must be `Apply` or `Update`"},
		"a type": {entries: []any{with("fieldsType", "FieldsV2")},
			want: "metadata.managedFields[0].fieldsType: Invalid value: \"FieldsV2\": must be `FieldsV1`"},
		"a manager": {entries: []any{with("manager", strings.Repeat("m", 200))},
			want: "metadata.managedFields[0].manager: Too long: may not be more than 128 bytes"},
		"a sub-resource": {entries: []any{with("subresource", strings.Repeat("s", 300))},
			want: "metadata.managedFields[0].subresource: Too long: may not be more than 256 bytes"},
		"malformed time":  {entries: []any{with("time", "now"), with("operation", "Delete")}, want: ""}, // the entries are dropped
		"malformed entry": {entries: []any{"x", with("operation", "Delete")}, want: ""},
	} {
		object := func() *unstructured.Unstructured {
			return &unstructured.Unstructured{Object: map[string]any{"metadata": map[string]any{
				"name": "a", "uid": "u", "resourceVersion": "1", "managedFields": c.entries,
			}}}
		}
		if got := fmt.Sprint(meta.ValidateCreate(k, object())); got != "["+c.want+"]" {
			t.Errorf("%s: got %s, want %s", name, got, c.want)
		}
		if got := meta.ValidateUpdate(k, nil, object(), object(), noRules); (len(got) > 0) != (c.want != "") ||
			len(got) > 0 && got[0].Error() != c.want {
			t.Errorf("%s in an update: got %v, want %s", name, got, c.want)
		}
	}
}
