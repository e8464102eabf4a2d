package v1_test

import (
	"bytes"
	"encoding/json"
	"math/rand"
	"reflect"
	"testing"

	"sigs.k8s.io/randfill"

	v1 "binnacle/services/apiserver/internal/registry/apis/apiextensions/v1"
)

// randomSchemas fills schemas with everything that JSON can express.
func randomSchemas(seed int64) *randfill.Filler {
	texts := []string{"", "a", "ü <&> \u2028\x01", "^[a-z]+$", "\"", "x-y"}
	values := []string{"1", "-0", `"a<b"`, `{"a":[null,true,{}]}`, "[]", "1.50"}
	return randfill.NewWithSeed(seed).NilChance(0.6).NumElements(0, 2).MaxDepth(7).Funcs(
		func(s *string, c randfill.Continue) { *s = texts[c.Intn(len(texts))] },
		func(j *v1.JSON, c randfill.Continue) { j.Raw = []byte(values[c.Intn(len(values))]) },
		func(f *float64, c randfill.Continue) {
			*f = []float64{0, 1, -1, 0.5, 1e6, 1e20, 1e21, 1e-7, -123456789, 1 << 53, 1<<53 + 2}[c.Intn(11)]
		},
		func(s *v1.JSONSchemaPropsOrBool, c randfill.Continue) {
			s.Allows = c.Bool()
			if s.Allows && c.Bool() {
				s.Schema = &v1.JSONSchemaProps{}
				c.Fill(s.Schema)
			}
		},
		func(s *v1.JSONSchemaPropsOrArray, c randfill.Continue) {
			if c.Intn(5) == 0 {
				s.JSONSchemas = []v1.JSONSchemaProps{{Type: "string"}, {}}
				return
			}
			s.Schema = &v1.JSONSchemaProps{}
			c.Fill(s.Schema)
		},
		func(s *v1.JSONSchemaPropsOrStringArray, c randfill.Continue) {
			if c.Bool() {
				s.Property = []string{"a", "b"}
				return
			}
			s.Schema = &v1.JSONSchemaProps{}
			c.Fill(s.Schema)
		},
	)
}

// TestSchemaTextMatchesEncodingJSON checks that schemas are encoded and decoded like encoding/json does.
func TestSchemaTextMatchesEncodingJSON(t *testing.T) {
	large := 0
	for seed := range int64(400) {
		var props v1.JSONSchemaProps
		randomSchemas(seed).Fill(&props)
		want, err := json.Marshal(props)
		if err != nil {
			t.Fatal(err)
		}
		data := props.AppendJSON(nil)
		if got, err := json.Marshal(json.RawMessage(data)); err != nil || !bytes.Equal(got, want) {
			t.Fatalf("seed %d: got %s (%v)\nwant %s", seed, data, err, want)
		}
		if len(want) > 1000 {
			large++
		}
		var plain v1.JSONSchemaProps
		if err := json.Unmarshal(want, &plain); err != nil {
			t.Fatal(err)
		}
		got, err := v1.ReadSchema(want)
		if err != nil || !reflect.DeepEqual(got, &plain) {
			t.Fatalf("seed %d: %s: got %+v (%v)\nwant %+v", seed, want, got, err, plain)
		}
	}
	if large < 50 {
		t.Errorf("got %d large schemas, want at least 50", large)
	}
}

// TestUnionIsEncodedAsMember checks that a union is encoded as the member that is set.
func TestUnionIsEncodedAsMember(t *testing.T) {
	stringSchema := v1.JSONSchemaProps{Type: "a<"}
	itemsSchema := v1.JSONSchemaProps{
		Items: &v1.JSONSchemaPropsOrArray{Schema: &v1.JSONSchemaProps{Default: &v1.JSON{Raw: []byte("{ \"x\": 1 }")}}},
	}
	for want, value := range map[string]any{
		`{"type":"a\u003c"}`: v1.JSONSchemaPropsOrArray{Schema: &stringSchema},
		`[{"type":"a\u003c"},{"items":{"default":{"x":1}}}]`: v1.JSONSchemaPropsOrArray{
			JSONSchemas: []v1.JSONSchemaProps{stringSchema, itemsSchema},
			Schema:      &stringSchema,
		},
		`null`: v1.JSONSchemaPropsOrArray{JSONSchemas: []v1.JSONSchemaProps{}},
		`{"additionalItems":false,"additionalProperties":true}`: v1.JSONSchemaProps{
			AdditionalItems:      &v1.JSONSchemaPropsOrBool{},
			AdditionalProperties: &v1.JSONSchemaPropsOrBool{Allows: true},
		},
		`{"items":{"default":{"x":1}}}`: v1.JSONSchemaPropsOrBool{Schema: &itemsSchema},
		`{"dependencies":{"a":["b"],"c":{"type":"a\u003c"},"d":null}}`: v1.JSONSchemaProps{
			Dependencies: v1.JSONSchemaDependencies{"a": {Property: []string{"b"}, Schema: &stringSchema}, "c": {Schema: &stringSchema}, "d": {}},
		},
	} {
		if got, err := json.Marshal(value); err != nil || string(got) != want && !sameMembers(got, want) {
			t.Errorf("got %s, %v; want %s", got, err, want)
		}
	}
	if _, err := json.Marshal(v1.JSONSchemaPropsOrArray{
		Schema: &v1.JSONSchemaProps{Default: &v1.JSON{Raw: []byte("{")}},
	}); err == nil {
		t.Error("invalid JSON: error = nil, want one")
	}
}

