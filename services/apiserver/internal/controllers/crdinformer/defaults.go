package crdinformer

import (
	"bytes"
	"encoding/json"
	"iter"
	"maps"
	"strings"

	"binnacle/services/apiserver/internal/codec"
)

// schema is the part of a schema that contains defaults.
type schema struct {
	Default    json.RawMessage    `json:"default"`
	Nullable   bool               `json:"nullable"`
	Properties map[string]*schema `json:"properties"`

	value any // decoded default, if read
	read  bool
}

// version is the part of a definition's version that contains the schema.
type version struct {
	Name   string `json:"name"`
	Schema struct {
		OpenAPIV3Schema *schema `json:"openAPIV3Schema"`
	} `json:"schema"`
}

// missingValues returns, by version, the default values of fields that a document may omit. A document
// may also omit a part of the path of a field. Objects are returned and selected with the defaults of
// their stored version. Versions without such defaults are omitted. The search visits only fields that
// occur in both a schema and the paths, because there may be many versions with many fields each.
func missingValues(paths []string, versions []byte) (codec.MissingValues, error) {
	if len(paths) == 0 || versions == nil {
		return nil, nil
	}
	var all []version
	if err := json.Unmarshal(versions, &all); err != nil {
		return nil, err
	}
	root := pathTree(paths)
	out := codec.MissingValues{}
	for _, v := range all {
		f := defaultsFinder{parts: map[int][]codec.MissingValue{}}
		f.schema(v.Schema.OpenAPIV3Schema, root, 0)
		if len(f.parts) > 0 {
			out[v.Name] = f.parts
		}
	}
	return out, nil
}

// pathNode is a node in the tree of paths.
type pathNode struct {
	path     int // index of the path that ends here; negative if none
	length   int // number of names in that path
	children map[string]*pathNode
}

// pathTree returns the root of the tree of paths.
func pathTree(paths []string) *pathNode {
	root := &pathNode{path: -1}
	for i, p := range paths {
		node := root
		names := strings.Split(p[1:], ".")
		for _, name := range names {
			next := node.children[name]
			if next == nil {
				next = &pathNode{path: -1}
				if node.children == nil {
					node.children = map[string]*pathNode{}
				}
				node.children[name] = next
			}
			node = next
		}
		node.path = i
		node.length = len(names)
	}
	return root
}

// defaultsFinder finds the values of fields for each missing part of their paths.
type defaultsFinder struct {
	parts    map[int][]codec.MissingValue
	depth    int // depth of the missing part
	nullable bool
}

// schema finds defaults below a schema at a depth.
func (f *defaultsFinder) schema(s *schema, node *pathNode, depth int) {
	if s == nil {
		return
	}
	eachChild(node, len(s.Properties), maps.Keys(s.Properties), func(name string, below *pathNode) {
		member := s.Properties[name]
		if member == nil {
			return
		}
		if member.Default != nil {
			f.depth = depth
			f.nullable = member.Nullable
			f.value(member, below, nil)
		}
		f.schema(member, below, depth+1)
	})
}

// value records the fields in a value. If the value is nil, it uses the default of the schema,
// which may be nil.
func (f *defaultsFinder) value(s *schema, node *pathNode, v any) {
	if v == nil && s != nil {
		v = s.defaultValue()
	}
	if node.path >= 0 {
		f.addMissing(node, text(v))
	}
	members, ok := v.(map[string]any)
	if !ok {
		return
	}
	eachChild(node, len(members), maps.Keys(members), func(name string, below *pathNode) {
		member := s.property(name)
		if value, present := members[name]; present && (value != nil || member == nil || !member.Nullable) {
			f.value(member, below, value)
		}
	})
	if s == nil {
		return
	}
	eachChild(node, len(s.Properties), maps.Keys(s.Properties), func(name string, below *pathNode) {
		if _, present := members[name]; !present {
			f.value(s.Properties[name], below, nil)
		}
	})
}

// addMissing records the text of a field for the current missing part of its path.
func (f *defaultsFinder) addMissing(node *pathNode, text string) {
	if text == "" {
		return
	}
	parts := f.parts[node.path]
	if parts == nil {
		parts = make([]codec.MissingValue, node.length)
		f.parts[node.path] = parts
	}
	parts[f.depth].Missing = text
	if !f.nullable {
		parts[f.depth].Null = text
	}
}

// eachChild calls visit for the children of a node that have one of the names. count is the number of
// names. If there are fewer children than names, it calls visit for all children.
func eachChild(node *pathNode, count int, names iter.Seq[string], visit func(name string, child *pathNode)) {
	if len(node.children) < count {
		names = maps.Keys(node.children)
	}
	for name := range names {
		if child := node.children[name]; child != nil {
			visit(name, child)
		}
	}
}

// property returns the schema of a member, or nil.
func (s *schema) property(name string) *schema {
	if s == nil {
		return nil
	}
	return s.Properties[name]
}

// defaultValue returns the default, or nil if there is no readable default.
func (s *schema) defaultValue() any {
	if s.Default != nil && !s.read {
		d := json.NewDecoder(bytes.NewReader(s.Default))
		d.UseNumber()
		if err := d.Decode(&s.value); err != nil {
			s.value = nil
		}
		s.read = true
	}
	return s.value
}

// text returns the text of a scalar as selectors see it.
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
