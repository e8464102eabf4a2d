package codec

import (
	"errors"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
)

// UndecodableError reports that a stored value is not an object of its kind. Its text is that of
// Err.
type UndecodableError struct{ Err error }

func (e *UndecodableError) Error() string { return e.Err.Error() }
func (e *UndecodableError) Unwrap() error { return e.Err }

var errOtherKind = errors.New("the value is of another kind")

// whyUndecodable explains in the words of Kubernetes why a value does not decode. It returns found
// if the decoders of Kubernetes find no error.
func (k *Coder) whyUndecodable(stored []byte, found error) error {
	if errors.As(found, new(*ValueError)) {
		return found // decoding such a value in the other decoders is too expensive
	}
	var err error
	var gvk *schema.GroupVersionKind
	switch {
	case k.Decl.Document != nil:
		_, gvk, err = unstructured.UnstructuredJSONScheme.Decode(stored, nil, nil)
	case isEnvelope(stored):
		var unknown runtime.Unknown
		if err = unknown.Unmarshal(stored[4:]); err == nil {
			gv, _ := schema.ParseGroupVersion(unknown.APIVersion)
			of := gv.WithKind(unknown.Kind)
			gvk = &of
			if m, ok := k.newStored().(interface{ Unmarshal([]byte) error }); ok && of.Kind == k.Decl.StoredGVK().Kind {
				err = m.Unmarshal(unknown.Raw)
			}
		}
	case utilyaml.IsJSONBuffer(stored):
		_, gvk, err = k.codec.json.Decode(stored, nil, nil)
	default:
		_, gvk, err = k.codec.yaml.Decode(stored, nil, nil)
	}
	want := k.Decl.StoredGVK()
	switch {
	case err != nil:
		return err
	case gvk != nil && (gvk.Kind != want.Kind || gvk.Group != want.Group):
		return fmt.Errorf("converting (%s.%s) to (%s.%s): unknown conversion", gvk.Version, gvk.Kind, internalPackage(want.Group), want.Kind)
	}
	return found
}

// internalPackage returns the name that Kubernetes gives to the package of a group's internal
// types.
func internalPackage(group string) string {
	if group == "" {
		return "core"
	}
	name, _, _ := strings.Cut(group, ".")
	return name
}
