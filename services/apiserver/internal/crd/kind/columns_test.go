package kind_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"binnacle/services/apiserver/internal/crd/kind"
	"binnacle/services/apiserver/internal/crd/rules"
	"binnacle/services/apiserver/internal/json/tape"
	"binnacle/services/apiserver/internal/registry"
	v1 "binnacle/services/apiserver/internal/registry/apis/apiextensions/v1"
)

// columnsKind returns the kind of a definition with columns.
func columnsKind(t testing.TB, columns []v1.CustomResourceColumnDefinition) *registry.Kind {
	t.Helper()
	read := func() (*v1.CustomResourceDefinition, error) {
		return &v1.CustomResourceDefinition{Spec: v1.CustomResourceDefinitionSpec{
			Group: "example.com",
			Scope: v1.NamespaceScoped,
			Versions: []v1.CustomResourceDefinitionVersion{
				{Name: "v1", Served: true, Storage: true, AdditionalPrinterColumns: columns},
			},
		}}, nil
	}
	definition, err := kind.NewCRD(read, read)
	if err != nil {
		t.Fatal(err)
	}
	return (&kind.Maker{Rules: rules.NewCompiler()}).All(definition)[0]
}

// decodeDocument decodes a document like the codec: with the version, kind and revision of the
// object.
func decodeDocument(t *testing.T, doc []byte) registry.Object {
	t.Helper()
	parsed, err := tape.Parse(doc)
	if err != nil {
		t.Fatalf("%s: %v", doc, err)
	}
	defer parsed.Release()
	object := &unstructured.Unstructured{Object: parsed.Any(tape.Root).(map[string]any)}
	object.SetAPIVersion("example.com/v1")
	object.SetKind("Thing")
	object.SetResourceVersion("17")
	return object
}

// fieldNames is a short list, so that random paths often match.
var fieldNames = []string{
	"a", "b", "status", "spec", "metadata", "name", "x-y", "a.b", "", "kind", "resourceVersion", "labels", "ü",
}

// randomPath returns a random JSON path, mostly of simple field names.
func randomPath(random *rand.Rand) string {
	var builder strings.Builder
	for remaining := 1 + random.IntN(4); remaining > 0; remaining-- {
		name := fieldNames[random.IntN(len(fieldNames))]
		if name == "" && remaining > 1 {
			name = "a" // two dots are the recursive operator, whose order is undefined
		}
		switch random.IntN(12) {
		case 0:
			fmt.Fprintf(&builder, "[%d]", random.IntN(5)-1)
		case 1:
			fmt.Fprintf(&builder, "['%s']", name)
		case 2:
			builder.WriteString([]string{"[*]", "[0:2]", "[1,0]", "[?(@.a==1)]", "[-1:]", "[::2]", "[]"}[random.IntN(7)])
		case 3:
			builder.WriteString("." + strings.ReplaceAll(name, ".", `\.`) + fmt.Sprintf("[%d]", random.IntN(3)))
		default:
			builder.WriteString("." + strings.ReplaceAll(name, ".", `\.`))
		}
	}
	return builder.String()
}

// appendValue appends a random JSON value, sometimes with duplicate keys and unusual texts.
func appendValue(data []byte, random *rand.Rand, depth int) []byte {
	choice := random.IntN(12)
	if depth > 4 {
		choice %= 8
	}
	switch choice {
	case 0:
		return append(data, "null"...)
	case 1:
		return append(data, []string{"true", "false"}[random.IntN(2)]...)
	case 2:
		return fmt.Appendf(data, "%d", random.Int64N(1<<53)-1<<52)
	case 3:
		return append(data, []string{"0", "-0", "1.5", "1e3", "12345678901234567890", "1.0", "-2.5E-3"}[random.IntN(7)]...)
	case 4:
		texts := []string{
			`"2026-11-22T10:00:00Z"`, `"2026-11-22"`, `"\u00fc\ud83d\ude00\ud800"`, `"\"\\\/<&>"`, "\"\xff\"", `""`, `"ü"`,
		}
		return append(data, texts[random.IntN(len(texts))]...)
	case 5, 6, 7:
		return fmt.Appendf(data, "%q", fieldNames[random.IntN(len(fieldNames))])
	case 8:
		data = append(data, '[')
		for i := range random.IntN(4) {
			if i > 0 {
				data = append(data, ',')
			}
			data = appendValue(data, random, depth+1)
		}
		return append(data, ']')
	}
	return appendObject(data, random, depth)
}

