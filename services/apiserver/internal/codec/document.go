package codec

import (
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"

	"binnacle/libs/api"
	"binnacle/services/apiserver/internal/codec/doccheck"
	"binnacle/services/apiserver/internal/json/formats"
	"binnacle/services/apiserver/internal/json/jsontext"
	"binnacle/services/apiserver/internal/json/tape"
	"binnacle/services/apiserver/internal/json/transcode"
	"binnacle/services/apiserver/internal/registry"
)

// convertToServed returns the document of an item in the served version. Its apiVersion may still
// be the stored one.
func (k *KindCodec) convertToServed(ctx context.Context, item Item) ([]byte, error) {
	if item.Served {
		return item.Stored, nil
	}
	documents := [1][]byte{item.Stored}
	out, err := k.Kind.Document.ToServed(ctx, documents[:])
	if err != nil {
		return nil, err
	}
	return out[0], nil
}

// parseServed parses the document that convertToServed returns.
func (k *KindCodec) parseServed(ctx context.Context, item Item) (*tape.Doc, error) {
	if item.Served {
		return tape.Parse(item.Stored)
	}
	return k.Kind.Document.ParseServed(ctx, item.Stored)
}

// parseUnstructured decodes a document.
func (k *KindCodec) parseUnstructured(doc []byte) (*unstructured.Unstructured, error) {
	document, err := tape.Parse(doc)
	if err != nil {
		return nil, err
	}
	defer document.Release()
	return k.toUnstructured(document)
}

// toUnstructured decodes a parsed document.
func (k *KindCodec) toUnstructured(d *tape.Doc) (*unstructured.Unstructured, error) {
	members, ok := d.Any(tape.Root).(map[string]any)
	if !ok {
		return nil, fmt.Errorf("%s is not a JSON object", k.Kind.Kind)
	}
	u := &unstructured.Unstructured{Object: members}
	u.SetGroupVersionKind(k.Kind.GVK())
	return u, nil
}

// decodeDocument decodes an item of a kind without a Go type. It also returns the served JSON.
func (k *KindCodec) decodeDocument(ctx context.Context, item Item) (registry.Object, []byte, error) {
	doc, err := k.parseServed(ctx, item)
	if err != nil {
		return nil, nil, k.wrapStoredError(item, err)
	}
	defer doc.Release()
	object, err := k.toUnstructured(doc)
	if err != nil {
		return nil, nil, k.undecodableServed(doc.Raw(), err)
	}
	object.SetResourceVersion(FormatRevision(item.Revision))
	return object, doc.Raw(), nil
}

// wrapStoredError returns the error for an item that cannot be served. It is an *UndecodableError
// if the stored value is not a document at all.
func (k *KindCodec) wrapStoredError(it Item, err error) error {
	if _, parseErr := k.parseUnstructured(it.Stored); parseErr != nil {
		return &UndecodableError{k.whyUndecodable(it.Stored, err)}
	}
	return err
}

// undecodableServed returns the error for a served document that cannot be decoded.
func (k *KindCodec) undecodableServed(doc []byte, err error) error {
	return &UndecodableError{k.whyUndecodable(doc, fmt.Errorf("stored %s: %w", k.Kind.Kind, err))}
}

// convertToServedChecked converts like convertToServed. Its error is an *UndecodableError if the
// stored value is not a document.
func (k *KindCodec) convertToServedChecked(ctx context.Context, item Item) ([]byte, error) {
	doc, err := k.convertToServed(ctx, item)
	if err != nil {
		err = k.wrapStoredError(item, err)
	}
	return doc, err
}

// unstructuredFromServed decodes a served document.
func (k *KindCodec) unstructuredFromServed(doc []byte, revision int64) (registry.Object, error) {
	object, err := k.parseUnstructured(doc)
	if err != nil {
		return nil, k.undecodableServed(doc, err)
	}
	object.SetResourceVersion(FormatRevision(revision))
	return object, nil
}

// cellsOfDocument returns the cells of a table row. It decodes the object only if a column needs
// it.
func (k *KindCodec) cellsOfDocument(item Item) ([]any, error) {
	doc, err := k.convertToServedChecked(context.Background(), item)
	if err != nil {
		return nil, err
	}
	return k.Kind.Document.TableRow(doc, func() (registry.Object, error) { return k.unstructuredFromServed(doc, item.Revision) })
}

// encodeDocument encodes a document in its stored version.
func (k *KindCodec) encodeDocument(ctx context.Context, obj registry.Object) ([]byte, error) {
	served, err := k.ServedJSON(obj)
	if err != nil {
		return nil, err
	}
	return k.Kind.Document.ToStored(ctx, served)
}

