package apply

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/structured-merge-diff/v4/fieldpath"
)

// TestUnorderedFieldSetsDecodeLikeLibrary checks that large sets whose members are out of
// order, repeated, unknown or invalid decode to the same set, or the same error, as the merge
// library alone.
func TestUnorderedFieldSetsDecodeLikeLibrary(t *testing.T) {
	const filler = 2 * minSorted
	var many []string
	for i := range filler {
		many = append(many, fmt.Sprintf(`"f:k%06d":{}`, filler-i))
	}
	numbers := make([]string, 0, filler)
	for i := range filler {
		numbers = append(numbers, fmt.Sprintf(`"i:%d":{"f:b":{},"f:a":{}}`, i*7919%filler), fmt.Sprintf(`"v:%d":{}`, i*7919%filler))
	}
	slices.Sort(numbers)
	large := strings.Join(many, ",")
	for name, raw := range map[string]string{
		"descending names":        `{"f:data":{` + large + `}}`,
		"numbers ordered as text": `{` + strings.Join(numbers, ",") + `}`,
		"repeated members":        `{"f:z":{"f:a":{},"f:b":{}},"f:a":{},` + large + `,"f:z":{},"f:z":{"f:c":{}},"f:\u007a":{".":{}},"f:k000001":{"f:d":{}}}`,
		"keys and values":         `{"k:{\"b\":1,\"a\":\"x\"}":{".":{},"f:y":{},"f:x":{}},"v:\"é\\n\"":{},` + large + `,"k:{\"a\":\"w\",\"b\":1}":{}}`,
		"unknown elements":        `{"z:1":{"f:a":{}},` + large + `,"z:0":[1,2]}`,
		"invalid element":         `{` + large + `,"f":{}}`,
		"invalid value":           `{` + large + `,"f:a":[1]}`,
		"null values":             `{` + large + `,"f:b":null,"f:a":null}`,
		"white space":             " {\n" + large + " ,\t\"f:a\" : { } } ",
		"no object":               `[` + strings.Repeat("1,", filler) + `1]`,
	} {
		t.Run(name, func(t *testing.T) {
			want := &fieldpath.Set{}
			wantErr := want.FromJSON(bytes.NewReader([]byte(raw)))
			manager, _ := managerOf(t, configMapGVK, "")
			got, err := (*view)(nil).parseFieldSet([]byte(raw))
			if (err == nil) != (wantErr == nil) {
				t.Fatalf("got error %v, want %v", err, wantErr)
			}
			if err == nil && !got.Equals(want) {
				t.Errorf("got %.300s, want %.300s", got.Set, want)
			}
			list := []metav1.ManagedFieldsEntry{{
				Manager: "m", Operation: "Update", APIVersion: "v1", FieldsType: "FieldsV1",
				FieldsV1: &metav1.FieldsV1{Raw: []byte(raw)},
			}}
			if err := manager.Check(list); (err == nil) != (wantErr == nil) {
				t.Errorf("Check() = %v, want %v", err, wantErr)
			}
		})
	}
}

// BenchmarkDecodeDescendingFieldSet measures an update whose managedFields have descending members.
// The time per member must not depend on their number.
func BenchmarkDecodeDescendingFieldSet(b *testing.B) {
	fields, catalog := builtinFields(b)
	manager := fields.Manager(catalog.Kind(configMapGVK), nil)
	for _, count := range []int{10_000, 40_000, 160_000} {
		var raw strings.Builder
		raw.WriteString(`{"f:data":{`)
		for i := range count {
			if i > 0 {
				raw.WriteByte(',')
			}
			fmt.Fprintf(&raw, `"f:%06d":{}`, count-i)
		}
		raw.WriteString(`}}`)
		b.Run(fmt.Sprint(count), func(b *testing.B) {
			for b.Loop() {
				obj := configMap("a", "1")
				obj.ManagedFields = []metav1.ManagedFieldsEntry{{
					Manager: "m", Operation: "Update", APIVersion: "v1", FieldsType: "FieldsV1",
					FieldsV1: &metav1.FieldsV1{Raw: []byte(raw.String())},
				}}
				if err := manager.Update(b.Context(), nil, obj, "x"); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(count), "ns/member")
		})
	}
}
