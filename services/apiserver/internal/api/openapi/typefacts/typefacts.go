package typefacts

import (
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

//go:generate go run ./generate

//go:embed facts.txt
var text string

var errUnknown = errors.New("unknown fact")

// Facts holds the facts of all types, by full names such as k8s.io/api/core/v1.Pod.
type Facts struct {
	// Versions holds the group versions that the API has or had.
	Versions []schema.GroupVersion

	types map[string]*Type
	enums map[string][]Value
}

// Type holds the facts of a struct.
type Type struct {
	// Doc is its description if the type itself carries none or another one.
	Doc *string
	// MapType is the merge rule.
	MapType string
	// Union describes the union, in the form of the extension.
	Union []any
	// Fields holds the fields by JSON name.
	Fields map[string]*Field
}

// Field holds the facts of a field.
type Field struct {
	Doc               *string
	ListType, MapType string
	Keys              []string
	Default           any
	// Required states whether the field is required if that differs from the field's tag.
	Required *bool
	// HideEnum hides the description of the field's enum.
	HideEnum bool
}

// Value is a value of an enum.
type Value struct{ Text, Doc string }

// Enum returns the values of a string type, or nil if any value is allowed.
func (f *Facts) Enum(name string) []Value { return f.enums[name] }

// Type returns the facts of a struct. They may be empty but not nil.
func (f *Facts) Type(name string) *Type {
	if t := f.types[name]; t != nil {
		return t
	}
	return &Type{}
}

// Field returns the facts of a field. They may be empty but not nil.
func (t *Type) Field(name string) *Field {
	if f := t.Fields[name]; f != nil {
		return f
	}
	return &Field{}
}

// Read parses the facts.
func Read() (*Facts, error) { return parse(text) }

// parse reads facts in the form that the generator writes.
func parse(text string) (*Facts, error) {
	f := &Facts{types: map[string]*Type{}, enums: map[string][]Value{}}
	var enum string
	var in *Type
	n := 0
	for line := range strings.Lines(text) {
		n++
		parts := strings.Split(strings.TrimSuffix(line, "\n"), "\t")
		var err error
		switch {
		case strings.HasPrefix(line, "#"):
		case len(parts) < 2:
			err = fmt.Errorf("%q has no effect", parts[0])
		case parts[0] == "version" && len(parts) == 3:
			f.Versions = append(f.Versions, schema.GroupVersion{Group: parts[1], Version: parts[2]})
		case parts[0] == "enum":
			enum = parts[1]
			f.enums[enum] = nil
		case parts[0] == "value" && enum != "" && len(parts) == 3:
			f.enums[enum] = append(f.enums[enum], Value{parts[1], parts[2]})
		case parts[0] == "type":
			in = &Type{Fields: map[string]*Field{}}
			f.types[parts[1]] = in
			err = each(parts[2:], in.set)
		case parts[0] == "field" && in != nil:
			field := &Field{}
			in.Fields[parts[1]] = field
			err = each(parts[2:], field.set)
		default:
			err = fmt.Errorf("%q is not expected here", parts[0])
		}
		if err != nil {
			return nil, fmt.Errorf("facts of types, line %d: %w: run go generate", n, err)
		}
	}
	return f, nil
}

func each(facts []string, set func(name, value string) error) error {
	for _, fact := range facts {
		name, value, _ := strings.Cut(fact, "=")
		if err := set(name, value); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return nil
}

func (t *Type) set(name, value string) error {
	switch name {
	case "doc":
		return json.Unmarshal([]byte(value), &t.Doc)
	case "mapType":
		t.MapType = value
	case "union":
		return json.Unmarshal([]byte(value), &t.Union)
	default:
		return errUnknown
	}
	return nil
}

func (f *Field) set(name, value string) error {
	switch name {
	case "doc":
		return json.Unmarshal([]byte(value), &f.Doc)
	case "listType":
		f.ListType = value
	case "mapType":
		f.MapType = value
	case "keys":
		f.Keys = strings.Split(value, ",")
	case "default":
		return json.Unmarshal([]byte(value), &f.Default)
	case "required":
		required := value == "true"
		f.Required = &required
	case "cut":
		f.HideEnum = true
	default:
		return errUnknown
	}
	return nil
}
