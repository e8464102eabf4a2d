package schema_test

import (
	"fmt"
	"strings"
	"testing"

	"binnacle/services/apiserver/internal/crd/schema"
	"binnacle/services/apiserver/internal/json/tape"
	v1 "binnacle/services/apiserver/internal/registry/apis/apiextensions/v1"
)

// TestEstimateSizeCoversDefaults checks that the estimated size of a document is at least
// its size with defaults.
func TestEstimateSizeCoversDefaults(t *testing.T) {
	const cbor = true
	item := v1.JSONSchemaProps{Type: "object", Properties: map[string]v1.JSONSchemaProps{}}
	for i := range 100 {
		item.Properties[fmt.Sprint("field", i)] = v1.JSONSchemaProps{Type: "string", Default: &v1.JSON{Raw: []byte(`"default"`)}}
	}
	itemWithDefault := item
	itemWithDefault.Default = &v1.JSON{Raw: []byte("{}")}
	list := func(items v1.JSONSchemaProps) v1.JSONSchemaProps {
		return v1.JSONSchemaProps{Type: "array", Items: &v1.JSONSchemaPropsOrArray{Schema: &items}}
	}
	program, err := schema.Compile(
		&v1.JSONSchemaProps{Type: "object", Properties: map[string]v1.JSONSchemaProps{"items": list(item), "wholes": list(itemWithDefault)}},
	)
	if err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		doc       string
		maxFactor int // upper bound of the estimate, as a multiple of the resulting size
	}{
		"no defaults":  {doc: `{"other":"` + strings.Repeat("x", 5000) + `"}`, maxFactor: 2},
		"many objects": {doc: `{"items":[` + strings.TrimSuffix(strings.Repeat("{},", 500), ",") + `]}`, maxFactor: 3},
		"nulls":        {doc: `{"wholes":[` + strings.TrimSuffix(strings.Repeat("null,", 500), ",") + `]}`, maxFactor: 3},
	} {
		d, err := tape.Parse([]byte(test.doc))
		if err != nil {
			t.Fatal(err)
		}
		normalized, err := program.Normalize(d, schema.NormalizeOptions{})
		if err != nil {
			t.Fatal(err)
		}
		size := max(len(normalized.Doc.Raw()), len(test.doc))
		if estimate := program.EstimateSize([]byte(test.doc), !cbor); estimate < size || estimate > test.maxFactor*size {
			t.Errorf("%s: got estimate %d, want %d to %d", name, estimate, size, test.maxFactor*size)
		}
	}
	const defaults = 500 * 100 * len(`"field0":"default"`) // bytes of the defaults of 500 items
	for name, test := range map[string]struct {
		doc         string
		cbor        bool
		minEstimate int
	}{
		"YAML":                       {doc: "items:\n" + strings.Repeat("- a: 1\n", 500), minEstimate: defaults},
		"YAML with carriage returns": {doc: "items:\r" + strings.Repeat("- a: 1\r", 500), minEstimate: defaults},
		"CBOR":                       {doc: strings.Repeat("\xa0", 500), cbor: true, minEstimate: defaults},
		"CBOR nulls":                 {doc: strings.Repeat("\xf6", 500), cbor: true, minEstimate: 500},
	} {
		if estimate := program.EstimateSize([]byte(test.doc), test.cbor); estimate < test.minEstimate {
			t.Errorf("%s: got estimate %d, want at least %d", name, estimate, test.minEstimate)
		}
	}
	if estimate := (*schema.Program)(nil).EstimateSize([]byte("{}"), !cbor); estimate != 2 {
		t.Errorf("without a schema: got estimate %d, want 2", estimate)
	}
}
