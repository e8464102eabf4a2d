package codec

import (
	"bytes"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	kjson "k8s.io/apimachinery/pkg/runtime/serializer/json"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	sigsjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"

	"binnacle/libs/api"
	"binnacle/services/apiserver/internal/codec/doccheck"
	"binnacle/services/apiserver/internal/codec/wire"
	"binnacle/services/apiserver/internal/json/formats"
	"binnacle/services/apiserver/internal/json/transcode"
	"binnacle/services/apiserver/internal/registry"
)

// Codec encodes and decodes the kinds of a catalog.
type Codec struct {
	// Checks rejects documents before they are decoded.
	Checks *doccheck.Checker

	scheme     *runtime.Scheme
	kindCodecs map[*registry.Kind]*KindCodec

	json, jsonStrict, jsonPretty *kjson.Serializer
	yaml, yamlStrict             *kjson.Serializer
	proto                        *protobuf.Serializer
	// metadataProgram is the program for metadata alone; metadataFrameHead is the JSON that
	// precedes it.
	metadataProgram   func() *transcode.Program
	metadataFrameHead []byte
}

// KindCodec encodes and decodes one kind in one served version.
type KindCodec struct {
	Kind  *registry.Kind
	codec *Codec

	apiVersion     string // of the served form
	fields         []fieldProgram
	fieldTree      fieldTree
	documentFields *documentFields // replaces fields and fieldTree for documents
	// servedAsStored is true if objects are served in the Go type in which they are stored.
	servedAsStored bool
	// listItemsField is the protobuf field number of a list's items.
	listItemsField int

	// heads holds the start of a watch frame for each event type; see frameHead.
	heads [len(eventNames)][]byte
	// program writes the JSON of stored values. It returns nil if they must be decoded.
	program func() *transcode.Program
	// stored describes the stored form.
	stored func() *doccheck.StoredMessage
	// tableRows decodes the fields that table columns read; nil if columns need the whole object.
	tableRows *rowObjects
}

// New returns the codec of a catalog. The scheme must know every type that is served or stored.
func New(catalog *registry.Catalog, scheme *runtime.Scheme) (*Codec, error) {
	codec := &Codec{
		scheme:     scheme,
		Checks:     doccheck.New(scheme),
		kindCodecs: map[*registry.Kind]*KindCodec{},
	}
	serializer := func(o kjson.SerializerOptions) *kjson.Serializer {
		return kjson.NewSerializerWithOptions(kjson.DefaultMetaFactory, scheme, scheme, o)
	}
	codec.json = serializer(kjson.SerializerOptions{})
	codec.jsonStrict = serializer(kjson.SerializerOptions{Strict: true})
	codec.jsonPretty = serializer(kjson.SerializerOptions{Pretty: true})
	codec.yaml = serializer(kjson.SerializerOptions{Yaml: true})
	codec.yamlStrict = serializer(kjson.SerializerOptions{Yaml: true, Strict: true})
	codec.proto = protobuf.NewSerializer(scheme, scheme)
	codec.metadataProgram = sync.OnceValue(newMetadataProgram)
	codec.metadataFrameHead = frameHead(Added, PartialKind, MetaVersion("v1"))[objectAt(Added):]
	for _, kind := range catalog.Kinds() {
		kindCodec, err := codec.newKindCodec(kind)
		if err != nil {
			return nil, err
		}
		codec.kindCodecs[kind] = kindCodec
	}
	return codec, nil
}

// newKindCodec returns the KindCodec of a kind.
func (c *Codec) newKindCodec(kind *registry.Kind) (*KindCodec, error) {
	kindCodec := &KindCodec{Kind: kind, codec: c, apiVersion: kind.GroupVersion().String(), servedAsStored: kind.Stored.ToStored == nil}
	if kind.Virtual && kind.NewList == nil {
		return kindCodec, nil
	}
	for t := range eventNames {
		kindCodec.heads[t] = frameHead(EventType(t), kind.Kind, kindCodec.apiVersion)
	}
	if kind.Document != nil {
		kindCodec.documentFields = newDocumentFields(kind.Presentation.Selectable)
		return kindCodec, nil
	}
	var err error
	stored := reflect.TypeOf(kindCodec.newStored()).Elem()
	if kindCodec.fields, err = compileFields(kind, stored); err != nil {
		return nil, err
	}
	kindCodec.fieldTree = newFieldTree(kindCodec.fields)
	kindCodec.program = newProgram(kind, kindCodec.servedAsStored, stored)
	kindCodec.stored = sync.OnceValue(func() *doccheck.StoredMessage { return c.Checks.StoredType(stored) })
	if len(kind.Presentation.ColumnFields) > 0 {
		mask, err := kindCodec.newFieldMask(kind.Presentation.ColumnFields)
		if err != nil {
			return nil, err
		}
		kindCodec.tableRows = &rowObjects{mask: mask}
	}
	if kindCodec.listItemsField, err = itemsFieldNumber(reflect.TypeOf(kind.NewList()).Elem()); err != nil {
		return nil, fmt.Errorf("list of %s: %w", kind.GVK(), err)
	}
	return kindCodec, nil
}