// appendObject appends a random JSON object, sometimes with an escaped name or with spaces.
func appendObject(data []byte, random *rand.Rand, depth int) []byte {
	data = append(data, '{')
	for i := range random.IntN(7) {
		if i > 0 {
			data = append(data, ',')
		}
		name, _ := json.Marshal(fieldNames[random.IntN(len(fieldNames))])
		if random.IntN(8) == 0 {
			name = []byte(`"\u0061"`)
		}
		data = append(append(data, name...), ':')
		if random.IntN(8) == 0 {
			data = append(data, "\n\t "...)
		}
		data = appendValue(data, random, depth+1)
	}
	return append(data, '}')
}

// TestRowsMatchDecodedObjects checks that cells that are read from the text of a document equal
// those of the decoded object.
func TestRowsMatchDecodedObjects(t *testing.T) {
	const seed = 20261122
	random := rand.New(rand.NewPCG(seed, 1))
	types := []string{"string", "integer", "number", "boolean", "date"}
	filled, decoded := 0, 0
	for round := range 300 {
		var columns []v1.CustomResourceColumnDefinition
		for i := range random.IntN(8) {
			columns = append(columns,
				v1.CustomResourceColumnDefinition{Name: fmt.Sprint(i), Type: types[random.IntN(len(types))], JSONPath: randomPath(random)})
		}
		kind := columnsKind(t, columns)
		for range 40 {
			doc := appendObject(nil, random, 0)
			obj := decodeDocument(t, doc)
			got, err := kind.Document.TableRow(doc, func() (registry.Object, error) { decoded++; return obj, nil })
			if err != nil {
				t.Fatalf("seed %d, round %d: %s: %v", seed, round, doc, err)
			}
			for i, column := range kind.Presentation.Columns {
				want := column.Cell(obj)
				if want != nil && i > 0 {
					filled++
				}
				if !reflect.DeepEqual(got[i], want) {
					t.Fatalf("seed %d, round %d: column %+v of %s: %#v, want %#v", seed, round, columns[i-1], doc, got[i], want)
				}
			}
		}
	}
	const enough = 500 // for the test to compare both kinds of columns
	if filled < enough || decoded < enough {
		t.Errorf("got %d non-empty cells and %d decoded objects, want at least %d of each", filled, decoded, enough)
	}
}

// TestSimpleColumnsNeedNoObject checks that columns with simple paths are read from the text of a
// document, without decoding it. Other columns need the decoded object.
func TestSimpleColumnsNeedNoObject(t *testing.T) {
	doc := []byte(
		`{"apiVersion":"example.com/v1beta1","kind":"Thing","metadata":{"name":"n","creationTimestamp":"2026-11-22T10:00:00Z"},"spec":{"replicas":3,"parts":[{"image":"i"}]},"status":{"ready":true}}`,
	)
	for path, wantDecoded := range map[string]bool{
		".spec.replicas":              false,
		".spec.parts[0].image":        false,
		"['spec'].replicas":           false,
		".status.ready":               false,
		".metadata.creationTimestamp": false,
		".nothing":                    false,

		".spec.parts[*].image":               true,
		".spec.parts[-1:].image":             true,
		".spec.parts[?(@.image=='i')].image": true,
		"..image":                            true,
		".metadata.resourceVersion":          true,
		".apiVersion":                        true,
		".kind":                              true,
		".metadata":                          true,
	} {
		columnKind := columnsKind(t, []v1.CustomResourceColumnDefinition{{Name: "c", Type: "string", JSONPath: path}})
		decoded := false
		got, err := columnKind.Document.TableRow(doc, func() (registry.Object, error) { decoded = true; return decodeDocument(t, doc), nil })
		if err != nil || decoded != wantDecoded {
			t.Errorf("path %s: got decoded %t, error %v; want %t", path, decoded, err, wantDecoded)
		}
		if want := columnKind.Presentation.Columns[1].Cell(decodeDocument(t, doc)); !reflect.DeepEqual(got[1], want) || got[0] != "n" {
			t.Errorf("path %s: got cells %v, want n and %v", path, got, want)
		}
	}
}

// BenchmarkRow measures a row whose columns are read from the text of a document.
func BenchmarkRow(b *testing.B) {
	doc := []byte(`{"apiVersion":"example.com/v1","kind":"Thing",` +
		`"metadata":{"name":"n","creationTimestamp":"2026-11-22T10:00:00Z"},` +
		`"spec":{"replicas":3,"text":"` + strings.Repeat("x", 5500) + `"},"status":{"ready":true}}`)
	columnKind := columnsKind(b, []v1.CustomResourceColumnDefinition{
		{Name: "Replicas", Type: "integer", JSONPath: ".spec.replicas"}, {Name: "Ready", Type: "string", JSONPath: ".status.ready"},
		{Name: "Age", Type: "date", JSONPath: ".metadata.creationTimestamp"},
	})
	for b.Loop() {
		if _, err := columnKind.Document.TableRow(doc, nil); err != nil {
			b.Fatal(err)
		}
	}
}
