package schema

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/kube-openapi/pkg/validation/strfmt"

	"binnacle/services/apiserver/internal/json/objectmeta"
	v1 "binnacle/services/apiserver/internal/registry/apis/apiextensions/v1"
)

// compileText compiles a schema written as JSON.
func compileText(t testing.TB, text string) *Program {
	t.Helper()
	var props v1.JSONSchemaProps
	if err := json.Unmarshal([]byte(text), &props); err != nil {
		t.Fatal(err)
	}
	program, err := Compile(&props)
	if err != nil {
		t.Fatal(err)
	}
	return program
}

// withSmallLimit gives a program a 64th of its limit: with the race detector, a check takes about
// 64 times as long.
func withSmallLimit(p *Program) *Program {
	p.maxCost /= 64
	return p
}

// embeddedSchema has embedded resources with and without fields of their own, and a map of them.
const embeddedSchema = `{"type":"object","properties":{
	"pod":{"type":"object","x-kubernetes-embedded-resource":true,"x-kubernetes-preserve-unknown-fields":true},
	"typed":{"type":"object","x-kubernetes-embedded-resource":true,"properties":{
		"metadata":{"type":"object","properties":{"name":{"type":"string","default":"given"},"labels":{"type":"object","nullable":true}}},
		"kind":{"type":"string","default":"Pod"},"spec":{"type":"object"}}},
	"map":{"type":"object","additionalProperties":{"type":"object","x-kubernetes-embedded-resource":true,"x-kubernetes-preserve-unknown-fields":true}}}}`

// TestNormalizeEmbeddedResources checks that the metadata of embedded resources is pruned and
// validated.
func TestNormalizeEmbeddedResources(t *testing.T) {
	tests := []struct {
		name, doc, want string // want is doc if it is empty
		unknown         []string
		err             string // unless malformed metadata is dropped
		dropped         string // result if malformed metadata is dropped; want if empty
	}{
		{
			name: "nothing to do",
			doc:  `{"pod":{"apiVersion":"v1","kind":"Pod","metadata":{"name":"p","labels":{"a":"b"},"finalizers":["x"]},"spec":{"x":1}}}`,
		},
		{
			name:    "unknown and empty fields of metadata",
			doc:     `{"pod":{"metadata":{"z":1,"name":"p","labels":{},"creationTimestamp":null,"a":{"b":1}}}}`,
			want:    `{"pod":{"metadata":{"name":"p"}}}`,
			unknown: []string{"pod.metadata.a", "pod.metadata.z"},
		},
		{
			name:    "in a map",
			doc:     `{"map":{"k":{"metadata":{"z":1}}}}`,
			want:    `{"map":{"k":{"metadata":{}}}}`,
			unknown: []string{"map[k].metadata.z"},
		},
		{
			name: "no metadata at all",
			doc:  `{"pod":{"metadata":null}}`,
			want: `{"pod":{"metadata":{}}}`,
		},
		{
			name: "a time that is set",
			doc:  `{"pod":{"metadata":{"creationTimestamp":"2024-01-02T03:04:05Z"}}}`,
		},
		{
			name:    "fields of the schema within metadata",
			doc:     `{"typed":{"apiVersion":"v1","kind":null,"metadata":{"name":null,"labels":null},"spec":{"x":1},"y":1}}`,
			want:    `{"typed":{"apiVersion":"v1","kind":"Pod","metadata":{"name":"given"},"spec":{}}}`,
			unknown: []string{"typed.spec.x", "typed.y"},
		},
		{
			name:    "malformed type",
			doc:     `{"pod":{"apiVersion":1,"kind":"Pod"}}`,
			err:     "pod.apiVersion: Invalid value: 1: must be a string",
			dropped: `{"pod":{"kind":"Pod"}}`,
		},
		{name: "malformed labels", doc: `{"pod":{"metadata":{"labels":"x","name":"p"}}}`,
			err: `pod.metadata: Invalid value: map[string]interface {}{"labels":"x", "name":"p"}: json: cannot unmarshal string into Go struct field ObjectMeta.labels of type map[string]string`, dropped: `{"pod":{"metadata":{"name":"p"}}}`},
		{name: "malformed metadata", doc: `{"map":{"k":{"metadata":"x"}}}`,
			err: `map[k].metadata: Invalid value: "x": json: cannot unmarshal string into Go value of type v1.ObjectMeta`, dropped: `{"map":{"k":{"metadata":"x"}}}`},
		{
			name: "the resource's own is left alone",
			doc:  `{"apiVersion":1,"kind":null,"metadata":{"z":1},"pod":{}}`,
		},
	}
	program := compileText(t, embeddedSchema)
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			if test.want == "" {
				test.want = test.doc
			}
			document := parseDoc(t, []byte(test.doc))
			normalized, err := program.Normalize(document, NormalizeOptions{Unknown: true})
			var wrong *field.Error
			if test.err != "" {
				if !errors.As(err, &wrong) || err.Error() != test.err {
					t.Errorf("Normalize(%s): got error %v\nwant %s", test.doc, err, test.err)
				}
			} else if err != nil || string(normalized.Doc.Raw()) != test.want || !slices.Equal(normalized.Unknown, test.unknown) {
				t.Errorf("Normalize(%s): got %s, unknown fields %q, error %v\nwant %s, %q",
					test.doc, normalized.Doc.Raw(), normalized.Unknown, err, test.want, test.unknown)
			}
			if test.dropped == "" {
				test.dropped = test.want
			}
			normalized, err = program.Normalize(document, NormalizeOptions{DropMalformed: true})
			if err != nil || string(normalized.Doc.Raw()) != test.dropped || normalized.Unknown != nil {
				t.Errorf("Normalize(%s) with DropMalformed: got %s, unknown fields %q, error %v\nwant %s, none",
					test.doc, normalized.Doc.Raw(), normalized.Unknown, err, test.dropped)
			}
		})
	}
}

