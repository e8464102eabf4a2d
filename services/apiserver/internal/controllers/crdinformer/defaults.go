package crdinformer

import (
	"bytes"
	"encoding/json"
	"iter"
	"maps"
	"strings"

	"binnacle/services/apiserver/internal/codec"
)

// schema is the part of an OpenAPI schema that defines defaults.
type schema struct {
	Default    json.RawMessage    `json:"default"`
	Nullable   bool               `json:"nullable"`
	Properties map[string]*schema `json:"properties"`

	decoded        any // Default, decoded by defaultValue
	defaultDecoded bool
}

// version is the part of a version in a definition that contains the schema.
type version struct {
	Name   string `json:"name"`
	Schema struct {
		OpenAPIV3Schema *schema `json:"openAPIV3Schema"`
	} `json:"schema"`
}

// missingValues returns the values that selectable fields have when a stored document omits them or
// a part of their path. Such a field has the default in the schema of the stored version.
//
// paths are the paths of the selectable fields, such as ".spec.color". versions is the list of
// versions in a definition, as JSON. The result maps the name of a version to its values. It omits
// versions without such defaults. The search visits only fields that occur in both a schema and the
// paths, because there may be many versions with many fields each.
func missingValues(paths []string, versions []byte) (codec.MissingValues, error) {
	if len(paths) == 0 || versions == nil {
		return nil, nil
	}
	var all []version
	if err := json.Unmarshal(versions, &all); err != nil {
		return nil, err
	}
	root := newPathTree(paths)
	out := codec.MissingValues{}
	for _, v := range all {
		f := defaultsFinder{found: map[int][]codec.MissingValue{}}
		f.visitSchema(v.Schema.OpenAPIV3Schema, root, 0)
		if len(f.found) > 0 {
			out[v.Name] = f.found
		}
	}
	return out, nil
}

// pathNode is a node in a tree of field names. Paths with a common prefix share nodes.
type pathNode struct {
	path     int // index of the path that ends here; -1 if none
	length   int // number of names in that path
	children map[string]*pathNode
}

// newPathTree returns the root of the tree of paths: ".spec.a" and ".spec.b" become spec -> a, b.
func newPathTree(paths []string) *pathNode {
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

// defaultsFinder finds the values that fields have when a part of their path is missing. For the
// path .spec.color, the missing part may be spec (depth 0) or color (depth 1). If spec has the
// default {"color": "red"}, the value for the missing part spec is "red".
type defaultsFinder struct {
	// found maps the index of a path to its values, by the depth of the missing part.
	found map[int][]codec.MissingValue
	// depth and nullable describe the missing part whose default visitValue visits. visitSchema sets
	// them.
	depth    int
	nullable bool
}

// visitSchema visits level, the schema of the field at node, and all schemas below it. depth is the
// depth of the fields directly below node. level may be nil.
func (f *defaultsFinder) visitSchema(level *schema, node *pathNode, depth int) {
	if level == nil {
		return
	}
	eachChild(node, len(level.Properties), maps.Keys(level.Properties), func(name string, below *pathNode) {
		member := level.Properties[name]
		if member == nil {
			return
		}
		if member.Default != nil {
			f.depth = depth
			f.nullable = member.Nullable
			f.visitValue(member, below, nil)
		}
		f.visitSchema(member, below, depth+1)
	})
}

// visitValue records the selectable fields in content, the value of the field at node. level is
// the schema of that field, or nil. If content is nil, the field is missing or null, and the default
// in level, if any, takes its place.
func (f *defaultsFinder) visitValue(level *schema, node *pathNode, content any) {
	if content == nil && level != nil {
		content = level.defaultValue()
	}
	if node.path >= 0 {
		f.record(node, selectorText(content))
	}
	members, ok := content.(map[string]any)
	if !ok {
		return
	}

	// 1. Visit the members of content. A null member gets the default of its schema, unless the schema is
	// nullable: then it stays null and has no fields.
	eachChild(node, len(members), maps.Keys(members), func(name string, below *pathNode) {
		member := level.property(name)
		value, present := members[name]
		staysNull := value == nil && member != nil && member.Nullable
		if present && !staysNull {
			f.visitValue(member, below, value)
		}
	})

	// 2. Visit the properties that content lacks. They get their own defaults.
	if level == nil {
		return
	}
	eachChild(node, len(level.Properties), maps.Keys(level.Properties), func(name string, below *pathNode) {
		if _, present := members[name]; !present {
			f.visitValue(level.Properties[name], below, nil)
		}
	})
}

// record records the value of the field whose path ends at a node. The value applies if the current
// missing part is absent. A null part counts as absent unless its schema is nullable. An empty text
// is the same as no value.
func (f *defaultsFinder) record(node *pathNode, text string) {
	if text == "" {
		return
	}
	byDepth := f.found[node.path]
	if byDepth == nil {
		byDepth = make([]codec.MissingValue, node.length)
		f.found[node.path] = byDepth
	}
	byDepth[f.depth].Missing = text
	if !f.nullable {
		byDepth[f.depth].Null = text
	}
}

// eachChild calls visit for the children of a node whose names are in names. count is the number of
// names. eachChild iterates over the smaller side, names or children. In the latter case it calls
// visit for all children, and visit must ignore names that it does not know.
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

// property returns the schema of a property, or nil if there is none. s may be nil.
func (s *schema) property(name string) *schema {
	if s == nil {
		return nil
	}
	return s.Properties[name]
}

// defaultValue returns the decoded default, or nil if there is none or it is invalid.
func (s *schema) defaultValue() any {
	if s.Default != nil && !s.defaultDecoded {
		d := json.NewDecoder(bytes.NewReader(s.Default))
		d.UseNumber()
		if err := d.Decode(&s.decoded); err != nil {
			s.decoded = nil
		}
		s.defaultDecoded = true
	}
	return s.decoded
}

// selectorText returns the text of a scalar as field selectors see it, or "" for any other value.
func selectorText(v any) string {
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
