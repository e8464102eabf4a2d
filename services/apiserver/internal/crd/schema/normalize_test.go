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

// program compiles a schema written as JSON.
func program(t testing.TB, text string) *Program {
	t.Helper()
	var s v1.JSONSchemaProps
	if err := json.Unmarshal([]byte(text), &s); err != nil {
		t.Fatal(err)
	}
	p, err := Compile(&s)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// little gives a program a 64th of its limit, for the race detector, which is that much slower.
func little(p *Program) *Program {
	p.maxCost /= 64
	return p
}

const embedding = `{"type":"object","properties":{
	"pod":{"type":"object","x-kubernetes-embedded-resource":true,"x-kubernetes-preserve-unknown-fields":true},
	"typed":{"type":"object","x-kubernetes-embedded-resource":true,"properties":{
		"metadata":{"type":"object","properties":{"name":{"type":"string","default":"given"},"labels":{"type":"object","nullable":true}}},
		"kind":{"type":"string","default":"Pod"},"spec":{"type":"object"}}},
	"map":{"type":"object","additionalProperties":{"type":"object","x-kubernetes-embedded-resource":true,"x-kubernetes-preserve-unknown-fields":true}}}}`

// TestShapeEmbedded prunes and validates the metadata of embedded resources.
func TestShapeEmbedded(t *testing.T) {
	tests := []struct {
		name, doc, want string
		unknown         []string
		err             string // unless malformed metadata is dropped
		dropped         string // result if malformed metadata is dropped; want if empty
	}{
		{name: "nothing to do", doc: `{"pod":{"apiVersion":"v1","kind":"Pod","metadata":{"name":"p","labels":{"a":"b"},"finalizers":["x"]},"spec":{"x":1}}}`, want: "", unknown: nil, err: "", dropped: ""},
		{name: "unknown and empty fields of metadata", doc: `{"pod":{"metadata":{"z":1,"name":"p","labels":{},"creationTimestamp":null,"a":{"b":1}}}}`,
			want: `{"pod":{"metadata":{"name":"p"}}}`, unknown: []string{"pod.metadata.a", "pod.metadata.z"}, err: "", dropped: ""},
		{name: "in a map", doc: `{"map":{"k":{"metadata":{"z":1}}}}`, want: `{"map":{"k":{"metadata":{}}}}`, unknown: []string{"map[k].metadata.z"}, err: "", dropped: ""},
		{name: "no metadata at all", doc: `{"pod":{"metadata":null}}`, want: `{"pod":{"metadata":{}}}`, unknown: nil, err: "", dropped: ""},
		{name: "a time that is set", doc: `{"pod":{"metadata":{"creationTimestamp":"2024-01-02T03:04:05Z"}}}`, want: "", unknown: nil, err: "", dropped: ""},
		{name: "fields of the schema within metadata", doc: `{"typed":{"apiVersion":"v1","kind":null,"metadata":{"name":null,"labels":null},"spec":{"x":1},"y":1}}`,
			want: `{"typed":{"apiVersion":"v1","kind":"Pod","metadata":{"name":"given"},"spec":{}}}`, unknown: []string{"typed.spec.x", "typed.y"}, err: "", dropped: ""},
		{name: "malformed type", doc: `{"pod":{"apiVersion":1,"kind":"Pod"}}`, want: "", unknown: nil, err: "pod.apiVersion: Invalid value: 1: must be a string", dropped: `{"pod":{"kind":"Pod"}}`},
		{name: "malformed labels", doc: `{"pod":{"metadata":{"labels":"x","name":"p"}}}`, want: "", unknown: nil,
			err: `pod.metadata: Invalid value: map[string]interface {}{"labels":"x", "name":"p"}: json: cannot unmarshal string into Go struct field ObjectMeta.labels of type map[string]string`, dropped: `{"pod":{"metadata":{"name":"p"}}}`},
		{name: "malformed metadata", doc: `{"map":{"k":{"metadata":"x"}}}`, want: "", unknown: nil,
			err: `map[k].metadata: Invalid value: "x": json: cannot unmarshal string into Go value of type v1.ObjectMeta`, dropped: `{"map":{"k":{"metadata":"x"}}}`},
		{name: "the resource's own is left alone", doc: `{"apiVersion":1,"kind":null,"metadata":{"z":1},"pod":{}}`, want: "", unknown: nil, err: "", dropped: ""},
	}
	p := program(t, embedding)
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if tt.want == "" {
				tt.want = tt.doc
			}
			d := parse(t, []byte(tt.doc))
			shaped, err := p.Normalize(d, NormalizeOptions{Unknown: true})
			var wrong *field.Error
			if tt.err != "" {
				if !errors.As(err, &wrong) || err.Error() != tt.err {
					t.Errorf("got %v\nwant %s", err, tt.err)
				}
			} else if err != nil || string(shaped.Doc.Raw()) != tt.want || !slices.Equal(shaped.Unknown, tt.unknown) {
				t.Errorf("got %s, %q, %v\nwant %s, %q", shaped.Doc.Raw(), shaped.Unknown, err, tt.want, tt.unknown)
			}
			if tt.dropped == "" {
				tt.dropped = tt.want
			}
			shaped, err = p.Normalize(d, NormalizeOptions{DropMalformed: true})
			if err != nil || string(shaped.Doc.Raw()) != tt.dropped || shaped.Unknown != nil {
				t.Errorf("dropped: got %s, %v\nwant %s", shaped.Doc.Raw(), err, tt.dropped)
			}
		})
	}
}

