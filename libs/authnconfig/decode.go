package authnconfig

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"
	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"
	goyaml "sigs.k8s.io/yaml/goyaml.v3"
)

// decode decodes a configuration without validating its values.
func decode(data []byte) (*Configuration, *document, error) {
	doc, err := parseDocument(data)
	if err != nil {
		return nil, nil, err
	}
	asJSON, err := yaml.YAMLToJSONStrict(data)
	if err != nil {
		return nil, nil, err
	}
	var configuration Configuration
	strict, err := kjson.UnmarshalStrict(asJSON, &configuration)
	if err != nil {
		return nil, nil, err
	}
	// Check the version first, because unknown fields may belong to a newer version.
	if err := checkType(&configuration); err != nil {
		return nil, nil, err
	}
	var errs []error
	for _, err := range strict {
		var fieldErr kjson.FieldError
		if errors.As(err, &fieldErr) {
			err = doc.addLine(fieldErr.FieldPath(), err)
		}
		errs = append(errs, err)
	}
	if len(errs) > 0 {
		return nil, nil, errors.Join(errs...)
	}
	return &configuration, doc, nil
}

// checkType returns an error for another kind or version.
func checkType(configuration *Configuration) error {
	switch {
	case configuration.Kind != Kind:
		return fmt.Errorf("kind is %q, want %q", configuration.Kind, Kind)
	case configuration.APIVersion != V1beta1 && configuration.APIVersion != V1alpha1:
		return fmt.Errorf("apiVersion is %q, want %q or %q", configuration.APIVersion, V1beta1, V1alpha1)
	}
	return nil
}

// document provides the line numbers of a YAML document.
type document struct{ root *goyaml.Node }

// parseDocument parses the only YAML document of a file.
func parseDocument(data []byte) (*document, error) {
	decoder := goyaml.NewDecoder(bytes.NewReader(data))
	var first, second goyaml.Node
	if err := decoder.Decode(&first); err != nil {
		if errors.Is(err, io.EOF) {
			return nil, errors.New("the file is empty")
		}
		return nil, err
	}
	if err := decoder.Decode(&second); !errors.Is(err, io.EOF) {
		return nil, errors.New("the file has more than one document")
	}
	if len(first.Content) == 0 {
		return nil, errors.New("the file is empty")
	}
	return &document{root: first.Content[0]}, nil
}

// addLine wraps err with the line that lineOf returns for a path.
func (d *document) addLine(path string, err error) error {
	return fmt.Errorf("line %d: %w", d.lineOf(path), err)
}

// lineOf returns the line in the file of a path such as "jwt[0].issuer.url", or of the nearest
// parent that exists.
func (d *document) lineOf(path string) int {
	node, line := d.root, d.root.Line
	for _, step := range strings.FieldsFunc(path, func(r rune) bool { return r == '.' || r == '[' || r == ']' }) {
		var key *goyaml.Node
		key, node = findChild(node, step)
		if node == nil {
			break
		}
		line = key.Line
	}
	return line
}

// findChild returns the value at a path step, and the node with its line.
func findChild(node *goyaml.Node, step string) (key, value *goyaml.Node) {
	switch node.Kind {
	case goyaml.MappingNode:
		for i := 0; i+1 < len(node.Content); i += 2 {
			if node.Content[i].Value == step {
				return node.Content[i], node.Content[i+1]
			}
		}
	case goyaml.SequenceNode:
		if i, err := strconv.Atoi(step); err == nil && i >= 0 && i < len(node.Content) {
			return node.Content[i], node.Content[i]
		}
	case goyaml.AliasNode:
		return findChild(node.Alias, step)
	}
	return nil, nil
}

// addLines adds lines to validation errors and joins them to one error.
func (d *document) addLines(list field.ErrorList) error {
	var errs []error
	for _, err := range list {
		errs = append(errs, d.addLine(err.Field, err))
	}
	return errors.Join(errs...)
}
