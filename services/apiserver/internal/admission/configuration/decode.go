package configuration

import (
	"encoding/json"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"
)

// Decode decodes a JSON or YAML configuration of one of the kinds, which have the same fields. Its
// errors are those of the API machinery: a missing kind or version (runtime.IsMissingKind,
// IsMissingVersion), another kind or version (runtime.IsNotRegisteredError), and unknown or
// repeated fields (runtime.IsStrictDecodingError).
func Decode(data []byte, into any, kinds ...schema.GroupVersionKind) error {
	document, err := toJSON(data)
	if err != nil {
		return err
	}
	var head struct {
		APIVersion string `json:"apiVersion"`
		Kind       string `json:"kind"`
	}
	if err := json.Unmarshal(document, &head); err != nil {
		return fmt.Errorf("couldn't get version/kind; json parse error: %w", err)
	}
	switch {
	case head.Kind == "":
		return runtime.NewMissingKindErr(string(document))
	case head.APIVersion == "":
		return runtime.NewMissingVersionErr(string(document))
	}
	gvk := schema.FromAPIVersionAndKind(head.APIVersion, head.Kind)
	if !slices.Contains(kinds, gvk) {
		return runtime.NewNotRegisteredErrForKind("admission configuration", gvk)
	}
	return unmarshal(document, into)
}

func toJSON(data []byte) ([]byte, error) {
	if utilyaml.IsJSONBuffer(data) {
		return data, nil
	}
	document, err := yaml.YAMLToJSONStrict(data)
	if err != nil {
		return nil, fmt.Errorf("couldn't get version/kind; yaml parse error: %w", err)
	}
	return document, nil
}

func unmarshal(document []byte, into any) error {
	strict, err := kjson.UnmarshalStrict(document, into)
	if err != nil {
		return err
	}
	if len(strict) > 0 {
		return runtime.NewStrictDecodingError(strict)
	}
	return nil
}

// DecodeBare decodes a configuration without kind and version.
func DecodeBare(data []byte, into any) error {
	document, err := toJSON(data)
	if err != nil {
		return err
	}
	return unmarshal(document, into)
}
