package codec

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"

	"binnacle/libs/api"
	"binnacle/services/apiserver/internal/customresource/tape"
	"binnacle/services/apiserver/internal/registry"
)

// served returns the document of the served version that an item stands for,
// whose apiVersion may still be that of the stored one.
func (k *Coder) served(ctx context.Context, it Item) ([]byte, error) {
	if it.Served {
		return it.Stored, nil
	}
	one := [1][]byte{it.Stored}
	out, err := k.Decl.Document.Serve(ctx, one[:])
	if err != nil {
		return nil, err
	}
	return out[0], nil
}

// toDocument decodes a document.
func (k *Coder) toDocument(doc []byte) (*unstructured.Unstructured, error) {
	d, err := tape.Parse(doc)
	if err != nil {
		return nil, err
	}
	defer d.Release()
	m, ok := d.Any(tape.Root).(map[string]any)
	if !ok {
		return nil, fmt.Errorf("%s is no object of JSON", k.Decl.Kind)
	}
	u := &unstructured.Unstructured{Object: m}
	u.SetGroupVersionKind(k.Decl.GVK())
	return u, nil
}

// decodeDocument is DecodeStored for documents.
func (k *Coder) decodeDocument(ctx context.Context, it Item) (registry.Object, error) {
	doc, err := k.served(ctx, it)
	if err != nil {
		if _, broken := k.toDocument(it.Stored); broken != nil { // not what serves it
			err = &UndecodableError{k.whyUndecodable(it.Stored, err)}
		}
		return nil, err
	}
	u, err := k.toDocument(doc)
	if err != nil {
		return nil, &UndecodableError{k.whyUndecodable(doc, fmt.Errorf("stored %s: %w", k.Decl.Kind, err))}
	}
	u.SetResourceVersion(FormatRevision(it.Revision))
	return u, nil
}

// encodeDocument is EncodeStored for documents.
func (k *Coder) encodeDocument(ctx context.Context, obj registry.Object) ([]byte, error) {
	u, ok := obj.(*unstructured.Unstructured)
	if !ok {
		return nil, fmt.Errorf("%T is no document", obj)
	}
	rv, link := u.GetResourceVersion(), u.GetSelfLink()
	u.SetResourceVersion("")
	u.SetSelfLink("")
	defer func() {
		u.SetResourceVersion(rv)
		u.SetSelfLink(link)
	}()
	gvk := u.GroupVersionKind()
	u.SetGroupVersionKind(k.Decl.GVK())
	defer u.SetGroupVersionKind(gvk)
	served, err := json.Marshal(u.Object)
	if err != nil {
		return nil, err
	}
	return k.Decl.Document.Store(ctx, served)
}

// documentFrame is JSONFrame for documents: they are not decoded.
func (k *Coder) documentFrame(t EventType, it Item) (Frame, error) {
	doc, err := k.served(context.Background(), it)
	if err != nil {
		return nil, err
	}
	d, err := tape.Parse(doc)
	if err != nil {
		return nil, fmt.Errorf("stored %s: %w", k.Decl.Kind, err)
	}
	defer d.Release()
	if d.Kind(tape.Root) != tape.Object {
		return nil, fmt.Errorf("stored %s is no object of JSON", k.Decl.Kind)
	}
	f := make([]byte, 0, len(k.heads[t])+len(doc)+40)
	f = append(f, k.heads[t]...)
	first := true
	for key, end := d.First(tape.Root), d.Next(tape.Root); key < end; key = d.Next(key + 1) {
		name := d.String(key)
		if name == "kind" || name == "apiVersion" || d.Shadowed(key) {
			continue
		}
		if !first {
			f = append(f, ',')
		}
		first = false
		f = append(tape.AppendString(f, name), ':')
		if name == "metadata" && d.Kind(key+1) == tape.Object {
			f = appendMetadata(f, d, key+1, it.Revision)
			continue
		}
		f = append(f, d.Text(key+1)...)
	}
	return append(f, '}', '}', '\n'), nil
}

// frameOfDocument is FrameOf for documents.
func (k *Coder) frameOfDocument(t EventType, u *unstructured.Unstructured) (Frame, error) {
	head := map[string]any{}
	for name, v := range u.Object {
		if name != "kind" && name != "apiVersion" {
			head[name] = v
		}
	}
	body, err := json.Marshal(head)
	if err != nil {
		return nil, fmt.Errorf("encode %s: %w", k.Decl.Kind, err)
	}
	return joinFrame(k.heads[t], body), nil
}

// appendMetadata appends metadata with a resourceVersion in place of its own.
func appendMetadata(dst []byte, d *tape.Doc, metadata tape.Ref, revision int64) []byte {
	dst = append(dst, '{')
	first := true
	for key, end := d.First(metadata), d.Next(metadata); key < end; key = d.Next(key + 1) {
		name := d.String(key)
		if name == "resourceVersion" || d.Shadowed(key) {
			continue
		}
		if !first {
			dst = append(dst, ',')
		}
		first = false
		dst = append(tape.AppendString(dst, name), ':')
		dst = append(dst, d.Text(key+1)...)
	}
	if revision != 0 {
		if !first {
			dst = append(dst, ',')
		}
		dst = append(dst, `"resourceVersion":"`...)
		dst = append(strconv.AppendInt(dst, revision, 10), '"')
	}
	return append(dst, '}')
}

// metadataMessage is the protobuf message that holds the metadata of a document.
func (k *Coder) metadataMessage(it Item) ([]byte, error) {
	m, err := k.metadata(it)
	if err != nil {
		return nil, err
	}
	p := &metav1.PartialObjectMetadata{ObjectMeta: *m}
	return p.Marshal()
}

