package mergetypes

import (
	"bytes"
	_ "embed"
	"encoding/gob"
	"fmt"
	"io"
	"strconv"
	"sync"

	smd "sigs.k8s.io/structured-merge-diff/v4/schema"
)

//go:generate go run ./generate

// embeddedTypes is the output of Write for all types.
//
//go:embed types.gob
var embeddedTypes []byte

// fileContent is the content of the embedded file. Defaults are separate because they may have any
// type.
type fileContent struct {
	Types    []smd.TypeDef
	Defaults []fieldDefault
}

// fieldDefault is the default of a field, by the indexes of the type and of the field.
type fieldDefault struct {
	Type, Field int
	Kind        defaultKind
	Text        string
}

// defaultKind is the type of a default in the embedded file.
type defaultKind byte

const (
	textDefault defaultKind = iota
	numberDefault
	boolDefault
	emptyMapDefault // an empty map
)

// Schema returns the schema of all types. Callers must not change it. It is nil if the embedded
// file cannot be read, which a test rules out. The file is read once.
func Schema() *smd.Schema { return parsedSchema() }

// parsedSchema decodes the embedded file on its first call. It returns nil if the file cannot be
// read.
var parsedSchema = sync.OnceValue(func() *smd.Schema {
	types, err := Read(bytes.NewReader(embeddedTypes))
	if err != nil {
		return nil
	}
	return &smd.Schema{Types: types}
})

// Read decodes the output of Write.
func Read(r io.Reader) ([]smd.TypeDef, error) {
	var content fileContent
	if err := gob.NewDecoder(r).Decode(&content); err != nil {
		return nil, fmt.Errorf("read merge rules: %w", err)
	}
	for _, field := range content.Defaults {
		if field.Type >= len(content.Types) || content.Types[field.Type].Map == nil || field.Field >= len(content.Types[field.Type].Map.Fields) {
			return nil, fmt.Errorf("read merge rules: a default of no field: %+v", field)
		}
		value, err := field.value()
		if err != nil {
			return nil, fmt.Errorf("read merge rules: %w", err)
		}
		content.Types[field.Type].Map.Fields[field.Field].Default = value
	}
	return content.Types, nil
}

// value returns the default as YAML decodes it.
func (f fieldDefault) value() (any, error) {
	switch f.Kind {
	case numberDefault:
		return strconv.Atoi(f.Text)
	case boolDefault:
		return strconv.ParseBool(f.Text)
	case emptyMapDefault:
		return map[any]any{}, nil
	}
	return f.Text, nil
}

// Write encodes types and removes the defaults from them.
func Write(writer io.Writer, types []smd.TypeDef) error {
	content := fileContent{Types: types}
	for i, typeDef := range types {
		if typeDef.Map == nil {
			continue
		}
		for k := range typeDef.Map.Fields {
			field := &typeDef.Map.Fields[k]
			fieldEntry := fieldDefault{Type: i, Field: k, Text: fmt.Sprint(field.Default)}
			switch v := field.Default.(type) {
			case nil:
				continue
			case string: // textDefault is the zero value
			case int:
				fieldEntry.Kind = numberDefault
			case bool:
				fieldEntry.Kind = boolDefault
			case map[any]any:
				fieldEntry.Kind = emptyMapDefault
				if len(v) > 0 {
					return fmt.Errorf("write merge rules: %s.%s has a default that is not empty", typeDef.Name, field.Name)
				}
			default:
				return fmt.Errorf("write merge rules: %s.%s has a default of type %T", typeDef.Name, field.Name, v)
			}
			field.Default = nil
			content.Defaults = append(content.Defaults, fieldEntry)
		}
	}
	return gob.NewEncoder(writer).Encode(content)
}
