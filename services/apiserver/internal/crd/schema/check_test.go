package schema

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"binnacle/services/apiserver/internal/json/tape"
	v1 "binnacle/services/apiserver/internal/registry/apis/apiextensions/v1"
)

// ratchets is the argument of Check that tolerates errors in unchanged values.
const ratchets = true

// keyedListSchema has lists of each list type, and a field that allows unknown fields.
const keyedListSchema = `{"type":"object","properties":{
	"list":{"type":"array","x-kubernetes-list-type":"map","x-kubernetes-list-map-keys":["a","b"],"items":{"type":"object","properties":{"a":{"type":"string"},"b":{"type":"integer"},"v":{"type":"integer","maximum":5}}}},
	"numbers":{"type":"array","x-kubernetes-list-type":"map","x-kubernetes-list-map-keys":["n"],"items":{"type":"object","properties":{"n":{"type":"number"},"v":{"type":"integer","maximum":5}}}},
	"atomic":{"type":"array","items":{"type":"integer","maximum":5}},
	"free":{"type":"object","x-kubernetes-preserve-unknown-fields":true,"properties":{"v":{"type":"integer","maximum":5}},"required":["w"]},
	"status":{"type":"object","properties":{"kind":{"type":"string","enum":["A"]},"n":{"type":"integer"},"set":{"type":"array","x-kubernetes-list-type":"set","items":{"type":"string"}}}}}}`

// TestCheckToleratesUnchangedValues checks the order of errors of an update, and that values that
// equal the old ones give none.
func TestCheckToleratesUnchangedValues(t *testing.T) {
	tests := []struct {
		name, old, doc string
		want           []string
	}{
		{
			name: "items correlate by key, in any order",
			old:  `{"list":[{"a":"x","b":1,"v":9},{"a":"y","b":1,"v":8}]}`,
			doc:  `{"list":[{"a":"y","b":1,"v":8},{"a":"x","b":1,"v":9},{"a":"z","b":1,"v":7}]}`,
			want: []string{`list[2].v: Invalid value: 7: list[2].v in body should be less than or equal to 5`},
		},
		{name: "item with another key is new", old: `{"list":[{"a":"x","b":1,"v":9}]}`, doc: `{"list":[{"a":"x","b":2,"v":9}]}`,
			want: []string{`list[0].v: Invalid value: 9: list[0].v in body should be less than or equal to 5`}},
		{name: "items with keys that differ little are different", old: `{"numbers":[{"n":0.0000001,"v":9}]}`, doc: `{"numbers":[{"n":0.0000002,"v":9}]}`,
			want: []string{`numbers[0].v: Invalid value: 9: numbers[0].v in body should be less than or equal to 5`}},
		{
			name: "items with large and small numeric keys correlate",
			old:  `{"numbers":[{"n":1e30,"v":9},{"n":1,"v":9}]}`,
			doc:  `{"numbers":[{"n":1,"v":9},{"n":1e30,"v":9}]}`,
			want: nil,
		},
		{
			name: "changed atomic list is checked as a whole",
			old:  `{"atomic":[9,1]}`,
			doc:  `{"atomic":[9,2]}`,
			want: []string{`atomic[0]: Invalid value: 9: atomic[0] in body should be less than or equal to 5`},
		},
		{name: "unchanged atomic list", old: `{"atomic":[9,1]}`, doc: `{"atomic":[9,1]}`, want: nil},
		{
			name: "object with unknown fields is never equal",
			old:  `{"free":{"x":1}}`,
			doc:  `{"free":{"x":1}}`,
			want: []string{`free.w: Required value`},
		},
		{name: "known field of that object may be equal", old: `{"free":{"w":1,"v":9}}`, doc: `{"free":{"w":2,"v":9}}`, want: nil},
		{name: "unchanged object without unknown fields", old: `{"free":{"v":9}}`, doc: `{"free":{"v":9}}`, want: nil},
		{name: "unchanged kind below the root", old: `{"status":{"kind":"B"}}`, doc: `{"status":{"kind":"B","n":1}}`, want: nil},
		{name: "unchanged duplicates", old: `{"status":{"set":["a","a"]}}`, doc: `{"status":{"set":["b","b"]}}`, want: nil},
		{
			name: "new duplicates",
			old:  `{"status":{"set":["a"]}}`,
			doc:  `{"status":{"set":["b","b","b"]}}`,
			want: []string{`status.set[1]: Duplicate value: "b"`},
		},
		{name: "duplicates in a list with several keys", old: `{}`, doc: `{"list":[{"a":"x"},{"b":1},{"a":"x"},null,{}]}`, want: []string{
			`list[3]: Invalid value: "null": list[3] in body must be of type object: "null"`,
			`list[2]: Duplicate value: map[string]interface {}{"a":"x"}`, `list[4]: Duplicate value: map[string]interface {}{}`}},
		{name: "item of a keyed list that is not an object", old: `{}`, doc: `{"list":["x"]}`, want: []string{
			`list[0]: Invalid value: "string": list[0] in body must be of type object: "string"`,
			`list[0]: Invalid value: "x": must be an object for an array of list-type map`}},
	}
	program := compileText(t, keyedListSchema)
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			var got []string
			for _, fieldErr := range program.Check(parseDoc(t, []byte(test.doc)), parseDoc(t, []byte(test.old)), ratchets, nil).All() {
				got = append(got, fieldErr.Error())
			}
			if !slices.Equal(got, test.want) {
				t.Errorf("Check(%s) after %s: got errors\n%s\nwant\n%s",
					test.doc, test.old, strings.Join(got, "\n"), strings.Join(test.want, "\n"))
			}
		})
	}
}

