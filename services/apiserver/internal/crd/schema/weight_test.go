package schema_test

import (
	"fmt"
	"strings"
	"testing"

	"binnacle/services/apiserver/internal/crd/schema"
	"binnacle/services/apiserver/internal/json/tape"
	v1 "binnacle/services/apiserver/internal/registry/apis/apiextensions/v1"
)

// TestWeightOfDefaults: the weight of a document is at least its size with defaults.
func TestWeightOfDefaults(t *testing.T) {
	item := v1.JSONSchemaProps{Type: "object", Properties: map[string]v1.JSONSchemaProps{}}
	for i := range 100 {
		item.Properties[fmt.Sprint("field", i)] = v1.JSONSchemaProps{Type: "string", Default: &v1.JSON{Raw: []byte(`"default"`)}}
	}
	whole := item
	whole.Default = &v1.JSON{Raw: []byte("{}")}
	list := func(of v1.JSONSchemaProps) v1.JSONSchemaProps {
		return v1.JSONSchemaProps{Type: "array", Items: &v1.JSONSchemaPropsOrArray{Schema: &of}}
	}
	p, err := schema.Compile(&v1.JSONSchemaProps{Type: "object", Properties: map[string]v1.JSONSchemaProps{"items": list(item), "wholes": list(whole)}})
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		doc  string
		most int // upper bound of the weight, as a multiple of the resulting size
	}{
		"nothing to fill in": {`{"other":"` + strings.Repeat("x", 5000) + `"}`, 2},
		"many objects":       {`{"items":[` + strings.TrimSuffix(strings.Repeat("{},", 500), ",") + `]}`, 3},
		"nulls":              {`{"wholes":[` + strings.TrimSuffix(strings.Repeat("null,", 500), ",") + `]}`, 3},
	} {
		d, err := tape.Parse([]byte(c.doc))
		if err != nil {
			t.Fatal(err)
		}
		shaped, err := p.Shape(d, schema.ShapeOptions{})
		if err != nil {
			t.Fatal(err)
		}
		becomes := max(len(shaped.Doc.Raw()), len(c.doc))
		if n := p.Weight([]byte(c.doc), false); n < becomes || n > c.most*becomes {
			t.Errorf("%s: %d bytes with defaults %d: got weight %d", name, len(c.doc), becomes, n)
		}
	}
	for name, c := range map[string]struct {
		doc  string
		cbor bool
	}{
		"YAML": {"items:\n" + strings.Repeat("- a: 1\n", 500), false}, "YAML of old Macs": {"items:\r" + strings.Repeat("- a: 1\r", 500), false},
		"CBOR": {strings.Repeat("\xa0", 500), true}, "nulls of CBOR": {strings.Repeat("\xf6", 500), true},
	} {
		if n := p.Weight([]byte(c.doc), c.cbor); n < 500*100*len(`"field0":"default"`) && name != "nulls of CBOR" || n < 500 {
			t.Errorf("%s: got weight %d", name, n)
		}
	}
	if n := (*schema.Program)(nil).Weight([]byte("{}"), false); n != 2 {
		t.Errorf("without a schema: got weight %d", n)
	}
}