func TestShapeText(t *testing.T) {
	tests := []struct{ name, doc, want string }{
		{name: "texts of values are kept", doc: `{"n":1.50e1,"s":"\u0061"}`, want: `{"n":1.50e1,"s":"\u0061","d":{"e":"f"}}`},
		{name: "first field is removed", doc: `{ "x" : 1 , "n" : 2 }`, want: `{ "n" : 2,"d":{"e":"f"} }`},
		{name: "last field is removed", doc: `{"n":2 , "x":1}`, want: `{"n":2,"d":{"e":"f"}}`},
		{name: "all go", doc: `{"x":1,"y":[{}],"z":null}`, want: `{"d":{"e":"f"}}`},
		{name: "some between", doc: `{"x":1,"n":1,"y":2,"z":3,"s":"","w":1}`, want: `{"n":1,"s":"","d":{"e":"f"}}`},
		{name: "default in an empty object", doc: `{"d":{ }}`, want: `{"d":{ "e":"f"}}`},
		{name: "duplicate key", doc: `{"n":1,"n":2,"d":{"e":"g"}}`, want: `{"n":2,"d":{"e":"g"}}`},
		{name: "no UTF-8", doc: "{\"s\":\"a\xffb\",\"d\":{\"e\":\"g\"}}", want: "{\"s\":\"a\ufffdb\",\"d\":{\"e\":\"g\"}}"},
		{name: "within lists without a schema", doc: `{"l":[{"a":1},[{"b":2}],3],"d":{"e":"g"}}`, want: `{"l":[{},[{}],3],"d":{"e":"g"}}`},
	}
	p := program(t, `{"type":"object","properties":{"n":{"type":"number"},"s":{"type":"string"},"l":{"type":"array"},
		"d":{"type":"object","default":{"x":1},"properties":{"e":{"type":"string","default":"f"}}}}}`)
	for _, tt := range tests {
		shaped, err := p.Normalize(parse(t, []byte(tt.doc)), NormalizeOptions{})
		if err != nil || string(shaped.Doc.Raw()) != tt.want {
			t.Errorf("%s: got %s, %v, want %s", tt.name, shaped.Doc.Raw(), err, tt.want)
		}
	}
}

