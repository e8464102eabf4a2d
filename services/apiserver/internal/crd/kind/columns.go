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

// columnTable holds the columns of a version, and how to read their cells from the text of a
// document.
type columnTable struct {
	columns []registry.Column
	// paths holds the paths of simple columns. A simple column reads one value from the document.
	// Any other column needs the decoded object.
	paths *jsontext.Set
	// pathIndex[i] is the index in paths of the path of column i, or negative if the column is not
	// simple.
	pathIndex []int
	// format[i] converts the value at the path of column i to a cell. Only simple columns use it.
	format []func(found any) any
}

// columnTableOf returns the columns of a version. Versions without additional columns share one.
func (m *Maker) columnTableOf(version *apiextensionsv1.CustomResourceDefinitionVersion) *columnTable {
	if len(version.AdditionalPrinterColumns) > 0 {
		return newColumnTable(version)
	}
	m.defaultTableOnce.Do(func() { m.defaultTable = newColumnTable(version) })
	return m.defaultTable
}

// newColumnTable returns the columns of a version: the name, and the columns that the definition
// adds, or the age if it adds none.
func newColumnTable(version *apiextensionsv1.CustomResourceDefinitionVersion) *columnTable {
	descriptions := metav1.ObjectMeta{}.SwaggerDoc()
	table := &columnTable{}
	var paths []jsontext.Path
	// addColumn adds a column. path is nil if the column is not simple.
	addColumn := func(column registry.Column, path jsontext.Path, format func(any) any) {
		index := -1
		if path != nil {
			index = len(paths)
			paths = append(paths, path)
		}
		table.columns = append(table.columns, column)
		table.pathIndex = append(table.pathIndex, index)
		table.format = append(table.format, format)
	}
	addColumn(registry.Column{
		Name:        "Name",
		Type:        "string",
		Format:      "name",
		Description: descriptions["name"],
		Cell:        func(o registry.Object) any { return o.GetName() },
	}, jsontext.Fields("metadata", "name"), func(found any) any {
		name, _ := found.(string)
		return name
	})
	additional := version.AdditionalPrinterColumns
	if len(additional) == 0 {
		additional = []apiextensionsv1.CustomResourceColumnDefinition{{
			Name: "Age", Type: "date", Description: descriptions["creationTimestamp"], JSONPath: ".metadata.creationTimestamp",
		}}
	}
	for _, column := range additional {
		if column.Description == "" {
			column.Description = "Custom resource definition column (in JSONPath format): " + column.JSONPath
		}
		addColumn(registry.Column{
			Name:        column.Name,
			Type:        column.Type,
			Format:      column.Format,
			Description: column.Description,
			Priority:    column.Priority,
			Cell:        cellFunc(column.Type, column.JSONPath),
		}, simplePath(column.JSONPath), func(found any) any { return formatCell(column.Type, found) })
	}
	table.paths = jsontext.Compile(paths...)
	return table
}

// maxRowBytes is the maximum number of document bytes that the columns of a row read together. A
// simple column reads its value, any other column the whole document. Columns beyond the limit stay
// empty.
const maxRowBytes = 16 << 20

// rowCells implements registry.Document. It returns the cells of a document, nil for an empty cell.
func (t *columnTable) rowCells(doc []byte, decodeObject func() (registry.Object, error)) ([]any, error) {
	values, err := t.paths.Find(doc, nil)
	if err != nil {
		return nil, err
	}
	var obj registry.Object
	cells := make([]any, len(t.columns))
	remaining := maxRowBytes
	for i := range t.columns {
		pathIndex := t.pathIndex[i]
		isSimple := pathIndex >= 0
		if isSimple {
			remaining -= len(values[pathIndex])
		} else {
			remaining -= len(doc)
		}
		switch {
		case remaining < 0:
			return cells, nil
		case !isSimple:
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
			value, err := decodeJSON(values[pathIndex])
			if err != nil {
				return nil, fmt.Errorf("column %s: %w", t.columns[i].Name, err)
			}
			cells[i] = t.format[i](value)
		}
	}
	return cells, nil
}

// simplePath converts the JSONPath of a simple column, such as .spec.parts[0].image. It returns nil
// if the path has other steps than fields and single elements, or if its value differs between the
// document and the object.
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
			first, end, step := n.Params[0], n.Params[1], n.Params[2]
			isSingleElement := first.Known && first.Value >= 0 && end.Derived && !step.Known
			if !isSingleElement {
				return nil
			}
			out = append(out, jsontext.Step{Index: first.Value, Element: true})
		default:
			return nil
		}
	}
	// The server sets apiVersion, kind and resourceVersion, so the document may have other values.
	if len(out) == 0 || out[0].Element || out[0].Name == "apiVersion" || out[0].Name == "kind" {
		return nil
	}
	if out[0].Name == "metadata" && (len(out) == 1 || out[1].Element || out[1].Name == "resourceVersion") {
		return nil
	}
	return out
}

// cellFunc returns a function that returns the first value at a path as a cell of a column type.
// The cell is nil if the path is invalid or may match too much.
func cellFunc(columnType, path string) func(registry.Object) any {
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
		return formatCell(columnType, found[0][0].Interface())
	}
}

// formatCell returns a JSON value as a cell of a column type, or nil if the value has another type.
// Any value can be a string.
func formatCell(columnType string, value any) any {
	if columnType != "string" {
		return formatTypedCell(columnType, value)
	}
	if text, ok := value.(string); ok {
		return text
	}
	var w bytes.Buffer
	if err := (&jsonpath.JSONPath{}).PrintResults(&w, []reflect.Value{reflect.ValueOf(value)}); err != nil {
		return nil
	}
	return w.String()
}

// formatTypedCell is formatCell for a column whose type is not string.
func formatTypedCell(columnType string, v any) any {
	switch value := v.(type) {
	case int64:
		switch columnType {
		case "integer":
			return value
		case "number":
			return float64(value)
		}
	case float64:
		switch columnType {
		case "integer":
			return int64(value)
		case "number":
			return value
		}
	case bool:
		if columnType == "boolean" {
			return value
		}
	case string:
		if columnType == "date" {
			var t metav1.Time
			if err := t.UnmarshalQueryParameter(value); err != nil {
				return "<invalid>"
			}
			return registry.Age{Since: t}
		}
	}
	return nil
}