// TestNormalizeKeepsText checks that a document keeps its text, apart from removed fields and added
// defaults.
func TestNormalizeKeepsText(t *testing.T) {
	tests := []struct{ name, doc, want string }{
		{name: "texts of values are kept", doc: `{"n":1.50e1,"s":"\u0061"}`, want: `{"n":1.50e1,"s":"\u0061","d":{"e":"f"}}`},
		{name: "first field is removed", doc: `{ "x" : 1 , "n" : 2 }`, want: `{ "n" : 2,"d":{"e":"f"} }`},
		{name: "last field is removed", doc: `{"n":2 , "x":1}`, want: `{"n":2,"d":{"e":"f"}}`},
		{name: "all fields are removed", doc: `{"x":1,"y":[{}],"z":null}`, want: `{"d":{"e":"f"}}`},
		{name: "some fields are removed", doc: `{"x":1,"n":1,"y":2,"z":3,"s":"","w":1}`, want: `{"n":1,"s":"","d":{"e":"f"}}`},
		{name: "default is added to an empty object", doc: `{"d":{ }}`, want: `{"d":{ "e":"f"}}`},
		{name: "last of equal keys stays", doc: `{"n":1,"n":2,"d":{"e":"g"}}`, want: `{"n":2,"d":{"e":"g"}}`},
		{name: "invalid UTF-8 is replaced", doc: "{\"s\":\"a\xffb\",\"d\":{\"e\":\"g\"}}", want: "{\"s\":\"a\ufffdb\",\"d\":{\"e\":\"g\"}}"},
		{
			name: "fields within lists without a schema are removed",
			doc:  `{"l":[{"a":1},[{"b":2}],3],"d":{"e":"g"}}`,
			want: `{"l":[{},[{}],3],"d":{"e":"g"}}`,
		},
	}
	program := compileText(t, `{"type":"object","properties":{"n":{"type":"number"},"s":{"type":"string"},"l":{"type":"array"},
		"d":{"type":"object","default":{"x":1},"properties":{"e":{"type":"string","default":"f"}}}}}`)
	for _, test := range tests {
		normalized, err := program.Normalize(parseDoc(t, []byte(test.doc)), NormalizeOptions{})
		if err != nil || string(normalized.Doc.Raw()) != test.want {
			t.Errorf("%s: Normalize(%s) = %s, %v, want %s", test.name, test.doc, normalized.Doc.Raw(), err, test.want)
		}
	}
}

