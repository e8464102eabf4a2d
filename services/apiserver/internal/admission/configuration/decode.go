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

// Decode decodes a JSON or YAML configuration into a struct. The configuration must be of one of
// the kinds, which all have the fields of the struct. The error satisfies
//
//	runtime.IsMissingKind, IsMissingVersion  if the kind or the version is missing
//	runtime.IsNotRegisteredError             if it is none of the kinds
//	runtime.IsStrictDecodingError            if there are unknown or repeated fields
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
	return unmarshalStrict(document, into)
}

// toJSON converts YAML to JSON. It returns JSON unchanged.
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

// unmarshalStrict decodes JSON. It returns an error for unknown and repeated fields.
func unmarshalStrict(document []byte, into any) error {
	strictErrs, err := kjson.UnmarshalStrict(document, into)
	if err != nil {
		return err
	}
	if len(strictErrs) > 0 {
		return runtime.NewStrictDecodingError(strictErrs)
	}
	return nil
}

// DecodeBare decodes a JSON or YAML configuration that has no kind and version. Like Decode, it
// rejects unknown and repeated fields.
func DecodeBare(data []byte, into any) error {
	document, err := toJSON(data)
	if err != nil {
		return err
	}
	return unmarshalStrict(document, into)
}