// ServedJSON returns the served document of an object, without its resourceVersion. It returns nil
// for objects with a Go type.
func (k *KindCodec) ServedJSON(obj registry.Object) ([]byte, error) {
	if k.Kind.Document == nil {
		return nil, nil
	}
	object, ok := obj.(*unstructured.Unstructured)
	if !ok {
		return nil, fmt.Errorf("%T is not a document", obj)
	}
	rv := object.GetResourceVersion()
	link := object.GetSelfLink()
	object.SetResourceVersion("")
	object.SetSelfLink("")
	defer func() {
		object.SetResourceVersion(rv)
		object.SetSelfLink(link)
	}()
	gvk := object.GroupVersionKind()
	object.SetGroupVersionKind(k.Kind.GVK())
	defer object.SetGroupVersionKind(gvk)
	return tape.AppendValue(nil, object.Object)
}

// documentFrame returns the watch frame of a stored document. It copies the text of most fields
// instead of decoding the object.
func (k *KindCodec) documentFrame(eventType EventType, item Item) (Frame, error) {
	doc, err := k.parseServed(context.Background(), item)
	if err != nil {
		return nil, err
	}
	defer doc.Release()
	if doc.Kind(tape.Root) != tape.Object {
		return nil, fmt.Errorf("stored %s is not a JSON object", k.Kind.Kind)
	}
	data := make([]byte, 0, len(k.heads[eventType])+len(doc.Raw())+40)
	data = append(data, k.heads[eventType]...)
	first := true
	for key, end := doc.First(tape.Root), doc.Next(tape.Root); key < end; key = doc.Next(key + 1) {
		name := doc.String(key)
		if name == "kind" || name == "apiVersion" || doc.IsShadowedKey(key) {
			continue
		}
		if !first {
			data = append(data, ',')
		}
		first = false
		data = append(jsontext.AppendString(data, name), ':')
		if name == "metadata" && doc.Kind(key+1) == tape.Object {
			data = appendMetadata(data, doc, key+1, item.Revision)
			continue
		}
		data = append(data, doc.Text(key+1)...)
	}
	return append(data, '}', '}', '\n'), nil
}

// frameOfDocument returns the watch frame of a decoded document.
func (k *KindCodec) frameOfDocument(eventType EventType, u *unstructured.Unstructured) (Frame, error) {
	fields := map[string]any{} // the head contains kind and apiVersion
	for name, v := range u.Object {
		if name != "kind" && name != "apiVersion" {
			fields[name] = v
		}
	}
	body, err := tape.AppendValue(nil, fields)
	if err != nil {
		return nil, fmt.Errorf("encode %s: %w", k.Kind.Kind, err)
	}
	return joinFrame(k.heads[eventType], body), nil
}

// appendMetadata appends metadata with its resourceVersion replaced by revision.
func appendMetadata(dst []byte, doc *tape.Doc, metadata tape.Ref, revision int64) []byte {
	dst = append(dst, '{')
	first := true
	for key, end := doc.First(metadata), doc.Next(metadata); key < end; key = doc.Next(key + 1) {
		name := doc.String(key)
		if name == "resourceVersion" || doc.IsShadowedKey(key) {
			continue
		}
		if !first {
			dst = append(dst, ',')
		}
		first = false
		dst = append(jsontext.AppendString(dst, name), ':')
		dst = append(dst, doc.Text(key+1)...)
	}
	if revision != 0 {
		if !first {
			dst = append(dst, ',')
		}
		dst = append(dst, `"resourceVersion":"`...)
		dst = append(transcode.AppendVersion(dst, revision), '"')
	}
	return append(dst, '}')
}

// metadataMessage encodes a document's metadata as a PartialObjectMetadata in protobuf.
func (k *KindCodec) metadataMessage(it Item) ([]byte, error) {
	m, err := k.metadata(it)
	if err != nil {
		return nil, err
	}
	p := &metav1.PartialObjectMetadata{ObjectMeta: *m}
	return p.Marshal()
}

// toJSON converts a body to JSON. With strict, it records duplicate YAML fields in out.
func toJSON(media string, body []byte, out *Decoded, strict bool) ([]byte, error) {
	switch media {
	case api.MediaCBOR:
		return formats.CBORToJSON(body)
	case api.MediaYAML:
		if err := doccheck.CheckYAML(body); err != nil {
			return nil, err
		}
		data, err := yaml.YAMLToJSONStrict(body)
		if err == nil {
			return data, nil
		}
		if data, lenient := yaml.YAMLToJSON(body); lenient == nil {
			if strict {
				out.Unknown = append(out.Unknown, err)
			}
			return data, nil
		}
		return nil, err
	}
	return body, doccheck.CheckJSON(body)
}

