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

// Facts holds the facts of all types. The package documentation describes them. Full names of types
// have the package path: k8s.io/api/core/v1.Pod.
type Facts struct {
	// Versions holds the group versions that the API has or had.
	Versions []schema.GroupVersion

	types map[string]*Type   // by full name
	enums map[string][]Value // by full name
}

// Type holds the facts of a struct.
type Type struct {
	// Doc is the description. It is nil if the method SwaggerDoc of the type returns the right one.
	Doc *string
	// MapType is the value of the extension x-kubernetes-map-type, or "".
	MapType string
	// Union is the value of the extension x-kubernetes-unions, or nil.
	Union []any
	// Fields holds the facts of fields by JSON name.
	Fields map[string]*Field
}

// Field holds the facts of a field. ListType, MapType and Keys are the values of the extensions
// x-kubernetes-list-type, x-kubernetes-map-type and x-kubernetes-list-map-keys.
type Field struct {
	Doc               *string // see Type.Doc
	ListType, MapType string
	Keys              []string
	Default           any // decoded JSON; nil if there is none
	// Required overrides whether the field is required. It is nil if the JSON tag decides.
	Required *bool
	// HideEnum omits the possible values of the field from its description.
	HideEnum bool
}

// Value is a value of an enum and its description.
type Value struct{ Text, Doc string }

// Enum returns the values of a string type, given its full name. It returns nil if the type is not
// an enum.
func (f *Facts) Enum(name string) []Value { return f.enums[name] }

// Type returns the facts of a struct, given its full name. The result may be empty, but is not nil.
func (f *Facts) Type(name string) *Type {
	if t := f.types[name]; t != nil {
		return t
	}
	return &Type{}
}

// Field returns the facts of a field, given its JSON name. The result may be empty, but is not nil.
func (t *Type) Field(name string) *Field {
	if f := t.Fields[name]; f != nil {
		return f
	}
	return &Field{}
}

// Read parses the embedded facts. Each call parses them again.
func Read() (*Facts, error) { return parse(text) }

// parse parses facts in the form that the package documentation describes.
func parse(text string) (*Facts, error) {
	facts := &Facts{types: map[string]*Type{}, enums: map[string][]Value{}}
	enum := ""           // full name of the enum in the last line "enum"
	var structType *Type // type in the last line "type"
	lineNumber := 0
	for line := range strings.Lines(text) {
		lineNumber++
		parts := strings.Split(strings.TrimSuffix(line, "\n"), "\t")
		var err error
		switch {
		case strings.HasPrefix(line, "#"):
		case len(parts) < 2:
			err = fmt.Errorf("%q has no effect", parts[0])
		case parts[0] == "version" && len(parts) == 3:
			facts.Versions = append(facts.Versions, schema.GroupVersion{Group: parts[1], Version: parts[2]})
		case parts[0] == "enum":
			enum = parts[1]
			facts.enums[enum] = nil
		case parts[0] == "value" && enum != "" && len(parts) == 3:
			facts.enums[enum] = append(facts.enums[enum], Value{Text: parts[1], Doc: parts[2]})
		case parts[0] == "type":
			structType = &Type{Fields: map[string]*Field{}}
			facts.types[parts[1]] = structType
			err = parseEach(parts[2:], structType.set)
		case parts[0] == "field" && structType != nil:
			field := &Field{}
			structType.Fields[parts[1]] = field
			err = parseEach(parts[2:], field.set)
		default:
			err = fmt.Errorf("%q is not expected here", parts[0])
		}
		if err != nil {
			return nil, fmt.Errorf("facts of types, line %d: %w: run go generate", lineNumber, err)
		}
	}
	return facts, nil
}

// parseEach calls set with the name and the value of each fact, "<name>=<value>".
func parseEach(facts []string, set func(name, value string) error) error {
	for _, fact := range facts {
		name, value, _ := strings.Cut(fact, "=")
		if err := set(name, value); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return nil
}

// set sets the fact of a name.
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

// set sets the fact of a name.
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
