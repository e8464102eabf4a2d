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
	doc, err := tape.Parse(raw)
	if err != nil {
		return nil, err
	}
	defer doc.Release()
	return documentFrom(doc)
}

// documentFrom returns the type and metadata of a parsed object.
func documentFrom(doc *tape.Doc) (*document, error) {
	if doc.Kind(tape.Root) != tape.Object {
		return nil, errors.New("it is not a JSON object")
	}
	converted := &document{raw: doc.Raw(), apiVersion: stringField(doc, tape.Root, "apiVersion"), kind: stringField(doc, tape.Root, "kind")}
	if metadata := doc.Find(tape.Root, "metadata"); metadata != tape.None {
		converted.metadata = doc.Text(metadata)
		if doc.Kind(metadata) == tape.Object {
			converted.identity = identity{stringField(doc, metadata, "name"), stringField(doc, metadata, "namespace"), stringField(doc, metadata, "uid")}
		}
	}
	return converted, nil
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
	doc, got, err := readConverted(converted)
	if err != nil {
		return err
	}
	defer doc.Release()
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
	d.converted, err = restoreMetadata(d.metadata, doc)
	return err
}

// readConverted decodes a returned object. The caller releases the tape. For an object without a
// kind, the error is that of decoding an unstructured object.
func readConverted(converted []byte) (*tape.Doc, *document, error) {
	if len(converted) == 0 || string(bytes.TrimSpace(converted)) == "null" {
		return nil, nil, &decodeError{errors.New("unexpected end of JSON input")}
	}
	doc, err := tape.Parse(converted)
	if err != nil {
		return nil, nil, &decodeError{err}
	}
	if !doc.Clean() {
		clean, err := doc.Canonicalize()
		doc.Release()
		if err != nil {
			return nil, nil, &decodeError{err}
		}
		doc = clean
	}
	got, err := documentFrom(doc)
	if err != nil || got.kind == "" {
		_, _, reason := unstructured.UnstructuredJSONScheme.Decode(converted, nil, nil)
		if reason == nil {
			reason = err
		}
		doc.Release()
		return nil, nil, &decodeError{reason}
	}
	return doc, got, nil
}

// restoreMetadata returns the object that the webhook returned, with the original metadata except
// for labels and annotations.
func restoreMetadata(metadata []byte, doc *tape.Doc) ([]byte, error) {
	metadataRef := doc.Find(tape.Root, "metadata")
	if metadataRef == tape.None {
		if metadata == nil {
			return bytes.Clone(doc.Raw()), nil
		}
		return nil, &metadataError{errors.New("missing metadata in converted object")}
	}
	if doc.Kind(metadataRef) != tape.Object {
		return nil, &metadataError{fmt.Errorf("invalid metadata of type %T in converted object", doc.Any(metadataRef))}
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
		text, err := stringMap(doc, metadataRef, name, original[name], metadataValidators[name])
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
	raw := doc.Raw()
	start, end := doc.Span(metadataRef)
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
	doc *tape.Doc,
	metadata tape.Ref,
	name string,
	original json.RawMessage,
	validate func(map[string]string, *field.Path) field.ErrorList,
) (json.RawMessage, error) {
	ref := doc.Find(metadata, name)
	if ref == tape.None || doc.Kind(ref) == tape.Null {
		return nil, nil
	}
	if doc.Kind(ref) != tape.Object {
		return nil, fmt.Errorf("invalid metadata.%s of type %T in converted object", name, doc.Any(ref))
	}
	returned := map[string]string{}
	for key, end := doc.First(ref), doc.Next(ref); key < end; key = doc.Next(key + 1) {
		value := key + 1
		if doc.Kind(value) != tape.String {
			return nil, fmt.Errorf("metadata.%s[%s] must be a string, but is %T in converted object",
				name, doc.String(key), doc.Any(value))
		}
		returned[strings.Clone(doc.String(key))] = strings.Clone(doc.String(value))
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
	return bytes.Clone(doc.Text(ref)), nil
}
