package codec

import (
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"binnacle/services/apiserver/internal/json/jsontext"
	"binnacle/services/apiserver/internal/json/tape"
	"binnacle/services/apiserver/internal/registry"
)

// decodeDocumentBody is DecodeBody for documents. The body must state its kind. Its kind and
// apiVersion may differ from those of the Coder. Then only the metadata is shaped, and the object
// keeps its kind and apiVersion. With strict, unknown and duplicate fields are reported.
func (k *Coder) decodeDocumentBody(media string, body []byte, strict bool) (Decoded, error) {
	out, original := Decoded{AnyType: true}, body
	body, err := toJSON(media, body, &out, strict)
	if err != nil {
		return out, err
	}
	if k.named(body) {
		out.GVK = k.Decl.GVK()
		if s, err := k.Decl.Document.Shape(body, registry.ShapeOptions{Unknown: strict}); err == nil {
			return k.decoded(out, s)
		} // The code below reports errors in the order of Kubernetes.
	}
	d, err := tape.Parse(body)
	if tape.IsOutOfRange(err) && k.named(body) {
		return out, err
	}
	out.GVK = schema.GroupVersionKind{}
	if err != nil {
		return out, fmt.Errorf("couldn't get version/kind; json parse error: %w", err)
	}
	t, err := typeOf(d, original)
	d.Release()
	if out.GVK = t.gvk(); err != nil {
		return out, err
	}
	foreign := out.GVK != k.Decl.GVK()
	s, err := k.Decl.Document.Shape(body, registry.ShapeOptions{Unknown: strict, Foreign: foreign})
	if err != nil {
		return out, err
	}
	out, err = k.decoded(out, s)
	if u, ok := out.Object.(*unstructured.Unstructured); ok && foreign && err == nil {
		u.SetKind(t.kind)
		u.SetAPIVersion(t.apiVersion)
	}
	return out, err
}

// typeNames holds the kind and the apiVersion of a body.
type typeNames struct{ kind, apiVersion string }

func (t typeNames) gvk() schema.GroupVersionKind {
	return schema.FromAPIVersionAndKind(t.apiVersion, t.kind)
}

// typeOf returns the kind and the apiVersion of the document d, which was decoded from body. It
// returns an error if they have the wrong type or if the kind is missing. The apiVersion may be
// missing.
func typeOf(d *tape.Doc, body []byte) (t typeNames, err error) {
	const couldNot = "couldn't get version/kind; json parse error: json: cannot unmarshal %s into Go "
	if d.Kind(tape.Root) != tape.Object {
		return t, fmt.Errorf(couldNot+"value of type struct { APIVersion string \"json:\\\"apiVersion,omitempty\\\"\"; Kind string \"json:\\\"kind,omitempty\\\"\" }", nameOfType(d.Kind(tape.Root)))
	}
	for _, name := range []string{"apiVersion", "kind"} {
		if v := d.Find(tape.Root, name); v != tape.None && d.Kind(v) != tape.String && d.Kind(v) != tape.Null {
			return t, fmt.Errorf(couldNot+"struct field .%s of type string", nameOfType(d.Kind(v)), name)
		}
	}
	apiVersion := textAt(d, tape.Root, "apiVersion")
	if _, err := schema.ParseGroupVersion(apiVersion); err != nil {
		return t, err
	}
	if t.kind = textAt(d, tape.Root, "kind"); t.kind == "" {
		return t, runtime.NewMissingKindErr(string(body))
	}
	if v := d.Find(tape.Root, "apiVersion"); v != tape.None && d.Kind(v) == tape.Null {
		return t, fmt.Errorf(".apiVersion accessor error: <nil> is of the type <nil>, expected string")
	}
	t.apiVersion = apiVersion
	return t, nil
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

// named reports whether a body has the kind and the apiVersion of the Coder.
func (k *Coder) named(body []byte) bool {
	parts, err := typePaths.Find(body, nil)
	if err != nil {
		return false
	}
	version, _ := jsontext.Text(parts[0])
	kind, _ := jsontext.Text(parts[1])
	return version == k.apiVersion && kind == k.Decl.Kind
}

var typePaths = jsontext.Compile(jsontext.Fields("apiVersion"), jsontext.Fields("kind"))

// decoded completes out with a shaped body.
func (k *Coder) decoded(out Decoded, s registry.Shaped) (Decoded, error) {
	for _, p := range s.Duplicates {
		out.Unknown = append(out.Unknown, fmt.Errorf("duplicate field %q", p))
	}
	for _, p := range s.Unknown {
		out.Unknown = append(out.Unknown, fmt.Errorf("unknown field %q", p))
	}
	u, err := k.toDocument(s.Doc)
	out.Object = u
	return out, err
}