// itemsFieldNumber returns the protobuf field number of the items of a list type.
func itemsFieldNumber(list reflect.Type) (int, error) {
	structField, ok := list.FieldByName("Items")
	if !ok {
		return 0, fmt.Errorf("%s has no items", list)
	}
	var n int
	if _, err := fmt.Sscanf(structField.Tag.Get("protobuf"), "bytes,%d,", &n); err != nil {
		return 0, fmt.Errorf("%s.Items: %w", list, err)
	}
	return n, nil
}

// NewKindCodec returns a new codec for a kind without Go types, which is in no catalog.
func (c *Codec) NewKindCodec(k *registry.Kind) (*KindCodec, error) { return c.newKindCodec(k) }

// ForKind returns the KindCodec of a kind of the catalog.
func (c *Codec) ForKind(k *registry.Kind) *KindCodec { return c.kindCodecs[k] }

// Scheme returns the set of known Go types.
func (c *Codec) Scheme() *runtime.Scheme { return c.scheme }

// Decoded is the result of decoding a body.
type Decoded struct {
	Object runtime.Object
	GVK    schema.GroupVersionKind
	// Unknown holds an error for each unknown or duplicate field, in order of appearance.
	Unknown []error
	// TypeUnchecked is set if GVK may differ from the kind of the KindCodec. The kind's validation
	// then rejects the object.
	TypeUnchecked bool
}

// Decode decodes a body of a media type. The type comes from the body; parts that the body omits
// come from expected. With strict, Decode reports unknown and duplicate fields. If it returns an
// error, Decoded.GVK is the type as far as it is known.
func (c *Codec) Decode(
	media string,
	body []byte,
	expected schema.GroupVersionKind,
	into runtime.Object,
	strict bool,
) (Decoded, error) {
	d, body, err := c.decoder(media, body, expected, strict)
	if err != nil {
		return Decoded{}, err
	}
	obj, gvk, err := d.Decode(body, &expected, into)
	out := Decoded{Object: obj}
	if gvk != nil {
		out.GVK = *gvk
	}
	if err != nil {
		if s, ok := runtime.AsStrictDecodingError(err); ok && obj != nil {
			out.Unknown = s.Errors()
			err = nil
		}
	}
	if err != nil {
		return out, err
	}
	obj.GetObjectKind().SetGroupVersionKind(schema.GroupVersionKind{})
	return out, nil
}

// DecodeInto decodes a body into a value, whatever type the body states. It returns the stated type
// as far as it is known.
func (c *Codec) DecodeInto(media string, body []byte, into runtime.Object) (schema.GroupVersionKind, error) {
	var err error
	switch media {
	case api.MediaProtobuf:
		raw, version, kind, err := wire.OpenEnvelope(body)
		gvk := schema.FromAPIVersionAndKind(version, kind)
		if err != nil {
			return gvk, err
		}
		message, ok := into.(interface{ Unmarshal([]byte) error })
		if !ok {
			return gvk, fmt.Errorf("%T has no protobuf form", into)
		}
		if err := c.Checks.CheckMessage(raw, into); err != nil {
			return gvk, err
		}
		return gvk, message.Unmarshal(raw)
	case api.MediaCBOR:
		body, err = formats.CBORToJSON(body)
	case api.MediaYAML:
		if err = doccheck.CheckYAML(body); err == nil {
			body, err = yaml.YAMLToJSON(body)
		}
	default:
		err = doccheck.CheckJSON(body)
	}
	if err != nil {
		return schema.GroupVersionKind{}, err
	}
	gvk, err := kjson.DefaultMetaFactory.Interpret(body)
	if err != nil {
		return schema.GroupVersionKind{}, err
	}
	if err := c.Checks.CheckInto(body, into); err != nil {
		return schema.GroupVersionKind{}, err
	}
	return *gvk, sigsjson.UnmarshalCaseSensitivePreserveInts(body, into)
}

// DecodeBody decodes a body of the kind; see Codec.Decode.
func (k *KindCodec) DecodeBody(media string, body []byte, strict bool) (Decoded, error) {
	if k.Kind.Document != nil {
		return k.decodeDocumentBody(media, body, strict)
	}
	gvk := k.Kind.GVK()
	lazy := k.Kind.Stored.LazyField
	if lazy != nil && media == api.MediaJSON && k.codec.Checks.CheckJSON(body, gvk) == nil {
		obj, ok := lazy.Decode(body, func(data []byte) (registry.Object, error) {
			decoded, err := k.codec.Decode(media, data, gvk, nil, true)
			obj, ok := decoded.Object.(registry.Object)
			if err != nil || len(decoded.Unknown) > 0 || decoded.GVK != gvk || !ok {
				return nil, errFallback
			}
			return obj, nil
		})
		if ok {
			return Decoded{Object: obj, GVK: gvk}, nil
		}
	}
	decoded, err := k.codec.Decode(media, body, gvk, nil, strict)
	if err == nil && decoded.GVK == gvk {
		err = k.CheckConvertible(decoded.Object)
	}
	return decoded, err
}

