package options

import (
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/spf13/pflag"
	"sigs.k8s.io/yaml/goyaml.v3"
)

// maxConfigBytes bounds the file of --config.
const maxConfigBytes = 1 << 20

// applyConfigFile sets every flag that the file contains and the command line does not.
func applyConfigFile(flags *pflag.FlagSet, path string) error {
	file, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("read --config: %w", err)
	}
	defer file.Close()
	data, err := io.ReadAll(io.LimitReader(file, maxConfigBytes+1))
	if err != nil {
		return fmt.Errorf("read --config: %w", err)
	}
	if len(data) > maxConfigBytes {
		return fmt.Errorf("%s: larger than %d bytes", path, maxConfigBytes)
	}
	return applyConfig(flags, path, data)
}

// applyConfig sets the flags that a YAML document names.
func applyConfig(flags *pflag.FlagSet, path string, data []byte) error {
	var doc yaml.Node
	if err := yaml.Unmarshal(data, &doc); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	if doc.Kind == 0 {
		return nil // an empty file
	}
	root := doc.Content[0]
	if root.Kind == yaml.ScalarNode && root.Tag == "!!null" {
		return nil
	}
	if root.Kind != yaml.MappingNode {
		return fmt.Errorf("%s:%d: want a mapping of flag names to values", path, root.Line)
	}
	seen := map[string]int{}
	var errs []error
	for i := 0; i+1 < len(root.Content); i += 2 {
		key, value := root.Content[i], root.Content[i+1]
		if err := applyKey(flags, key, value, seen); err != nil {
			errs = append(errs, fmt.Errorf("%s:%d: %w", path, key.Line, err))
		}
	}
	return errors.Join(errs...)
}

// applyKey sets the flag of one key, unless the command line has set it. seen holds the lines of
// earlier keys.
func applyKey(flags *pflag.FlagSet, key, value *yaml.Node, seen map[string]int) error {
	flag := flags.Lookup(key.Value)
	if flag == nil || key.Value == configFlag || key.Value == "help" || key.Value == "version" {
		return fmt.Errorf("unknown key %q", key.Value)
	}
	if line, dup := seen[flag.Name]; dup {
		return fmt.Errorf("key %q was already set on line %d", key.Value, line)
	}
	seen[flag.Name] = key.Line
	if flag.Changed {
		return nil // the command line takes precedence
	}
	values, err := flagValues(value)
	if err != nil {
		return fmt.Errorf("%s: %w", key.Value, err)
	}
	if list, ok := flag.Value.(pflag.SliceValue); ok && value.Kind == yaml.SequenceNode {
		// Replace takes elements literally, including commas.
		if err := list.Replace(values); err != nil {
			return fmt.Errorf("%s: %w", key.Value, err)
		}
		flag.Changed = true
		return nil
	}
	for _, v := range values {
		if err := flags.Set(flag.Name, v); err != nil {
			return fmt.Errorf("%s: %w", key.Value, err)
		}
	}
	return nil
}

// flagValues converts a YAML value to command line values: a scalar into one value, a sequence into
// one per element, a mapping into key=value pairs.
func flagValues(node *yaml.Node) ([]string, error) {
	switch node.Kind {
	case yaml.ScalarNode:
		v, err := scalarValue(node)
		return []string{v}, err
	case yaml.SequenceNode:
		var out []string
		for _, e := range node.Content {
			v, err := scalarValue(e)
			if err != nil {
				return nil, err
			}
			out = append(out, v)
		}
		return out, nil
	case yaml.MappingNode:
		var out []string
		for i := 0; i+1 < len(node.Content); i += 2 {
			v, err := scalarValue(node.Content[i+1])
			if err != nil {
				return nil, err
			}
			out = append(out, node.Content[i].Value+"="+v)
		}
		return out, nil
	}
	return nil, errors.New("want a value, a list of values or a mapping of values")
}

func scalarValue(n *yaml.Node) (string, error) {
	if n.Kind != yaml.ScalarNode || n.Tag == "!!null" {
		return "", fmt.Errorf("line %d: want a plain value", n.Line)
	}
	return n.Value, nil
}
