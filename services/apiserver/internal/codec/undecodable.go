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

// UndecodableError tells that a stored value is no object of its kind. Its text is that
// of Err.
type UndecodableError struct{ Err error }

func (e *UndecodableError) Error() string { return e.Err.Error() }
func (e *UndecodableError) Unwrap() error { return e.Err }

var errOtherKind = errors.New("the value is of another kind")

// whyUndecodable says in the words of Kubernetes what is wrong with a value that does not
// decode; it says what was found where those decoders find nothing.
func (k *Coder) whyUndecodable(stored []byte, found error) error {
	if errors.As(found, new(*ValueError)) {
		return found // what other decoders do with such a value is too expensive
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

// internalPackage is what Kubernetes names the types of a group that it converts to.
func internalPackage(group string) string {
	if group == "" {
		return "core"
	}
	name, _, _ := strings.Cut(group, ".")
	return name
}