// CheckConvertible returns the error of Kind.Convertible.
func (k *KindCodec) CheckConvertible(obj runtime.Object) error {
	if o, ok := obj.(registry.Object); ok && k.Kind.Convertible != nil {
		return k.Kind.Convertible(o)
	}
	return nil
}

// errFallback makes DecodeBody use the generic decoder for a body whose lazy field does not fit.
var errFallback = errors.New("not eligible for the lazy field; use the generic decoder")

// DecodePatched decodes the JSON of an object that a patch has changed. It decodes like DecodeBody,
// and rejects an object with a Go type if the patch has changed its type. The validation of other
// objects checks their type.
func (k *KindCodec) DecodePatched(doc []byte, strict bool) (Decoded, error) {
	decoded, err := k.DecodeBody(api.MediaJSON, doc, strict)
	switch {
	case err != nil:
	case decoded.TypeUnchecked:
		if decoded.GVK.Version == "" {
			err = runtime.NewMissingVersionErr(string(doc))
		}
	case decoded.GVK != k.Kind.GVK():
		err = UnknownConversion(decoded.GVK, k.Kind.GVK())
	}
	return decoded, err
}

// UnknownConversion returns the error for an object of the kind from where the kind to is expected.
func UnknownConversion(from, to schema.GroupVersionKind) error {
	return fmt.Errorf("converting (%s.%s) to (%s.%s): unknown conversion", from.Version, from.Kind, groupName(to.Group), to.Kind)
}

// groupName returns the short name of a group in messages.
func groupName(group string) string {
	if group == "" {
		return "core"
	}
	name, _, _ := strings.Cut(group, ".")
	return name
}

// decoder returns the decoder of a media type and the body to decode. It returns an error if the
// body exceeds the bounds.
func (c *Codec) decoder(
	media string,
	body []byte,
	expected schema.GroupVersionKind,
	strict bool,
) (runtime.Decoder, []byte, error) {
	switch media {
	case api.MediaProtobuf:
		return c.proto, body, c.Checks.CheckProtobuf(body, expected)
	case api.MediaYAML:
		if strict {
			return c.yamlStrict, body, c.Checks.CheckYAML(body, expected)
		}
		return c.yaml, body, c.Checks.CheckYAML(body, expected)
	case api.MediaCBOR:
		var err error
		if body, err = formats.CBORToJSON(body); err != nil {
			return nil, nil, err
		}
	}
	if strict {
		return c.jsonStrict, body, c.Checks.CheckJSON(body, expected)
	}
	return c.json, body, c.Checks.CheckJSON(body, expected)
}

// Encode encodes any known object in a media type, with its kind and apiVersion.
func (c *Codec) Encode(obj runtime.Object, gvk schema.GroupVersionKind, media string, pretty bool) ([]byte, error) {
	obj.GetObjectKind().SetGroupVersionKind(gvk)
	var buf bytes.Buffer
	var err error
	switch {
	case media == api.MediaProtobuf:
		return appendObject(nil, obj, gvk.GroupVersion().String(), gvk.Kind)
	case media == api.MediaYAML:
		if err = c.json.Encode(obj, &buf); err == nil {
			return formats.JSONToYAML(buf.Bytes())
		}
	case media == api.MediaCBOR:
		if err = c.json.Encode(obj, &buf); err == nil {
			return formats.JSONToCBOR(buf.Bytes())
		}
	case pretty:
		err = c.jsonPretty.Encode(obj, &buf)
	default:
		err = c.json.Encode(obj, &buf)
	}
	return buf.Bytes(), err
}

// FieldLabel returns the label under which the cache knows a field. It returns false if selectors
// of this kind may not use the field.
func (k *KindCodec) FieldLabel(label string) (string, bool) {
	switch label {
	case "metadata.name":
		return label, true
	case "metadata.namespace":
		// Cluster-scoped kinds have no namespace. Selectors may still use it if the kind declares
		// no fields.
		return label, k.Kind.Namespaced || !k.Kind.HasFieldLabels()
	}
	for _, selectable := range k.Kind.Presentation.Selectable {
		if selectable.Label == label && !selectable.Reserved {
			return label, true
		}
		for _, a := range selectable.Aliases {
			if a == label {
				return selectable.Label, true
			}
		}
	}
	return "", false
}

// StatusGVK is the type of error responses.
var StatusGVK = schema.GroupVersionKind{Version: "v1", Kind: "Status"}
