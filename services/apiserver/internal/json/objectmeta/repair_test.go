package objectmeta

import (
	"testing"

	"binnacle/services/apiserver/internal/json/tape"
)

func TestRepairDropsUndecodableFields(t *testing.T) {
	for _, c := range []struct{ name, stored, want string }{
		{"valid metadata is unchanged", `{"metadata":{ "generation":2,"name":"a","creationTimestamp":"2020-01-01T00:00:00Z","ownerReferences":[{"controller":true,"name":"x"}],"managedFields":[{"fieldsV1":{"f:a":{}},"manager":"m"}]}}`,
			`{"metadata":{ "generation":2,"name":"a","creationTimestamp":"2020-01-01T00:00:00Z","ownerReferences":[{"controller":true,"name":"x"}],"managedFields":[{"fieldsV1":{"f:a":{}},"manager":"m"}]}}`},
		{"unknown fields, a wrong type and no generation", `{"metadata":{"unknown":42,"name":"a","annotations":{"bar":"abc","foo":42},"generation":null},"x":1}`,
			`{"metadata":{"generation":1,"name":"a"},"x":1}`},
		{"a list of a wrong type", `{"metadata":{"generation":3,"name":"a","ownerReferences":[{"controller":"yes"}],"finalizers":[1],"labels":{"a":"b"}}}`,
			`{"metadata":{"name":"a","generation":3,"labels":{"a":"b"}}}`},
		{"no metadata", `{"x":1}`, `{"x":1}`},
	} {
		d, err := tape.Parse([]byte(c.stored))
		if err == nil {
			d, err = Repair(d)
		}
		if err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		if got := string(d.Raw()); got != c.want {
			t.Errorf("%s: got %s, want %s", c.name, got, c.want)
		}
	}
}