func sameMembers(got []byte, want string) bool {
	var x, y any
	return json.Unmarshal(got, &x) == nil && json.Unmarshal([]byte(want), &y) == nil && reflect.DeepEqual(x, y)
}

// BenchmarkDeepSchema encodes a deeply nested schema of a megabyte.
func BenchmarkDeepSchema(b *testing.B) {
	props := &v1.JSONSchemaProps{Description: string(bytes.Repeat([]byte("x"), 1<<20))}
	for range 480 {
		props = &v1.JSONSchemaProps{Type: "array", Items: &v1.JSONSchemaPropsOrArray{Schema: props}}
	}
	for b.Loop() {
		if _, err := json.Marshal(props); err != nil {
			b.Fatal(err)
		}
	}
}

// TestUnusualSchemaTextMatchesEncodingJSON checks that damaged or unusual text is decoded like encoding/json does,
// or rejected with the same error.
func TestUnusualSchemaTextMatchesEncodingJSON(t *testing.T) {
	texts := []string{
		"", "null", "[]", "7", "{", `{"type"}`, `{"type":7}`, `{"Type":"a","TYPE":"b"}`, `{"type":"a","type":"b"}`, `{"properties":{"a":{"type":"x"},"a":{"format":"y"}}}`,
		`{"properties":{"a":null}}`, `{"properties":[]}`, `{"items":[{},null]}`, `{"items":7}`, `{"items":null,"not":null,"default":null,"enum":[null,1]}`, `{"additionalProperties":7}`,
		`{"additionalProperties":null}`, `{"required":null}`, `{"required":[]}`, `{"required":[null]}`, `{"maximum":1e400}`, `{"maximum":"1"}`, `{"maxLength":1.0}`, `{"maxLength":12345678901234567890}`,
		`{"unknown":{"type":"a"}}`, `{"unknown":null,"type":null}`, `{"x-kubernetes-validations":[{"rule":"a","reason":null}]}`, `{"x-kubernetes-validations":[null]}`, `{"x-kubernetes-validations":[{"other":1}]}`,
		"{\"type\":\"\xff\"}", `{"\u0074ype":"a"}`, ` { "type" : "a" , "enum" : [ { "b" : 1 } ] } `, `{"externalDocs":{"url":"u","more":1}}`, `{"externalDocs":7}`, `{"dependencies":{"a":["b"]}}`,
		`{"nullable":"true"}`, `{"allOf":[{}],"anyOf":{}}`, `{"default":{"a": 1}}`, `{"type":"a"}x`,
	}
	random := rand.New(rand.NewSource(20261122))
	for seed := range int64(100) { // randomly damaged valid texts
		var s v1.JSONSchemaProps
		randomSchemas(seed).Fill(&s)
		data := s.AppendJSON(nil)
		for range 10 {
			damaged := bytes.Clone(data)
			damaged[random.Intn(len(damaged))] = "{}[]\",:0antu\x00"[random.Intn(13)]
			texts = append(texts, string(damaged), string(damaged[:random.Intn(len(damaged))]))
		}
	}
	for _, text := range texts {
		want := &v1.JSONSchemaProps{}
		wantErr := json.Unmarshal([]byte(text), want)
		got, err := v1.ReadSchema([]byte(text))
		if (err == nil) != (wantErr == nil) || err != nil && err.Error() != wantErr.Error() || !reflect.DeepEqual(got, want) {
			t.Errorf("%q: got %+v (%v)\nwant %+v (%v)", text, got, err, want, wantErr)
		}
	}
}

// BenchmarkReadSchema compares the two decoders of schemas on the first recorded schema of at least
// 5000 bytes.
func BenchmarkReadSchema(b *testing.B) {
	for _, recorded := range readRecording(b) {
		var d v1.CustomResourceDefinition
		if err := json.Unmarshal(recorded.JSON, &d); err != nil {
			b.Fatal(err)
		}
		for _, version := range d.Spec.Versions {
			if version.Schema == nil || version.Schema.OpenAPIV3Schema == nil {
				continue
			}
			data := version.Schema.OpenAPIV3Schema.AppendJSON(nil)
			if len(data) < 5000 {
				continue
			}
			b.Run("tape", func(b *testing.B) {
				b.SetBytes(int64(len(data)))
				for b.Loop() {
					if _, err := v1.ReadSchema(data); err != nil {
						b.Fatal(err)
					}
				}
			})
			b.Run("encoding/json", func(b *testing.B) {
				b.SetBytes(int64(len(data)))
				for b.Loop() {
					if err := json.Unmarshal(data, &v1.JSONSchemaProps{}); err != nil {
						b.Fatal(err)
					}
				}
			})
			return
		}
	}
}