// decodeDocumentBody decodes a body into a document. The body must state its kind. Its kind and
// apiVersion may differ from those of the KindCodec. Then only the metadata is normalized, and the
// object keeps its kind and apiVersion. With strict, unknown and duplicate fields are reported.
func (k *KindCodec) decodeDocumentBody(media string, body []byte, strict bool) (Decoded, error) {
	out := Decoded{TypeUnchecked: true}
	original := body
	body, err := toJSON(media, body, &out, strict)
	if err != nil {
		return out, err
	}
	if k.hasExpectedType(body) {
		out.GVK = k.Kind.GVK()
		if normalized, err := k.Kind.Document.Normalize(body, registry.DocumentOptions{ReportUnknown: strict}); err == nil {
			return k.addNormalized(out, normalized)
		}
		// The code below reports the errors in the order of Kubernetes.
	}
	doc, err := tape.Parse(body)
	if tape.IsOutOfRange(err) && k.hasExpectedType(body) {
		return out, err
	}
	out.GVK = schema.GroupVersionKind{}
	if err != nil {
		return out, fmt.Errorf("couldn't get version/kind; json parse error: %w", err)
	}
	names, err := typeOf(doc, original)
	doc.Release()
	out.GVK = names.gvk()
	if runtime.IsMissingKind(err) && !strict { // Kubernetes knows the expected kind unless it is strict
		out.GVK.Kind = k.Kind.Kind
		if names.apiVersion == "" {
			out.GVK = k.Kind.GVK()
		}
	}
	if err != nil {
		return out, err
	}
	otherType := out.GVK != k.Kind.GVK()
	normalized, err := k.Kind.Document.Normalize(body, registry.DocumentOptions{ReportUnknown: strict, OtherVersion: otherType})
	if err != nil {
		return out, err
	}
	out, err = k.addNormalized(out, normalized)
	if u, ok := out.Object.(*unstructured.Unstructured); ok && otherType && err == nil {
		u.SetKind(names.kind)
		u.SetAPIVersion(names.apiVersion)
	}
	return out, err
}

// typeNames holds the kind and the apiVersion of a body.
type typeNames struct{ kind, apiVersion string }

// gvk returns the type, also if the kind or the apiVersion is missing.
func (t typeNames) gvk() schema.GroupVersionKind {
	return schema.FromAPIVersionAndKind(t.apiVersion, t.kind)
}

// typeOf returns the kind and the apiVersion of a document, which was decoded from body. It
// returns an error if they have the wrong type or if the kind is missing. The apiVersion may be
// missing.
func typeOf(doc *tape.Doc, body []byte) (names typeNames, err error) {
	const unmarshalError = "couldn't get version/kind; json parse error: json: cannot unmarshal %s into Go "
	switch doc.Kind(tape.Root) {
	case tape.Object:
	case tape.Null:
		return names, runtime.NewMissingKindErr(string(body))
	default:
		return names, fmt.Errorf(unmarshalError+"value of type struct { APIVersion string \"json:\\\"apiVersion,omitempty\\\"\"; Kind string \"json:\\\"kind,omitempty\\\"\" }",
			nameOfType(doc.Kind(tape.Root)))
	}
	for _, name := range []string{"apiVersion", "kind"} {
		if v := doc.Find(tape.Root, name); v != tape.None && doc.Kind(v) != tape.String && doc.Kind(v) != tape.Null {
			return names, fmt.Errorf(unmarshalError+"struct field .%s of type string", nameOfType(doc.Kind(v)), name)
		}
	}
	apiVersion := textAt(doc, tape.Root, "apiVersion")
	if _, err := schema.ParseGroupVersion(apiVersion); err != nil {
		return names, err
	}
	names.apiVersion = apiVersion
	names.kind = textAt(doc, tape.Root, "kind")
	if names.kind == "" {
		return names, runtime.NewMissingKindErr(string(body))
	}
	if v := doc.Find(tape.Root, "apiVersion"); v != tape.None && doc.Kind(v) == tape.Null {
		return names, fmt.Errorf(".apiVersion accessor error: <nil> is of the type <nil>, expected string")
	}
	return names, nil
}

// nameOfType returns the name of a JSON type in the messages of encoding/json.
func nameOfType(k tape.Kind) string {
	switch k {
	case tape.Null:
		return "null"
	case tape.False, tape.True:
		return "bool"
	case tape.String:
		return "string"
	case tape.Array:
		return "array"
	case tape.Object:
		return "object"
	}
	return "number"
}

// hasExpectedType reports whether a body has the kind and the apiVersion of the KindCodec.
func (k *KindCodec) hasExpectedType(body []byte) bool {
	parts, err := typePaths.Find(body, nil)
	if err != nil {
		return false
	}
	version, _ := jsontext.Text(parts[0])
	kind, _ := jsontext.Text(parts[1])
	return version == k.apiVersion && kind == k.Kind.Kind
}

var typePaths = jsontext.Compile(jsontext.Fields("apiVersion"), jsontext.Fields("kind"))

// addNormalized sets the object of out from a normalized body, and adds the unknown and duplicate
// fields.
func (k *KindCodec) addNormalized(out Decoded, served registry.ServedDocument) (Decoded, error) {
	for _, p := range served.Duplicates {
		out.Unknown = append(out.Unknown, fmt.Errorf("duplicate field %q", p))
	}
	for _, p := range served.Unknown {
		out.Unknown = append(out.Unknown, fmt.Errorf("unknown field %q", p))
	}
	u, err := k.parseUnstructured(served.Doc)
	out.Object = u
	return out, err
}