// TestMetadataDefaultsArePrunedByObjectMeta checks that defaults of metadata are pruned by the fields of
// ObjectMeta, not by the schema.
func TestMetadataDefaultsArePrunedByObjectMeta(t *testing.T) {
	const resource = `{"type":"object","x-kubernetes-embedded-resource":true,"properties":{"metadata":{"type":"object","default":{"name":"Bar","unknown":"x","labels":{"a":"b"}}}}}`
	program := compileText(t, `{"type":"object","properties":{
		"one":`+resource+`,"list":{"type":"array","items":`+resource+`},"map":{"type":"object","additionalProperties":`+resource+`},
		"both":{"type":"object","x-kubernetes-embedded-resource":true,"properties":{"metadata":{"type":"object","nullable":true,"default":{"name":"Bar"},"properties":{"generateName":{"type":"string","default":"g"}}}}},
		"part":{"type":"object","x-kubernetes-embedded-resource":true,"properties":{"metadata":{"type":"object","properties":{"labels":{"type":"object","default":{"a":"b"}}}}}}}}`)
	const filled = `{"metadata":{"name":"Bar","labels":{"a":"b"}}}`
	for doc, want := range map[string]string{
		`{"one":{}}`:                         `{"one":` + filled + `}`,
		`{"one":{"metadata":null}}`:          `{"one":{"metadata":{}}}`,
		`{"one":{"metadata":{}}}`:            `{"one":{"metadata":{}}}`,
		`{"list":[{}]}`:                      `{"list":[` + filled + `]}`,
		`{"map":{"k":{}}}`:                   `{"map":{"k":` + filled + `}}`,
		`{"list":[{"metadata":null}]}`:       `{"list":[{"metadata":{}}]}`,
		`{"part":{"metadata":{"name":"p"}}}`: `{"part":{"metadata":{"name":"p","labels":{"a":"b"}}}}`,
		`{"part":{"metadata":null}}`:         `{"part":{}}`,
		`{"both":{"metadata":null}}`:         `{"both":{"metadata":{"generateName":"g"}}}`,
	} {
		normalized, err := program.Normalize(parseDoc(t, []byte(doc)), NormalizeOptions{})
		if err != nil || string(normalized.Doc.Raw()) != want {
			t.Errorf("%s: got %s, %v, want %s", doc, normalized.Doc.Raw(), err, want)
		}
	}
	// An apply adds defaults first, and keeps nulls that the schema does not allow.
	for doc, want := range map[string]string{
		`{"one":{"metadata":null}}`:  `{"one":` + filled + `}`,
		`{"part":{"metadata":null}}`: `{"part":{"metadata":null}}`,
	} {
		normalized, err := program.Normalize(parseDoc(t, []byte(doc)), NormalizeOptions{KeepNulls: true})
		if err != nil || string(normalized.Doc.Raw()) != want {
			t.Errorf("applied %s: got %s, %v, want %s", doc, normalized.Doc.Raw(), err, want)
		}
	}
}

// TestNormalizeReportsDuplicateAndUnknownFields checks which duplicate and unknown fields are
// reported.
func TestNormalizeReportsDuplicateAndUnknownFields(t *testing.T) {
	program := compileText(t, `{"type":"object","properties":{"spec":{"type":"object"}}}`)
	normalized, err := program.Normalize(parseDoc(t, []byte(`{"spec":{"z":1,"a":1},"b":{"c":1},"b":2}`)), NormalizeOptions{Unknown: true})
	if err != nil || !slices.Equal(normalized.Duplicates, []string{"b"}) ||
		!slices.Equal(normalized.Unknown, []string{"b", "spec.a", "spec.z"}) {
		t.Errorf("got duplicates %q, unknown fields %q, error %v; want %v, %v",
			normalized.Duplicates, normalized.Unknown, err, []string{"b"}, []string{"b", "spec.a", "spec.z"})
	}
	lenient, err := program.Normalize(parseDoc(t, []byte(`{"spec":{"z":1},"b":null}`)), NormalizeOptions{Unknown: true, Lenient: true})
	if err != nil || lenient.Changed || lenient.Unknown != nil {
		t.Errorf("lenient: got %s, unknown %q, %v, want it unchanged without unknown fields", lenient.Doc.Raw(), lenient.Unknown, err)
	}
}

// TestNormalizeWithoutSchemaKeepsTypeAndMetadata checks that without a schema all fields except
// apiVersion, kind and metadata are unknown.
func TestNormalizeWithoutSchemaKeepsTypeAndMetadata(t *testing.T) {
	none, err := Compile(nil)
	if err != nil {
		t.Fatal(err)
	}
	normalized, err := none.Normalize(
		parseDoc(t, []byte(`{"apiVersion":"v1","kind":"K","metadata":{"a":1},"x":1}`)),
		NormalizeOptions{},
	)
	if err != nil || string(normalized.Doc.Raw()) != `{"apiVersion":"v1","kind":"K","metadata":{"a":1}}` {
		t.Errorf("without a schema: got %s, %v, want only apiVersion, kind and metadata", normalized.Doc.Raw(), err)
	}
	if normalized, err := none.Normalize(parseDoc(t, []byte(`[1]`)), NormalizeOptions{}); err != nil || normalized.Changed {
		t.Errorf("not an object: got %s, %v, want it unchanged", normalized.Doc.Raw(), err)
	}
}

