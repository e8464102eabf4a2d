package follow

import (
	"bytes"
	"encoding/json"
	"strings"

	"binnacle/services/apiserver/internal/codec"
)

// schema is what is read of one: where defaults are.
type schema struct {
	Default    json.RawMessage    `json:"default"`
	Nullable   bool               `json:"nullable"`
	Properties map[string]*schema `json:"properties"`
}

// version is what is read of a version of a definition.
type version struct {
	Name   string `json:"name"`
	Schema struct {
		OpenAPIV3Schema *schema `json:"openAPIV3Schema"`
	} `json:"schema"`
}

// defaults are what fields have in documents of each version that leave them, or what they are in,
// out: objects are shown, and selected, with the defaults of the version that they are stored in.
// Versions without any are left out.
func defaults(paths []string, versions []byte) (map[string][][]codec.Absent, error) {
	if len(paths) == 0 || versions == nil {
		return nil, nil
	}
	var all []version
	if err := json.Unmarshal(versions, &all); err != nil {
		return nil, err
	}
	out := map[string][][]codec.Absent{}
	for _, v := range all {
		some := false
		var fields [][]codec.Absent
		for _, p := range paths {
			parts := absent(v.Schema.OpenAPIV3Schema, strings.Split(p[1:], "."))
			for _, part := range parts {
				some = some || part != codec.Absent{}
			}
			fields = append(fields, parts)
		}
		if some {
			out[v.Name] = fields
		}
	}
	return out, nil
}

// absent is what a field is without each part of its path.
func absent(s *schema, path []string) []codec.Absent {
	out := make([]codec.Absent, len(path))
	for i, name := range path {
		if s = s.property(name); s == nil {
			break
		}
		out[i].Missing = s.textOf(nil, path[i+1:])
		if !s.Nullable {
			out[i].Null = out[i].Missing
		}
	}
	return out
}

// property is the schema of a member, nil where there is none.
func (s *schema) property(name string) *schema {
	if s == nil {
		return nil
	}
	return s.Properties[name]
}

// textOf is the text at a path of a value, which has its default where it is nil. The schema may be nil.
func (s *schema) textOf(v any, path []string) string {
	if v == nil && s != nil && s.Default != nil {
		d := json.NewDecoder(bytes.NewReader(s.Default))
		d.UseNumber()
		if err := d.Decode(&v); err != nil {
			return ""
		}
	}
	if len(path) == 0 {
		return text(v)
	}
	members, ok := v.(map[string]any)
	if !ok {
		return ""
	}
	member := s.property(path[0])
	value, there := members[path[0]]
	if there && value == nil && member != nil && member.Nullable {
		return ""
	}
	return member.textOf(value, path[1:])
}

// text is that of a scalar, as selectors have it.
func text(v any) string {
	switch v := v.(type) {
	case string:
		return v
	case json.Number:
		return v.String()
	case bool:
		if v {
			return "true"
		}
		return "false"
	}
	return ""
}