// pathOf splits a dotted path of JSON names.
func pathOf(s *registry.SelectableField) []string {
	p := s.Path
	if p == "" {
		p = s.Label
	}
	return strings.Split(strings.TrimPrefix(p, "."), ".")
}

// attributesOfDocument reads labels and selectable fields as they are stored.
func (k *Coder) attributesOfDocument(stored []byte) (Attributes, error) {
	d, err := tape.Parse(stored)
	if err != nil {
		return Attributes{}, err
	}
	defer d.Release()
	var a Attributes
	if d.Kind(tape.Root) != tape.Object {
		return a, fmt.Errorf("%s is no object of JSON", k.Decl.Kind)
	}
	if m := d.Find(tape.Root, "metadata"); m != tape.None && d.Kind(m) == tape.Object {
		a.Name, a.Namespace = textAt(d, m, "name"), textAt(d, m, "namespace")
		if l := d.Find(m, "labels"); l != tape.None && d.Kind(l) == tape.Object {
			for key, end := d.First(l), d.Next(l); key < end; key = d.Next(key + 1) {
				if d.Kind(key+1) == tape.String && !d.Shadowed(key) {
					a.Labels = append(a.Labels, Pair{strings.Clone(d.String(key)), strings.Clone(d.String(key + 1))})
				}
			}
		}
	}
	for i := range k.fields {
		a.Fields = append(a.Fields, Pair{k.fields[i].label, valueAt(d, k.fields[i].names)})
	}
	return a, nil
}

func textAt(d *tape.Doc, object tape.Ref, name string) string {
	if v := d.Find(object, name); v != tape.None && d.Kind(v) == tape.String {
		return strings.Clone(d.String(v))
	}
	return ""
}

// valueAt is the text of a value at a path, empty where there is none.
func valueAt(d *tape.Doc, path []string) string {
	v := tape.Root
	for _, name := range path {
		if d.Kind(v) != tape.Object {
			return ""
		}
		if v = d.Find(v, name); v == tape.None {
			return ""
		}
	}
	switch d.Kind(v) {
	case tape.String:
		return strings.Clone(d.String(v))
	case tape.True, tape.False, tape.Number:
		return string(d.Text(v))
	}
	return ""
}

// DecodeDocument reads a body of the media type given as Codec.Decode does. It is
// shaped, and has unknown and repeated fields told when strict is set.
func (k *Coder) DecodeDocument(media string, body []byte, strict bool) (Decoded, error) {
	out := Decoded{}
	body, err := toJSON(media, body, &out, strict)
	if err != nil {
		return out, err
	}
	out.GVK = k.Decl.GVK()
	d, err := tape.Parse(body)
	if err != nil {
		out.GVK = schema.GroupVersionKind{}
		return out, fmt.Errorf("couldn't get version/kind; json parse error: %w", err)
	}
	seen := schema.FromAPIVersionAndKind("", "")
	if d.Kind(tape.Root) == tape.Object {
		seen = schema.FromAPIVersionAndKind(textAt(d, tape.Root, "apiVersion"), textAt(d, tape.Root, "kind"))
	}
	object := d.Kind(tape.Root) == tape.Object
	d.Release()
	if !object {
		out.GVK = schema.GroupVersionKind{}
		return out, fmt.Errorf("couldn't get version/kind; json parse error: json: cannot unmarshal %s into Go value of type struct { APIVersion string \"json:\\\"apiVersion,omitempty\\\"\"; Kind string \"json:\\\"kind,omitempty\\\"\" }", kindOfValue(body))
	}
	if seen.Kind != "" {
		out.GVK.Kind = seen.Kind
	}
	if seen.Version != "" || seen.Group != "" {
		out.GVK.Group, out.GVK.Version = seen.Group, seen.Version
	}
	if out.GVK != k.Decl.GVK() { // the caller refuses it
		out.Object = &unstructured.Unstructured{}
		return out, nil
	}
	s, err := k.Decl.Document.Shape(body, registry.ShapeOptions{Unknown: strict})
	if err != nil {
		return out, err
	}
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

func kindOfValue(body []byte) string {
	switch b := bytes.TrimSpace(body); {
	case len(b) == 0:
		return "nothing"
	case b[0] == '[':
		return "array"
	case b[0] == '"':
		return "string"
	case b[0] == 't' || b[0] == 'f':
		return "bool"
	default:
		return "number"
	}
}

// toJSON brings a body to JSON; fields that YAML has twice are told in out.
func toJSON(media string, body []byte, out *Decoded, strict bool) ([]byte, error) {
	switch media {
	case api.MediaCBOR:
		return CBORToJSON(body)
	case api.MediaYAML:
		if err := CheckYAML(body); err != nil {
			return nil, err
		}
		b, err := yaml.YAMLToJSONStrict(body)
		if err == nil {
			return b, nil
		}
		if b, lax := yaml.YAMLToJSON(body); lax == nil {
			if strict {
				out.Unknown = append(out.Unknown, err)
			}
			return b, nil
		}
		return nil, err
	}
	return body, CheckJSON(body)
}

// Reshape brings an object that was computed into the form in which it is served.
func (k *Coder) Reshape(obj registry.Object) (registry.Object, error) {
	u, ok := obj.(*unstructured.Unstructured)
	if !ok {
		return nil, fmt.Errorf("%T is no document", obj)
	}
	raw, err := json.Marshal(u.Object)
	if err != nil {
		return nil, err
	}
	s, err := k.Decl.Document.Shape(raw, registry.ShapeOptions{})
	if err != nil {
		return nil, err
	}
	return k.toDocument(s.Doc)
}