// TestDefaultsOfEmbeddedMetadata checks that defaults of metadata are pruned by the fields of
// ObjectMeta, not by the schema.
func TestDefaultsOfEmbeddedMetadata(t *testing.T) {
	const resource = `{"type":"object","x-kubernetes-embedded-resource":true,"properties":{"metadata":{"type":"object","default":{"name":"Bar","unknown":"x","labels":{"a":"b"}}}}}`
	p := program(t, `{"type":"object","properties":{
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
		shaped, err := p.Normalize(parse(t, []byte(doc)), NormalizeOptions{})
		if err != nil || string(shaped.Doc.Raw()) != want {
			t.Errorf("%s: got %s, %v, want %s", doc, shaped.Doc.Raw(), err, want)
		}
	}
	// An apply adds defaults first, and keeps nulls that the schema does not allow.
	for doc, want := range map[string]string{
		`{"one":{"metadata":null}}`:  `{"one":` + filled + `}`,
		`{"part":{"metadata":null}}`: `{"part":{"metadata":null}}`,
	} {
		shaped, err := p.Normalize(parse(t, []byte(doc)), NormalizeOptions{KeepNulls: true})
		if err != nil || string(shaped.Doc.Raw()) != want {
			t.Errorf("applied %s: got %s, %v, want %s", doc, shaped.Doc.Raw(), err, want)
		}
	}
}

func TestShapeReports(t *testing.T) {
	p := program(t, `{"type":"object","properties":{"spec":{"type":"object"}}}`)
	shaped, err := p.Normalize(parse(t, []byte(`{"spec":{"z":1,"a":1},"b":{"c":1},"b":2}`)), NormalizeOptions{Unknown: true})
	if err != nil || !slices.Equal(shaped.Duplicates, []string{"b"}) || !slices.Equal(shaped.Unknown, []string{"b", "spec.a", "spec.z"}) {
		t.Errorf("got %q, %q, %v, want %v, %v", shaped.Duplicates, shaped.Unknown, err, []string{"b"}, []string{"b", "spec.a", "spec.z"})
	}
	lenient, err := p.Normalize(parse(t, []byte(`{"spec":{"z":1},"b":null}`)), NormalizeOptions{Unknown: true, Lenient: true})
	if err != nil || lenient.Changed || lenient.Unknown != nil {
		t.Errorf("lenient: got %s, unknown %q, %v, want it unchanged without unknown fields", lenient.Doc.Raw(), lenient.Unknown, err)
	}
	none, err := Compile(nil)
	if err != nil {
		t.Fatal(err)
	}
	shaped, err = none.Normalize(parse(t, []byte(`{"apiVersion":"v1","kind":"K","metadata":{"a":1},"x":1}`)), NormalizeOptions{})
	if err != nil || string(shaped.Doc.Raw()) != `{"apiVersion":"v1","kind":"K","metadata":{"a":1}}` {
		t.Errorf("without a schema: got %s, %v, want only apiVersion, kind and metadata", shaped.Doc.Raw(), err)
	}
	if shaped, err := none.Normalize(parse(t, []byte(`[1]`)), NormalizeOptions{}); err != nil || shaped.Changed {
		t.Errorf("not an object: got %s, %v, want it unchanged", shaped.Doc.Raw(), err)
	}
}

// TestHostile covers the bounds on defaults, on reported errors and on time. Without a bound, the
// test would not end.
func TestHostile(t *testing.T) {
	large, _ := json.Marshal(strings.Repeat("d", 10_000))
	p := program(t, `{"type":"object","properties":{"l":{"type":"array","items":{"type":"object","properties":{"d":{"type":"string","default":`+string(large)+`}}}},
		"n":{"type":"array","items":{"type":"integer"}},"m":{"type":"object","additionalProperties":{"type":"integer"}},
		"s":{"type":"array","x-kubernetes-list-type":"set","items":{"type":"integer"}},
		"k":{"type":"array","x-kubernetes-list-type":"map","x-kubernetes-list-map-keys":["a"],"items":{"type":"object","properties":{"a":{"type":"string"},"b":{"type":"integer"}}}}}}`)
	list := func(item string, n int) string {
		return "[" + strings.TrimSuffix(strings.Repeat(item+",", n), ",") + "]"
	}
	if _, err := p.Normalize(parse(t, []byte(`{"l":`+list("{}", 100_000)+`}`)), NormalizeOptions{}); !errors.Is(err, ErrTooLarge) {
		t.Errorf("unbounded defaults: got %v", err)
	}
	var members, items strings.Builder
	for i := range 50_000 {
		k, _ := json.Marshal(strings.Repeat("x", i%7) + string(rune('a'+i%26)) + json.Number(strings.Repeat("1", 1+i%9)).String() + string(rune(0x4e00+i%20000)))
		members.WriteString(string(k) + `:"x",`)
		items.WriteString(`{"a":` + string(k) + `,"b":"x"},`)
	}
	text := `{"n":` + list(`"x"`, 100_000) + `,"m":{` + strings.TrimSuffix(members.String(), ",") + `},"s":` + list("1", 100_000) +
		`,"k":[` + strings.TrimSuffix(items.String(), ",") + `]}`
	d := parse(t, []byte(text))
	d, _ = d.Canonicalize()
	if d == nil {
		t.Fatal("no cleaned document, want one")
	}
	report := p.Check(d, nil, true, nil)
	if len(report.Schema) != maxErrors || len(report.Lists) == 0 || len(report.Lists) > maxErrors {
		t.Errorf("got %d and %d errors, want %v", len(report.Schema), len(report.Lists), maxErrors)
	}
	if again := p.Check(d, d, true, nil); len(again.Schema) > 0 || len(again.Lists) > 0 {
		t.Errorf("unchanged: got error %v, want none", again.All()[0])
	}
	shaped, err := p.Normalize(parse(t, []byte(`{"x":`+strings.Repeat(`[`, 5000)+`{"u":1}`+strings.Repeat(`]`, 5000)+`}`)), NormalizeOptions{Unknown: true})
	if err != nil || string(shaped.Doc.Raw()) != `{}` {
		t.Errorf("deep: got %v", err)
	}
	var unknown strings.Builder
	for i := range 5000 {
		unknown.WriteString(`"u` + strings.Repeat("u", i%50) + string(rune(0x4e00+i)) + `":1,`)
	}
	if shaped, err := p.Normalize(parse(t, []byte(`{`+strings.TrimSuffix(unknown.String(), ",")+`}`)), NormalizeOptions{Unknown: true}); err != nil || len(shaped.Unknown) != maxUnknown {
		t.Errorf("got %d unknown fields, %v, want %v", len(shaped.Unknown), err, maxUnknown)
	}
}

func TestPlainTimes(t *testing.T) {
	for _, s := range []string{"2024-02-28T23:59:59Z", "2024-02-29T00:00:00Z", "2023-02-29T00:00:00Z", "2024-13-01T00:00:00Z", "2024-00-01T00:00:00Z", "2024-01-00T00:00:00Z",
		"2024-01-01T24:00:00Z", "2024-01-01T23:60:00Z", "2024-01-01T23:00:60Z", "2024-01-01t23:00:00z", "2024-01-01 23:00:00Z", "2024-01-01T23:00:00+01:00",
		"2024-01-01T23:00:00.5Z", "0000-01-01T00:00:00Z", "2024-1-01T00:00:000Z", "", "2024-01-01"} {
		if got, want := hasFormat("date-time", s), strfmt.Default.Validates("date-time", s); got != want {
			t.Errorf("%q: got %v, want %v", s, got, want)
		}
	}
}

func TestLazy(t *testing.T) {
	calls := 0
	l := NewLazy(func() (*Program, error) { calls++; return Compile(nil) })
	if calls != 0 {
		t.Error("compiled before the first use")
	}
	one, err := l.Get()
	two, _ := l.Get()
	if err != nil || one != two || calls != 1 {
		t.Errorf("got %d compilations, %v, want 1", calls, err)
	}
	if _, err := Compile(&v1.JSONSchemaProps{Enum: []v1.JSON{{Raw: []byte("{")}}}); err == nil {
		t.Error("invalid enum: error = nil, want one")
	}
	if _, err := Compile(&v1.JSONSchemaProps{Properties: map[string]v1.JSONSchemaProps{"a": {Default: &v1.JSON{Raw: []byte("{")}}}}); err == nil {
		t.Error("invalid default: error = nil, want one")
	}
}

func TestCleanMetadata(t *testing.T) {
	out, unknown, err := objectmeta.Clean([]byte(`{"labels":{"b":"1","a":"2"},"name":"x","odd":1,"ownerReferences":[{"odd":2}]}`), true, false)
	if err != nil || !slices.Equal(unknown, []string{"odd", "ownerReferences[0].odd"}) {
		t.Errorf("got %s, %q, %v, want %v", out, unknown, err, []string{"odd", "ownerReferences[0].odd"})
	}
	same := []byte(`{"name":"x", "labels":{"b":"1"}}`)
	if out, _, err := objectmeta.Clean(same, true, false); err != nil || &out[0] != &same[0] {
		t.Errorf("clean metadata: got %s, %v, want the same bytes", out, err)
	}
	if _, _, err := objectmeta.Clean([]byte(`{"labels":[]}`), true, false); err == nil || err.Error() != "json: cannot unmarshal array into Go struct field ObjectMeta.labels of type map[string]string" {
		t.Errorf("got %v", err)
	}
	if _, _, err := objectmeta.Clean([]byte(`{`), false, true); err == nil {
		t.Error("invalid JSON: error = nil, want one")
	}
}