// repeatItem returns the text of a list of count equal items.
func repeatItem(item string, count int) string {
	return "[" + strings.TrimSuffix(strings.Repeat(item+",", count), ",") + "]"
}

// TestNormalizeRejectsTooLargeDefaults checks that a document that would be too large with its defaults
// is rejected.
func TestNormalizeRejectsTooLargeDefaults(t *testing.T) {
	large, _ := json.Marshal(strings.Repeat("d", 10_000))
	program := compileText(t, `{"type":"object","properties":{
		"l":{"type":"array","items":{"type":"object","properties":{"d":{"type":"string","default":`+string(large)+`}}}}}}`)
	manyItems := parseDoc(t, []byte(`{"l":`+repeatItem("{}", 100_000)+`}`))
	if _, err := program.Normalize(manyItems, NormalizeOptions{}); !errors.Is(err, ErrTooLarge) {
		t.Errorf("defaults of many items: got error %v, want %v", err, ErrTooLarge)
	}
}

// TestCheckLimitsErrors checks that Check returns at most maxErrors errors of the schema and of lists,
// and none for an unchanged document. Without the limits, the test would exceed its timeout.
func TestCheckLimitsErrors(t *testing.T) {
	program := compileText(t, `{"type":"object","properties":{
		"n":{"type":"array","items":{"type":"integer"}},"m":{"type":"object","additionalProperties":{"type":"integer"}},
		"s":{"type":"array","x-kubernetes-list-type":"set","items":{"type":"integer"}},
		"k":{"type":"array","x-kubernetes-list-type":"map","x-kubernetes-list-map-keys":["a"],"items":{"type":"object","properties":{"a":{"type":"string"},"b":{"type":"integer"}}}}}}`)
	var members, items strings.Builder
	for i := range 50_000 {
		key, _ := json.Marshal(strings.Repeat("x", i%7) + string(rune('a'+i%26)) + strings.Repeat("1", 1+i%9) +
			string(rune(0x4e00+i%20000)))
		members.WriteString(string(key) + `:"x",`)
		items.WriteString(`{"a":` + string(key) + `,"b":"x"},`)
	}
	text := `{"n":` + repeatItem(`"x"`, 100_000) + `,"m":{` + strings.TrimSuffix(members.String(), ",") + `},"s":` + repeatItem("1", 100_000) +
		`,"k":[` + strings.TrimSuffix(items.String(), ",") + `]}`
	doc, err := parseDoc(t, []byte(text)).Canonicalize()
	if err != nil {
		t.Fatal(err)
	}
	report := program.Check(doc, nil, ratchets, nil)
	if len(report.Schema) != maxErrors || len(report.Lists) == 0 || len(report.Lists) > maxErrors {
		t.Errorf("got %d errors of the schema and %d of lists, want %d and 1 to %[3]d",
			len(report.Schema), len(report.Lists), maxErrors)
	}
	if again := program.Check(doc, doc, ratchets, nil); len(again.Schema) > 0 || len(again.Lists) > 0 {
		t.Errorf("unchanged: got error %v, want none", again.All()[0])
	}
}

// TestNormalizeLimitsUnknownFields checks that an unknown field is removed at any depth, and that at
// most maxUnknown unknown fields are reported.
func TestNormalizeLimitsUnknownFields(t *testing.T) {
	program := compileText(t, `{"type":"object"}`)
	nested := parseDoc(t, []byte(`{"x":`+strings.Repeat(`[`, 5000)+`{"u":1}`+strings.Repeat(`]`, 5000)+`}`))
	normalized, err := program.Normalize(nested, NormalizeOptions{Unknown: true})
	if err != nil || string(normalized.Doc.Raw()) != `{}` {
		t.Errorf("deeply nested unknown field: got %s, %v; want {}", normalized.Doc.Raw(), err)
	}
	var unknown strings.Builder
	for i := range 5000 {
		unknown.WriteString(`"u` + strings.Repeat("u", i%50) + string(rune(0x4e00+i)) + `":1,`)
	}
	manyUnknown := parseDoc(t, []byte(`{`+strings.TrimSuffix(unknown.String(), ",")+`}`))
	normalized, err = program.Normalize(manyUnknown, NormalizeOptions{Unknown: true})
	if err != nil || len(normalized.Unknown) != maxUnknown {
		t.Errorf("5000 unknown fields: got %d of them, %v, want %d", len(normalized.Unknown), err, maxUnknown)
	}
}

