package kind

import (
	"bytes"
	"reflect"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/jsonpath"

	apiextensionsv1 "binnacle/services/apiserver/internal/apis/apiextensions/v1"
	"binnacle/services/apiserver/internal/registry"
)

// columns of a version: the name, and what the definition adds; the age where it
// adds nothing.
func columns(v *apiextensionsv1.CustomResourceDefinitionVersion) []registry.Column {
	doc := metav1.ObjectMeta{}.SwaggerDoc()
	all := []registry.Column{{
		Name: "Name", Type: "string", Format: "name", Description: doc["name"],
		Cell: func(o registry.Object) any { return o.GetName() },
	}}
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
		all = append(all, registry.Column{
			Name: c.Name, Type: c.Type, Format: c.Format, Description: c.Description, Priority: c.Priority, Cell: cell(c.Type, c.JSONPath),
		})
	}
	return all
}

// cell finds the first value at a path and shows it as a type.
func cell(kind, path string) func(registry.Object) any {
	parsed := jsonpath.New(path).AllowMissingKeys(true)
	if err := parsed.Parse("{" + path + "}"); err != nil { // definitions with such a path are refused
		return func(registry.Object) any { return nil }
	}
	return func(o registry.Object) any {
		p := *parsed // finding keeps state
		found, err := p.FindResults(tree(o))
		if err != nil || len(found) == 0 || len(found[0]) == 0 {
			return nil
		}
		v := found[0][0].Interface()
		if kind != "string" {
			return typedCell(kind, v)
		}
		var w bytes.Buffer
		if err := p.PrintResults(&w, []reflect.Value{reflect.ValueOf(v)}); err != nil {
			return nil
		}
		return w.String()
	}
}

// typedCell is a value of JSON as a cell of a type; nil when it is of another one.
func typedCell(kind string, v any) any {
	switch x := v.(type) {
	case int64:
		switch kind {
		case "integer":
			return x
		case "number":
			return float64(x)
		}
	case float64:
		switch kind {
		case "integer":
			return int64(x)
		case "number":
			return x
		}
	case bool:
		if kind == "boolean" {
			return x
		}
	case string:
		if kind == "date" {
			var t metav1.Time
			if err := t.UnmarshalQueryParameter(x); err != nil {
				return "<invalid>"
			}
			return registry.Age{Since: t}
		}
	}
	return nil
}
