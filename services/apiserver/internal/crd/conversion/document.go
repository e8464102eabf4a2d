package conversion

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
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
	index            int // in the request
	apiVersion, kind string
	metadata         []byte // JSON; nil if absent
	identity
	converted []byte
}

// identity holds the metadata that no conversion may change.
type identity struct{ name, namespace, uid string }

func (d *document) gvk() schema.GroupVersionKind {
	return schema.FromAPIVersionAndKind(d.apiVersion, d.kind)
}

// Errors about a returned object. The message of a decodeError is returned unchanged. Those of a
// typeError and a metadataError are prefixed with the object that they concern.
type (
	decodeError   struct{ error }
	typeError     struct{ error }
	metadataError struct{ error }
)

// read decodes the type and metadata of an object.
func read(raw []byte) (*document, error) {
	t, err := tape.Parse(raw)
	if err != nil {
		return nil, err
	}
	defer t.Release()
	return describe(t)
}

// describe reads the parts of a document that conversion checks.
func describe(t *tape.Doc) (*document, error) {
	if t.Kind(tape.Root) != tape.Object {
		return nil, errors.New("it is not a JSON object")
	}
	d := &document{raw: t.Raw(), apiVersion: textAt(t, tape.Root, "apiVersion"), kind: textAt(t, tape.Root, "kind")}
	if m := t.Find(tape.Root, "metadata"); m != tape.None {
		d.metadata = t.Text(m)
		if t.Kind(m) == tape.Object {
			d.identity = identity{textAt(t, m, "name"), textAt(t, m, "namespace"), textAt(t, m, "uid")}
		}
	}
	return d, nil
}

func textAt(t *tape.Doc, object tape.Ref, name string) string {
	if v := t.Find(object, name); v != tape.None && t.Kind(v) == tape.String {
		return strings.Clone(t.String(v))
	}
	return ""
}

// setConverted validates a returned object and sets the converted form, with the original metadata.
func (d *document) setConverted(converted []byte, want schema.GroupVersion) error {
	t, got, err := readConverted(converted)
	if err != nil {
		return err
	}
	defer t.Release()
	if have, err := schema.ParseGroupVersion(got.apiVersion); err != nil || have != want {
		return &typeError{fmt.Errorf("invalid groupVersion (expected %v, received %v)", want, have)}
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

// readConverted decodes a returned object. For an object without a type, it returns the error of
// Kubernetes.
func readConverted(converted []byte) (*tape.Doc, *document, error) {
	if len(converted) == 0 || string(bytes.TrimSpace(converted)) == "null" {
		return nil, nil, &decodeError{errors.New("unexpected end of JSON input")}
	}
	t, err := tape.Parse(converted)
	if err != nil {
		return nil, nil, &decodeError{err}
	}
	if !t.Clean() {
		clean, err := t.Cleaned()
		t.Release()
		if err != nil {
			return nil, nil, &decodeError{err}
		}
		t = clean
	}
	got, err := describe(t)
	if err != nil || got.kind == "" {
		_, _, why := unstructured.UnstructuredJSONScheme.Decode(converted, nil, nil)
		if why == nil {
			why = err
		}
		t.Release()
		return nil, nil, &decodeError{why}
	}
	return t, got, nil
}

// restoreMetadata returns the returned object with the original metadata, except for labels and
// annotations.
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
	had := map[string]json.RawMessage{}
	if err := json.Unmarshal(metadata, &had); err != nil {
		return nil, &metadataError{err}
	}
	changed := false
	for _, name := range []string{"labels", "annotations"} {
		text, err := stringMap(t, m, name, had[name], checks[name])
		if err != nil {
			return nil, &metadataError{err}
		}
		switch {
		case bytes.Equal(text, had[name]):
		case text == nil:
			delete(had, name)
			changed = true
		default:
			had[name], changed = text, true
		}
	}
	if changed {
		var err error
		if metadata, err = json.Marshal(had); err != nil {
			return nil, err
		}
	}
	raw := t.Raw()
	start, end := t.Span(m)
	out := make([]byte, 0, len(raw)-(end-start)+len(metadata))
	return append(append(append(out, raw[:start]...), metadata...), raw[end:]...), nil
}

var checks = map[string]func(map[string]string, *field.Path) field.ErrorList{
	"labels": metav1validation.ValidateLabels, "annotations": validation.ValidateAnnotations,
}

// stringMap returns the encoded labels or annotations of a returned object; nil if there are none.
// It validates changed ones.
func stringMap(t *tape.Doc, metadata tape.Ref, name string, had json.RawMessage, check func(map[string]string, *field.Path) field.ErrorList) (json.RawMessage, error) {
	v := t.Find(metadata, name)
	if v == tape.None || t.Kind(v) == tape.Null {
		return nil, nil
	}
	if t.Kind(v) != tape.Object {
		return nil, fmt.Errorf("invalid metadata.%s of type %T in converted object", name, t.Any(v))
	}
	now := map[string]string{}
	for k, end := t.First(v), t.Next(v); k < end; k = t.Next(k + 1) {
		if t.Kind(k+1) != tape.String {
			return nil, fmt.Errorf("metadata.%s[%s] must be a string, but is %T in converted object", name, t.String(k), t.Any(k+1))
		}
		now[strings.Clone(t.String(k))] = strings.Clone(t.String(k + 1))
	}
	var before map[string]string
	if had != nil {
		if err := json.Unmarshal(had, &before); err != nil {
			return nil, fmt.Errorf("invalid metadata.%s in original object", name)
		}
	}
	if equalMaps(now, before) && had != nil {
		return had, nil
	}
	if errs := check(now, field.NewPath("metadata", name)); len(errs) > 0 {
		return nil, status.Aggregated(errs)
	}
	return bytes.Clone(t.Text(v)), nil
}

func equalMaps(a, b map[string]string) bool {
	if len(a) != len(b) {
		return false
	}
	for k, v := range a {
		if w, ok := b[k]; !ok || v != w {
			return false
		}
	}
	return true
}