// TestDateTimeMatchesLibrary checks that the format date-time accepts the same texts as the
// library.
func TestDateTimeMatchesLibrary(t *testing.T) {
	for _, text := range []string{
		"2024-02-28T23:59:59Z", "2024-02-29T00:00:00Z", "2023-02-29T00:00:00Z",
		"2024-13-01T00:00:00Z", "2024-00-01T00:00:00Z", "2024-01-00T00:00:00Z",
		"2024-01-01T24:00:00Z", "2024-01-01T23:60:00Z", "2024-01-01T23:00:60Z", "2024-01-01t23:00:00z", "2024-01-01 23:00:00Z",
		"2024-01-01T23:00:00+01:00", "2024-01-01T23:00:00.5Z", "0000-01-01T00:00:00Z", "2024-1-01T00:00:000Z",
		"", "2024-01-01",
	} {
		if got, want := hasFormat("date-time", text), strfmt.Default.Validates("date-time", text); got != want {
			t.Errorf("hasFormat(date-time, %q) = %v, want %v", text, got, want)
		}
	}
}

// TestLazyCompilesOnce checks that a lazy schema is compiled once, at its first use.
func TestLazyCompilesOnce(t *testing.T) {
	calls := 0
	lazy := NewLazy(func() (*Program, error) { calls++; return Compile(nil) })
	if calls != 0 {
		t.Errorf("before the first Get: got %d compilations, want 0", calls)
	}
	first, err := lazy.Get()
	second, _ := lazy.Get()
	if err != nil || first != second || calls != 1 {
		t.Errorf("two calls of Get: got programs %p and %p, %d compilations, %v, want one", first, second, calls, err)
	}
}

// TestCompileRejectsMalformedJSON checks that Compile returns an error for an enum value or a default
// that is not JSON.
func TestCompileRejectsMalformedJSON(t *testing.T) {
	if _, err := Compile(&v1.JSONSchemaProps{Enum: []v1.JSON{{Raw: []byte("{")}}}); err == nil {
		t.Error("invalid enum: error = nil, want one")
	}
	invalid := v1.JSONSchemaProps{Default: &v1.JSON{Raw: []byte("{")}}
	if _, err := Compile(&v1.JSONSchemaProps{Properties: map[string]v1.JSONSchemaProps{"a": invalid}}); err == nil {
		t.Error("invalid default: error = nil, want one")
	}
}

// TestCleanMetadataIsReturnedUnchanged checks that Clean reports unknown fields, and returns clean metadata as it is.
func TestCleanMetadataIsReturnedUnchanged(t *testing.T) {
	const wantUnknown, dropMalformed = true, true
	withUnknown := []byte(`{"labels":{"b":"1","a":"2"},"name":"x","odd":1,"ownerReferences":[{"odd":2}]}`)
	out, unknown, err := objectmeta.Clean(withUnknown, wantUnknown, !dropMalformed)
	if err != nil || !slices.Equal(unknown, []string{"odd", "ownerReferences[0].odd"}) {
		t.Errorf("Clean = %s, unknown fields %q, error %v; want unknown fields %v",
			out, unknown, err, []string{"odd", "ownerReferences[0].odd"})
	}
	same := []byte(`{"name":"x", "labels":{"b":"1"}}`)
	if out, _, err := objectmeta.Clean(same, wantUnknown, !dropMalformed); err != nil || &out[0] != &same[0] {
		t.Errorf("clean metadata: got %s, %v, want the same bytes", out, err)
	}
	if _, _, err := objectmeta.Clean([]byte(`{"labels":[]}`), wantUnknown, !dropMalformed); err == nil ||
		err.Error() != "json: cannot unmarshal array into Go struct field ObjectMeta.labels of type map[string]string" {
		t.Errorf("Clean(labels of a list) = %v, want the error of a JSON array for a map", err)
	}
	if _, _, err := objectmeta.Clean([]byte(`{`), !wantUnknown, dropMalformed); err == nil {
		t.Error("invalid JSON: error = nil, want one")
	}
}
