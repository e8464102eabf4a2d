package schema_test

import (
	"fmt"
	"strings"
	"testing"

	"binnacle/services/apiserver/internal/crd/schema"
	"binnacle/services/apiserver/internal/json/tape"
	v1 "binnacle/services/apiserver/internal/registry/apis/apiextensions/v1"
)

// TestWeightOfDefaults checks that the weight of a document is at least its size with defaults.
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
	p, err := schema.Compile(
		&v1.JSONSchemaProps{Type: "object", Properties: map[string]v1.JSONSchemaProps{"items": list(item), "wholes": list(whole)}},
	)
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		doc  string
		most int // upper bound of the weight, as a multiple of the resulting size
	}{
		"no defaults":  {doc: `{"other":"` + strings.Repeat("x", 5000) + `"}`, most: 2},
		"many objects": {doc: `{"items":[` + strings.TrimSuffix(strings.Repeat("{},", 500), ",") + `]}`, most: 3},
		"nulls":        {doc: `{"wholes":[` + strings.TrimSuffix(strings.Repeat("null,", 500), ",") + `]}`, most: 3},
	} {
		d, err := tape.Parse([]byte(c.doc))
		if err != nil {
			t.Fatal(err)
		}
		normalized, err := p.Normalize(d, schema.NormalizeOptions{})
		if err != nil {
			t.Fatal(err)
		}
		size := max(len(normalized.Doc.Raw()), len(c.doc))
		if n := p.Weight([]byte(c.doc), false); n < size || n > c.most*size {
			t.Errorf("%s: got weight %d, want %d to %d", name, n, size, c.most*size)
		}
	}
	const defaults = 500 * 100 * len(`"field0":"default"`) // bytes of the defaults of 500 items
	for name, c := range map[string]struct {
		doc   string
		cbor  bool
		least int // lower bound of the weight
	}{
		"YAML":                       {doc: "items:\n" + strings.Repeat("- a: 1\n", 500), least: defaults},
		"YAML with carriage returns": {doc: "items:\r" + strings.Repeat("- a: 1\r", 500), least: defaults},
		"CBOR":                       {doc: strings.Repeat("\xa0", 500), cbor: true, least: defaults},
		"CBOR nulls":                 {doc: strings.Repeat("\xf6", 500), cbor: true, least: 500},
	} {
		if n := p.Weight([]byte(c.doc), c.cbor); n < c.least {
			t.Errorf("%s: got weight %d, want at least %d", name, n, c.least)
		}
	}
	if n := (*schema.Program)(nil).Weight([]byte("{}"), false); n != 2 {
		t.Errorf("without a schema: got weight %d, want 2", n)
	}
}
