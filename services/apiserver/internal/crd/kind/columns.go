package kind

import (
	"bytes"
	"fmt"
	"reflect"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/jsonpath"

	"binnacle/services/apiserver/internal/json/jsontext"
	"binnacle/services/apiserver/internal/registry"
	apiextensionsv1 "binnacle/services/apiserver/internal/registry/apis/apiextensions/v1"
)

// table holds the columns of a version, and how to read their cells from the text of a document.
type table struct {
	columns []registry.Column
	// paths are the paths of simple columns. pathIndex[i] is the index of the path of column i. It is
	// negative if the column needs the whole object.
	paths     *jsontext.Set
	pathIndex []int
	// format converts the value found at a simple column's path to a cell.
	format []func(found any) any
}

// tableOf returns the table of a version. Versions without additional columns share one table.
func (m *Maker) tableOf(v *apiextensionsv1.CustomResourceDefinitionVersion) *table {
	if len(v.AdditionalPrinterColumns) > 0 {
		return newTable(v)
	}
	m.defaultTableOnce.Do(func() { m.defaultTable = newTable(v) })
	return m.defaultTable
}

// newTable returns the table of a version. Its columns are the name and those of the definition, or
// the age if the definition has none.
func newTable(v *apiextensionsv1.CustomResourceDefinitionVersion) *table {
	doc := metav1.ObjectMeta{}.SwaggerDoc()
	t := &table{}
	var paths []jsontext.Path
	add := func(c registry.Column, path jsontext.Path, show func(any) any) {
		at := -1
		if path != nil {
			at = len(paths)
			paths = append(paths, path)
		}
		t.columns = append(t.columns, c)
		t.pathIndex = append(t.pathIndex, at)
		t.format = append(t.format, show)
	}
	add(registry.Column{
		Name: "Name", Type: "string", Format: "name", Description: doc["name"],
		Cell: func(o registry.Object) any { return o.GetName() },
	}, jsontext.Fields("metadata", "name"), func(found any) any {
		name, _ := found.(string)
		return name
	})
	more := v.AdditionalPrinterColumns
	if len(more) == 0 {
		more = []apiextensionsv1.CustomResourceColumnDefinition{{
			Name: "Age", Type: "date", Description: doc["creationTimestamp"], JSONPath: ".metadata.creationTimestamp",
		}}
	}
	for _, c := range more {
		if c.Description == "" {
			c.Description = "Custom resource definition column (in JSONPath format): " + c.JSONPath
		}
		add(registry.Column{
			Name: c.Name, Type: c.Type, Format: c.Format, Description: c.Description, Priority: c.Priority, Cell: cellFunc(c.Type, c.JSONPath),
		}, simplePath(c.JSONPath), func(found any) any { return formatCell(c.Type, found) })
	}
	t.paths = jsontext.Compile(paths...)
	return t
}

// maxRowBytes is the maximum number of document bytes that the columns of a row read together. Each
// column that is not simple reads the whole document. Columns beyond the limit stay empty.
const maxRowBytes = 16 << 20

// row implements registry.Document.
func (t *table) row(doc []byte, decodeObject func() (registry.Object, error)) ([]any, error) {
	values, err := t.paths.Find(doc, nil)
	if err != nil {
		return nil, err
	}
	var obj registry.Object
	cells := make([]any, len(t.columns))
	remaining := maxRowBytes
	for i := range t.columns {
		pathIndex := t.pathIndex[i]
		if pathIndex < 0 {
			remaining -= len(doc)
		} else {
			remaining -= len(values[pathIndex])
		}
		switch {
		case remaining < 0:
			return cells, nil
		case pathIndex < 0:
			if obj == nil {
				if obj, err = decodeObject(); err != nil {
					return nil, err
				}
			}
			cells[i] = t.columns[i].Cell(obj)
		case values[pathIndex] == nil:
			if i == 0 {
				cells[i] = t.format[i](nil) // every object has a name, which may be empty
			}
		default:
			v, err := decodeJSON(values[pathIndex])
			if err != nil {
				return nil, fmt.Errorf("column %s: %w", t.columns[i].Name, err)
			}
			cells[i] = t.format[i](v)
		}
	}
	return cells, nil
}

// simplePath returns a path of only fields and single elements to a value that is equal in the
// document and in the object. It returns nil for any other path.
func simplePath(path string) jsontext.Path {
	parsed, ok := parsePath(path)
	if !ok || len(parsed.Nodes) != 1 {
		return nil
	}
	list, ok := parsed.Nodes[0].(*jsonpath.ListNode)
	if !ok {
		return nil
	}
	var out jsontext.Path
	for _, n := range list.Nodes {
		switch n := n.(type) {
		case *jsonpath.FieldNode:
			out = append(out, jsontext.Step{Name: n.Value})
		case *jsonpath.ArrayNode:
			first := n.Params[0]
			end := n.Params[1]
			step := n.Params[2]
			if !first.Known || first.Value < 0 || !end.Derived || step.Known {
				return nil
			}
			out = append(out, jsontext.Step{Index: first.Value, Element: true})
		default:
			return nil
		}
	}
	// The server sets apiVersion, kind and resourceVersion.
	if len(out) == 0 || out[0].Element || out[0].Name == "apiVersion" || out[0].Name == "kind" {
		return nil
	}
	if out[0].Name == "metadata" && (len(out) == 1 || out[1].Element || out[1].Name == "resourceVersion") {
		return nil
	}
	return out
}

// cellFunc returns a function that shows the first value at a path as a type. The cell is nil if the
// path is invalid or may match too much.
func cellFunc(kind, path string) func(registry.Object) any {
	parsed := jsonpath.New(path).AllowMissingKeys(true)
	if _, ok := parsePath(path); !ok || parsed.Parse("{"+path+"}") != nil {
		return func(registry.Object) any { return nil }
	}
	return func(o registry.Object) any {
		p := *parsed // FindResults keeps state in the parser
		found, err := p.FindResults(fieldsOf(o))
		if err != nil || len(found) == 0 || len(found[0]) == 0 {
			return nil
		}
		return formatCell(kind, found[0][0].Interface())
	}
}

// formatCell returns a JSON value as a cell of a type, or nil if the value has another type.
func formatCell(kind string, v any) any {
	if kind != "string" {
		return formatTypedCell(kind, v)
	}
	if text, ok := v.(string); ok {
		return text
	}
	var w bytes.Buffer
	if err := (&jsonpath.JSONPath{}).PrintResults(&w, []reflect.Value{reflect.ValueOf(v)}); err != nil {
		return nil
	}
	return w.String()
}

// formatTypedCell formats the value of a column that is not a string.
func formatTypedCell(kind string, v any) any {
	switch value := v.(type) {
	case int64:
		switch kind {
		case "integer":
			return value
		case "number":
			return float64(value)
		}
	case float64:
		switch kind {
		case "integer":
			return int64(value)
		case "number":
			return value
		}
	case bool:
		if kind == "boolean" {
			return value
		}
	case string:
		if kind == "date" {
			var t metav1.Time
			if err := t.UnmarshalQueryParameter(value); err != nil {
				return "<invalid>"
			}
			return registry.Age{Since: t}
		}
	}
	return nil
}