// TestCheckStatusIgnoresOtherFields checks that CheckStatus validates only the status, and lists outside of it.
func TestCheckStatusIgnoresOtherFields(t *testing.T) {
	program := compileText(t, keyedListSchema)
	doc := parseDoc(t, []byte(`{"list":["x"],"status":{"kind":"B","n":"x"}}`))
	got := program.CheckStatus(doc, parseDoc(t, []byte(`{"status":{"kind":"B"}}`)), ratchets, nil).Schema
	// kind and apiVersion at the top of a status are validated like those of a resource.
	if len(got) != 2 || got[0].Error() != `status.kind: Unsupported value: "B": supported values: "A"` ||
		got[1].Error() != `status.n: Invalid value: "string": n in body must be of type integer: "string"` {
		t.Errorf("CheckStatus = %v, want errors of status.kind and status.n", got)
	}
	for _, test := range []struct {
		name, old string
		ratchets  bool
		want      int
	}{
		{name: "null where there was none", old: `{}`, ratchets: true},
		{name: "null where there was none, without ratcheting", old: `{}`, want: 1},
		{name: "null where there was one", old: `{"status":{}}`, ratchets: true, want: 1},
	} {
		doc, old := parseDoc(t, []byte(`{"status":null}`)), parseDoc(t, []byte(test.old))
		if got := program.CheckStatus(doc, old, test.ratchets, nil).Schema; len(got) != test.want {
			t.Errorf("%s: got %v, want %d errors", test.name, got, test.want)
		}
	}
	if report := program.CheckStatus(parseDoc(t, []byte(`{"list":["x"]}`)), nil, ratchets, nil); len(report.Schema) > 0 || len(report.Lists) != 1 {
		t.Errorf("without a status: got %v, want no schema errors and one of lists", report)
	}
}

// TestStructuralErrorsComeFirst checks which errors prevent rules from being evaluated, and the
// order of all errors.
func TestStructuralErrorsComeFirst(t *testing.T) {
	errsOfValues := field.ErrorList{field.Invalid(nil, 1, ""), field.Duplicate(nil, 1), field.Forbidden(nil, "")}
	if got := StructuralError(errsOfValues); got != nil {
		t.Errorf("StructuralError(%v) = %v, want nil", errsOfValues, got)
	}
	for _, fieldErr := range []*field.Error{
		field.Required(nil, ""),
		field.TooLong(nil, "", 1),
		field.TooMany(nil, 2, 1),
		field.TypeInvalid(nil, 1, ""),
		field.NotSupported[string](nil, 1, nil),
	} {
		if blocking := StructuralError(field.ErrorList{fieldErr}); blocking == nil || blocking.Field != "<nil>" {
			t.Errorf("%v: got blocking error %v, want one of field <nil>", fieldErr.Type, blocking)
		}
	}
	report := Report{
		Schema:   field.ErrorList{{Detail: "1"}},
		Embedded: field.ErrorList{{Detail: "3"}},
		Lists:    field.ErrorList{{Detail: "4"}},
	}
	for i, fieldErr := range report.All(&field.Error{Detail: "2"}) {
		if fieldErr.Detail != string(rune('1'+i)) {
			t.Errorf("got error %s at %d, want %d", fieldErr.Detail, i, i+1)
		}
	}
}

