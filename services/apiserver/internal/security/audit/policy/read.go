package policy

import (
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer/json"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
)

// groupName is the API group of policy files.
const groupName = "audit.k8s.io"

// Parse parses a policy file in YAML or JSON. An error that only strict decoding finds, such as an
// unknown field, does not prevent the use of the file: Parse passes its text to warn and ignores
// the field.
func Parse(data []byte, warn func(string)) (*Policy, error) {
	file, gvk, err := decodePolicy(data, true)
	if runtime.IsStrictDecodingError(err) {
		warn(err.Error())
		file, gvk, err = decodePolicy(data, false)
	}
	if err != nil {
		return nil, fmt.Errorf("failed decoding: %w", err)
	}
	if gvk.GroupVersion() != (schema.GroupVersion{Group: groupName, Version: "v1"}) {
		return nil, fmt.Errorf("unknown group version field %s in policy", gvk)
	}
	if len(file.Rules) == 0 {
		return nil, errors.New("loaded illegal policy with 0 rules")
	}
	if errs := validate(file); len(errs) > 0 {
		return nil, errs.ToAggregate()
	}
	return compilePolicy(file), nil
}

// decodePolicy decodes a policy file, and returns its group, version and kind. strict makes unknown
// and duplicate fields an error. If the file has no apiVersion, the decoder sets the first version
// that is registered. That is the internal version, so Parse rejects such a file, as Kubernetes
// does.
func decodePolicy(data []byte, strict bool) (*policyFile, *schema.GroupVersionKind, error) {
	scheme := runtime.NewScheme()
	for _, version := range []string{runtime.APIVersionInternal, "v1"} {
		scheme.AddKnownTypeWithName(schema.GroupVersionKind{Group: groupName, Version: version, Kind: "Policy"}, &policyFile{})
	}
	s := json.NewSerializerWithOptions(json.DefaultMetaFactory, scheme, scheme, json.SerializerOptions{
		Yaml:   !utilyaml.IsJSONBuffer(data),
		Strict: strict,
	})
	f := &policyFile{}
	_, gvk, err := s.Decode(data, nil, f)
	return f, gvk, err
}
