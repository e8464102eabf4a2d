package doccheck

import (
	"bytes"
	"fmt"

	yaml "sigs.k8s.io/yaml/goyaml.v3"

	"binnacle/services/apiserver/internal/json/jsontext"
)

// Bounds of a document that a client sends, in addition to its length. Each list and object costs
// memory when it is decoded, compared, recorded in managedFields and encoded. Each level above a
// value costs time.
const (
	// MaxDepth is the maximum nesting depth.
	MaxDepth = 500
	// MaxContainers is the maximum number of lists and objects, or of protobuf messages.
	MaxContainers = 1 << 17
	// MaxValues is the maximum number of values.
	MaxValues = 1 << 18
	// MaxKey is the maximum length of a field name in bytes. Each error below the field repeats its
	// name.
	MaxKey = 64 << 10
	// MaxExpanded is the maximum size in bytes of a YAML document with its aliases expanded.
	MaxExpanded = 3 << 20
)

var (
	errTooDeep           = fmt.Errorf("the document is nested more than %d levels deep", MaxDepth)
	errTooManyContainers = fmt.Errorf("the document has more than %d lists and objects", MaxContainers)
	errTooManyValues     = fmt.Errorf("the document has more than %d values", MaxValues)
	errKeyTooLong        = fmt.Errorf("the document has a field name of more than %d bytes", MaxKey)
	errAliasesTooLarge   = fmt.Errorf("the aliases of the document expand to more than %d bytes", MaxExpanded)
)

// CheckJSON rejects a JSON document that exceeds the bounds. It does not check that the document is
// valid JSON. The decoder does that.
func CheckJSON(b []byte) error {
	_, err := countJSON(b)
	return err
}

// countJSON checks like CheckJSON, and returns the approximate number of values.
func countJSON(b []byte) (values int, err error) {
	size := jsontext.Measure(b)
	values = size.Commas + 1
	switch {
	case size.Depth > MaxDepth:
		return values, errTooDeep
	case size.Containers > MaxContainers:
		return values, errTooManyContainers
	case values > MaxValues:
		return values, errTooManyValues
	case size.Key > MaxKey:
		return values, errKeyTooLong
	}
	return values, nil
}

// CheckYAML rejects a YAML document that exceeds the bounds, before any alias is expanded.
func CheckYAML(b []byte) error {
	_, err := measureYAML(b)
	return err
}

// measureYAML checks like CheckYAML, and returns the number of values. It returns 0, without
// parsing, for a document that is too small to exceed a bound.
func measureYAML(data []byte) (values int64, err error) {
	aliases := bytes.IndexByte(data, '&') >= 0 && bytes.IndexByte(data, '*') >= 0
	// Each level, list and object needs one of these characters.
	marks := 0
	for _, c := range data {
		switch c {
		case '[', '{', '-', ':', '?':
			marks++
		}
	}
	if !aliases && marks <= MaxDepth && len(data) <= MaxKey {
		return 0, nil
	}
	var node yaml.Node
	if err = yaml.Unmarshal(data, &node); err != nil {
		if !aliases {
			return 0, nil // the decoder returns the error in Kubernetes' wording
		}
		return 0, fmt.Errorf("error converting YAML to JSON: %w", err)
	}
	m := yamlMeasurer{anchors: map[*yaml.Node]nodeSize{}}
	total := m.sizeOf(&node)
	switch {
	case m.key > MaxKey:
		return total.values, errKeyTooLong
	case m.aliases && total.size > MaxExpanded:
		return total.values, errAliasesTooLarge
	case total.depth > MaxDepth:
		return total.values, errTooDeep
	case total.containers > MaxContainers:
		return total.values, errTooManyContainers
	case total.values > MaxValues:
		return total.values, errTooManyValues
	}
	return total.values, nil
}

// nodeSize is the size of a value. size is in bytes.
type nodeSize struct{ size, depth, containers, values int64 }

// unbounded exceeds every bound. Adding to it does not overflow.
const unbounded = 1 << 40

// yamlMeasurer measures the values of a YAML document. It measures the target of an alias once.
type yamlMeasurer struct {
	anchors map[*yaml.Node]nodeSize
	aliases bool
	key     int // length in bytes of the longest key
}

// sizeOf returns the size of a node with its aliases expanded.
func (m *yamlMeasurer) sizeOf(node *yaml.Node) nodeSize {
	const separators = 2
	switch node.Kind {
	case yaml.ScalarNode:
		return m.recordAnchor(node, nodeSize{size: int64(len(node.Value)) + separators, values: 1})
	case yaml.AliasNode:
		m.aliases = true
		if target, ok := m.anchors[node.Alias]; ok {
			return target
		}
		return nodeSize{size: unbounded} // the alias is inside its own target
	}
	var total nodeSize
	if node.Kind != yaml.DocumentNode {
		total = nodeSize{size: separators, containers: 1, values: 1}
	}
	for i, c := range node.Content {
		if node.Kind == yaml.MappingNode && i%2 == 0 {
			m.key = max(m.key, len(c.Value))
		}
		child := m.sizeOf(c)
		total.size = min(unbounded, total.size+child.size)
		total.containers = min(unbounded, total.containers+child.containers)
		total.values = min(unbounded, total.values+child.values)
		total.depth = max(total.depth, child.depth)
	}
	if node.Kind != yaml.DocumentNode {
		total.depth++
	}
	return m.recordAnchor(node, total)
}

// recordAnchor records the size of a node that aliases may refer to.
func (m *yamlMeasurer) recordAnchor(n *yaml.Node, size nodeSize) nodeSize {
	if n.Anchor != "" {
		m.anchors[n] = size
	}
	return size
}
