package conversion

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"strings"

	"k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"binnacle/services/apiserver/internal/json/tape"
	"binnacle/services/apiserver/internal/status"
)

// document is an object to convert.
type document struct {
	raw              []byte
	index            int // in the argument of Convert
	apiVersion, kind string
	metadata         []byte // JSON; nil if absent
	identity
	converted []byte // the result; set by setConverted
}

// identity holds the metadata that no conversion may change.
type identity struct{ name, namespace, uid string }

func (d *document) gvk() schema.GroupVersionKind {
	return schema.FromAPIVersionAndKind(d.apiVersion, d.kind)
}

// Errors about a returned object. The client gets the message of a decodeError unchanged. The
// function objectError adds the index of the object to those of a typeError and a metadataError.
type (
	decodeError   struct{ error }
	typeError     struct{ error }
	metadataError struct{ error }
)

// parseDocument decodes the type and metadata of an object.
func parseDocument(raw []byte) (*document, error) {
	t, err := tape.Parse(raw)
	if err != nil {
		return nil, err
	}
	defer t.Release()
	return documentFrom(t)
}

// documentFrom returns the type and metadata of a parsed object.
func documentFrom(t *tape.Doc) (*document, error) {
	if t.Kind(tape.Root) != tape.Object {
		return nil, errors.New("it is not a JSON object")
	}
	d := &document{raw: t.Raw(), apiVersion: stringField(t, tape.Root, "apiVersion"), kind: stringField(t, tape.Root, "kind")}
	if m := t.Find(tape.Root, "metadata"); m != tape.None {
		d.metadata = t.Text(m)
		if t.Kind(m) == tape.Object {
			d.identity = identity{stringField(t, m, "name"), stringField(t, m, "namespace"), stringField(t, m, "uid")}
		}
	}
	return d, nil
}

// stringField returns a member of an object, or "" if it is absent or not a string.
func stringField(t *tape.Doc, object tape.Ref, name string) string {
	if v := t.Find(object, name); v != tape.None && t.Kind(v) == tape.String {
		return strings.Clone(t.String(v))
	}
	return ""
}

// setConverted validates the object that the webhook returned for d, and sets d.converted to it
// with the metadata of d.
func (d *document) setConverted(converted []byte, target schema.GroupVersion) error {
	t, got, err := readConverted(converted)
	if err != nil {
		return err
	}
	defer t.Release()
	if version, err := schema.ParseGroupVersion(got.apiVersion); err != nil || version != target {
		return &typeError{fmt.Errorf("invalid groupVersion (expected %v, received %v)", target, version)}
	}
	switch {
	case got.kind != d.kind:
		return &typeError{fmt.Errorf("invalid kind (expected %v, received %v)", d.kind, got.kind)}
	case got.name != d.name:
		return fmt.Errorf("must have the same name: %v != %v", d.name, got.name)
	case got.namespace != d.namespace:
		return fmt.Errorf("must have the same namespace: %v != %v", d.namespace, got.namespace)
	case got.uid != d.uid:
		return fmt.Errorf("must have the same UID: %v != %v", d.uid, got.uid)
	}
	d.converted, err = restoreMetadata(d.metadata, t)
	return err
}

// readConverted decodes a returned object. The caller releases the tape. For an object without a
// kind, the error is that of decoding an unstructured object.
func readConverted(converted []byte) (*tape.Doc, *document, error) {
	if len(converted) == 0 || string(bytes.TrimSpace(converted)) == "null" {
		return nil, nil, &decodeError{errors.New("unexpected end of JSON input")}
	}
	t, err := tape.Parse(converted)
	if err != nil {
		return nil, nil, &decodeError{err}
	}
	if !t.Clean() {
		clean, err := t.Canonicalize()
		t.Release()
		if err != nil {
			return nil, nil, &decodeError{err}
		}
		t = clean
	}
	got, err := documentFrom(t)
	if err != nil || got.kind == "" {
		_, _, reason := unstructured.UnstructuredJSONScheme.Decode(converted, nil, nil)
		if reason == nil {
			reason = err
		}
		t.Release()
		return nil, nil, &decodeError{reason}
	}
	return t, got, nil
}

// restoreMetadata returns the object t that the webhook returned, with the original metadata except
// for labels and annotations.
func restoreMetadata(metadata []byte, t *tape.Doc) ([]byte, error) {
	m := t.Find(tape.Root, "metadata")
	if m == tape.None {
		if metadata == nil {
			return bytes.Clone(t.Raw()), nil
		}
		return nil, &metadataError{errors.New("missing metadata in converted object")}
	}
	if t.Kind(m) != tape.Object {
		return nil, &metadataError{fmt.Errorf("invalid metadata of type %T in converted object", t.Any(m))}
	}
	if metadata == nil {
		metadata = []byte("{}")
	}

	// 1. Replace the labels and annotations of the original metadata by the returned ones.
	original := map[string]json.RawMessage{}
	if err := json.Unmarshal(metadata, &original); err != nil {
		return nil, &metadataError{err}
	}
	changed := false
	for _, name := range []string{"labels", "annotations"} {
		text, err := stringMap(t, m, name, original[name], metadataValidators[name])
		if err != nil {
			return nil, &metadataError{err}
		}
		switch {
		case bytes.Equal(text, original[name]):
		case text == nil:
			delete(original, name)
			changed = true
		default:
			original[name], changed = text, true
		}
	}
	if changed {
		var err error
		if metadata, err = json.Marshal(original); err != nil {
			return nil, err
		}
	}

	// 2. Replace the metadata of the returned object.
	raw := t.Raw()
	start, end := t.Span(m)
	out := make([]byte, 0, len(raw)-(end-start)+len(metadata))
	return append(append(append(out, raw[:start]...), metadata...), raw[end:]...), nil
}

// metadataValidators validate the fields of metadata that a conversion may change.
var metadataValidators = map[string]func(map[string]string, *field.Path) field.ErrorList{
	"labels":      metav1validation.ValidateLabels,
	"annotations": validation.ValidateAnnotations,
}

// stringMap returns the labels or annotations of a returned object as JSON, or nil if there are
// none. It validates them if they differ from the original ones, which may be nil.
func stringMap(
	t *tape.Doc,
	metadata tape.Ref,
	name string,
	original json.RawMessage,
	validate func(map[string]string, *field.Path) field.ErrorList,
) (json.RawMessage, error) {
	v := t.Find(metadata, name)
	if v == tape.None || t.Kind(v) == tape.Null {
		return nil, nil
	}
	if t.Kind(v) != tape.Object {
		return nil, fmt.Errorf("invalid metadata.%s of type %T in converted object", name, t.Any(v))
	}
	returned := map[string]string{}
	for key, end := t.First(v), t.Next(v); key < end; key = t.Next(key + 1) {
		value := key + 1
		if t.Kind(value) != tape.String {
			return nil, fmt.Errorf("metadata.%s[%s] must be a string, but is %T in converted object",
				name, t.String(key), t.Any(value))
		}
		returned[strings.Clone(t.String(key))] = strings.Clone(t.String(value))
	}
	var before map[string]string
	if original != nil {
		if err := json.Unmarshal(original, &before); err != nil {
			return nil, fmt.Errorf("invalid metadata.%s in original object", name)
		}
	}
	if maps.Equal(returned, before) && original != nil {
		return original, nil
	}
	if errs := validate(returned, field.NewPath("metadata", name)); len(errs) > 0 {
		return nil, status.Aggregated(errs)
	}
	return bytes.Clone(t.Text(v)), nil
}
