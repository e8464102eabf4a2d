package objectmeta

import (
	"testing"

	"binnacle/services/apiserver/internal/json/tape"
)

// TestRepairDropsUndecodableFields checks that typed clients can decode repaired metadata, and that
// valid metadata keeps its text.
func TestRepairDropsUndecodableFields(t *testing.T) {
	for _, test := range []struct{ name, stored, want string }{
		{name: "valid metadata is unchanged", stored: `{"metadata":{ "generation":2,"name":"a","creationTimestamp":"2020-01-01T00:00:00Z","ownerReferences":[{"controller":true,"name":"x"}],"managedFields":[{"fieldsV1":{"f:a":{}},"manager":"m"}]}}`,
			want: `{"metadata":{ "generation":2,"name":"a","creationTimestamp":"2020-01-01T00:00:00Z","ownerReferences":[{"controller":true,"name":"x"}],"managedFields":[{"fieldsV1":{"f:a":{}},"manager":"m"}]}}`},
		{name: "unknown fields, a wrong type and no generation", stored: `{"metadata":{"unknown":42,"name":"a","annotations":{"bar":"abc","foo":42},"generation":null},"x":1}`,
			want: `{"metadata":{"generation":1,"name":"a"},"x":1}`},
		{name: "a list of a wrong type", stored: `{"metadata":{"generation":3,"name":"a","ownerReferences":[{"controller":"yes"}],"finalizers":[1],"labels":{"a":"b"}}}`,
			want: `{"metadata":{"name":"a","generation":3,"labels":{"a":"b"}}}`},
		{name: "no metadata", stored: `{"x":1}`, want: `{"x":1}`},
	} {
		doc, err := tape.Parse([]byte(test.stored))
		if err == nil {
			doc, err = Repair(doc)
		}
		if err != nil {
			t.Fatalf("%s: %v", test.name, err)
		}
		if got := string(doc.Raw()); got != test.want {
			t.Errorf("%s: Repair(%s) = %s, want %s", test.name, test.stored, got, test.want)
		}
	}
}