// TestCheckDefaultsRejectsInvalidDefaults checks the errors of defaults that the schema does not allow.
func TestCheckDefaultsRejectsInvalidDefaults(t *testing.T) {
	tests := []struct {
		name, schema string
		want         []string
	}{
		{
			name: "within metadata of an embedded resource",
			schema: `{"type":"object","properties":{"p":{"type":"object","x-kubernetes-embedded-resource":true,"properties":{
			"metadata":{"type":"object","properties":{"name":{"type":"string","default":"A B/"},"labels":{"type":"object","default":{"a":"b"},"additionalProperties":{"type":"string"}},"finalizers":{"type":"array","items":{"type":"string","default":"a b"}}}},
			"kind":{"type":"string","default":"a b"},"apiVersion":{"type":"string","default":"a/b/c"}}}}}`,
			want: []string{
				`x.properties[p].properties[apiVersion].default: Invalid value: "a/b/c": must result in valid metadata: apiVersion: Invalid value: "a/b/c": unexpected GroupVersion string: a/b/c`,
				`x.properties[p].properties[kind].default: Invalid value: "a b": must result in valid metadata: kind: Invalid value: "a b": may have mixed case, but should otherwise match`,
				`x.properties[p].properties[metadata].properties[finalizers].items.default: Invalid value: "a b": must result in valid metadata: metadata.finalizers: Invalid value: "a b": name part`,
				`x.properties[p].properties[metadata].properties[name].default: Invalid value: "A B/": must result in valid metadata: metadata.name: Invalid value: "A B/": may not contain '/'`},
		},
		{
			name:   "malformed metadata",
			schema: `{"type":"object","properties":{"p":{"type":"object","x-kubernetes-embedded-resource":true,"x-kubernetes-preserve-unknown-fields":true,"default":{"apiVersion":"v1","kind":"P","metadata":{"labels":1}}}}}`,
			want: []string{
				`x.properties[p].default.metadata: Invalid value: map[string]interface {}{"labels":1}: json: cannot unmarshal number into Go struct field ObjectMeta.labels of type map[string]string`},
		},
		{
			name:   "in items, not in values of maps",
			schema: `{"type":"object","properties":{"l":{"type":"array","items":{"type":"integer","default":"x"}},"m":{"type":"object","additionalProperties":{"type":"integer","default":"x"}}}}`,
			want: []string{
				`x.properties[l].items.default: Invalid value: "string":  in body must be of type integer: "string"`},
		},
		{
			name:   "int or string without anyOf",
			schema: `{"type":"object","properties":{"i":{"x-kubernetes-int-or-string":true,"default":true}}}`,
			want:   nil,
		},
		{
			name:   "formats that imply a type",
			schema: `{"type":"object","properties":{"i":{"type":"string","format":"odd","default":5}}}`,
			want: []string{
				`x.properties[i].default: Invalid value: "int64":  in body must be of type odd: "int64"`},
		},
		{
			name:   "fine",
			schema: `{"type":"object","properties":{"o":{"type":"object","default":{"a":1},"properties":{"a":{"type":"integer"}}}}}`,
			want:   nil,
		},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			var props v1.JSONSchemaProps
			if err := json.Unmarshal([]byte(test.schema), &props); err != nil {
				t.Fatal(err)
			}
			got := CheckDefaults(t.Context(), field.NewPath("x"), &props, true, nil)
			ok := len(got) == len(test.want)
			for i := range test.want {
				ok = ok && strings.HasPrefix(got[i].Error(), test.want[i])
			}
			if !ok {
				t.Errorf("got %v\nwant %s", got, strings.Join(test.want, "\n"))
			}
		})
	}
}

// TestCheckDefaultsEvaluatesRules checks that CheckDefaults evaluates the rules of defaults until
// their budget is spent.
func TestCheckDefaultsEvaluatesRules(t *testing.T) {
	var schemaProps v1.JSONSchemaProps
	if err := json.Unmarshal([]byte(`{"type":"object","properties":{"a":{"type":"integer","default":1},"b":{"type":"integer","default":2},"c":{"type":"integer","default":3}}}`), &schemaProps); err != nil {
		t.Fatal(err)
	}
	var calls []string
	rules := func(_ context.Context, at *field.Path, schemaProps *v1.JSONSchemaProps, root bool, value []byte, budget int64) (field.ErrorList, int64) {
		calls = append(calls, string(value))
		if len(calls) == 2 {
			return field.ErrorList{field.Invalid(at, 0, "no")}, -1
		}
		return nil, budget - 1
	}
	errs := CheckDefaults(t.Context(), field.NewPath("x"), &schemaProps, false, rules)
	if !slices.Equal(calls, []string{"1", "2"}) || len(errs) != 1 || errs[0].Field != "x.properties[b].default" {
		t.Errorf("got rules evaluated for %q, errors %v; want %q and one error of x.properties[b].default",
			calls, errs, []string{"1", "2"})
	}
}

// BenchmarkEqualDocuments measures an update that changes nothing, of a list with many equal keys.
func BenchmarkEqualDocuments(b *testing.B) {
	program := compileText(b, keyedListSchema)
	text := `{"list":[` + strings.TrimSuffix(strings.Repeat(`{"a":"x","b":1,"v":9},`, 100), ",") + `]}`
	doc, err := tape.Parse([]byte(text))
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		program.Check(doc, doc, true, nil)
	}
}
