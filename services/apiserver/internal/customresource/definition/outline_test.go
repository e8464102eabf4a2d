package definition_test

import (
	"testing"

	"binnacle/services/apiserver/internal/customresource/definition"
)

func TestOutlineLeavesOutWhatIsLarge(t *testing.T) {
	for _, tc := range []struct{ name, stored, want string }{
		{
			"one schema for all versions",
			`{"kind":"K","metadata":{"name":"a","managedFields":[{"manager":"m"}],"uid":"u"},"spec":{"group":"g","validation":{"openAPIV3Schema":{"type":"object"}},"versions":[{"name":"v1","served":true}]},"status":{"conditions":[]}}`,
			`{"kind":"K","metadata":{"name":"a","uid":"u"},"spec":{"group":"g","versions":[{"name":"v1","served":true}]},"status":{"conditions":[]}}`,
		},
		{
			"a schema in each version", `{"spec": {"versions": [ {"name":"v1","schema":{"a":[1,"]}"]}}, {"schema":{},"name":"v2"} ] } }`,
			`{"spec":{"versions":[{"name":"v1"},{"name":"v2"}]}}`,
		},
		{"nothing to leave out", `{"spec":{"versions":null},"metadata":7}`, `{"spec":{"versions":null},"metadata":7}`},
		{"cut off", `{"spec":{"versions":[{"name"`, `{"spec":{"versions":[{"name"`},
		{"a schema twice", `{"spec":{"versions":[{"schema":{},"schema":{"a":1}}]}}`, `{"spec":{"versions":[{"schema":{},"schema":{"a":1}}]}}`},
		{"escapes in names", `{"sp\u0065c":{"versions":[]}}`, `{"sp\u0065c":{"versions":[]}}`},
		{"no object", "[1]", "[1]"},
		{"nothing", "", ""},
		{"protobuf", "k8s\x00\x0a", "k8s\x00\x0a"},
	} {
		if got := string(definition.Unowned([]byte(tc.stored))); got != tc.want {
			t.Errorf("%s: %s, want %s", tc.name, got, tc.want)
		}
	}
}
