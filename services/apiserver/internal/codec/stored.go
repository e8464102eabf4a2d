package codec

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	kjson "k8s.io/apimachinery/pkg/runtime/serializer/json"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	sigsjson "sigs.k8s.io/json"

	"binnacle/libs/quantity"
	"binnacle/services/apiserver/internal/codec/doccheck"
	"binnacle/services/apiserver/internal/codec/wire"
	"binnacle/services/apiserver/internal/registry"
)

// StoredHeads returns the first bytes of values that are stored with a type: as protobuf, and as
// JSON in the order of fields in which Kubernetes writes it.
func StoredHeads(gvk schema.GroupVersionKind) (protobuf, data []byte) {
	protobuf = wire.AppendEnvelope(nil, gvk.GroupVersion().String(), gvk.Kind, 0)
	protobuf = protobuf[:len(protobuf)-2] // without the length of the message
	kind, _ := json.Marshal(gvk.Kind)
	version, _ := json.Marshal(gvk.GroupVersion().String())
	return protobuf, bytes.Join([][]byte{[]byte(`{"kind":`), kind, []byte(`,"apiVersion":`), version, []byte(`,`)}, nil)
}

// StoredType returns the apiVersion and kind that a stored value states.
func StoredType(stored []byte) (apiVersion, kind string, err error) {
	if wire.IsEnvelope(stored) {
		_, apiVersion, kind, err = wire.OpenEnvelope(stored)
		return apiVersion, kind, err
	}
	gvk, err := kjson.DefaultMetaFactory.Interpret(stored)
	if err != nil {
		return "", "", err
	}
	apiVersion, kind = gvk.ToAPIVersionAndKind()
	return apiVersion, kind, nil
}

// DecodeStoredInto decodes a stored value into an object of the version in which it is stored.
func DecodeStoredInto(stored []byte, into runtime.Object) error {
	if quantity.MayBeExpensive(stored) { // few values reach this point, so nothing is cached
		if err := checkStoredInto(doccheck.New(nil), stored, into); err != nil {
			return err
		}
	}
	if !wire.IsEnvelope(stored) {
		return sigsjson.UnmarshalCaseSensitivePreserveInts(stored, into)
	}
	raw, _, _, err := wire.OpenEnvelope(stored)
	if err != nil {
		return err
	}
	message, ok := into.(interface{ Unmarshal([]byte) error })
	if !ok {
		return fmt.Errorf("%T has no protobuf form", into)
	}
	return message.Unmarshal(raw)
}

// EncodeStorageVersion encodes an object of the storage version's Go type, which EncodeStored
// makes from an object of the served version.
func (k *KindCodec) EncodeStorageVersion(obj registry.Object) ([]byte, error) {
	return k.encodeStored(obj)
}

// InternalType returns the name of the internal Go type that Kubernetes has for the stored kind.
func (k *KindCodec) InternalType() string {
	if k.Kind.Document != nil {
		return "*unstructured.Unstructured"
	}
	group, _, _ := strings.Cut(k.Kind.StoredGVK().Group, ".")
	switch group {
	case "":
		group = "core"
	case "internal":
		group = "apiserverinternal"
	}
	return "*" + group + "." + k.Kind.StoredGVK().Kind
}

// UndecodableError reports that a stored value is not an object of its kind. Err is the reason.
type UndecodableError struct{ Err error }

func (e *UndecodableError) Error() string { return e.Err.Error() }
func (e *UndecodableError) Unwrap() error { return e.Err }

var errOtherKind = errors.New("the value is of another kind")

// whyUndecodable explains in the words of Kubernetes why a value does not decode. It returns found
// if the decoders of Kubernetes find no error.
func (k *KindCodec) whyUndecodable(stored []byte, found error) error {
	if errors.As(found, new(*doccheck.ValueError)) {
		return found // decoding such a value in the other decoders is too expensive
	}
	var err error
	var gvk *schema.GroupVersionKind
	switch {
	case k.Kind.Document != nil:
		_, gvk, err = unstructured.UnstructuredJSONScheme.Decode(stored, nil, nil)
	case wire.IsEnvelope(stored):
		var unknown runtime.Unknown
		if err = unknown.Unmarshal(stored[4:]); err == nil {
			gv, _ := schema.ParseGroupVersion(unknown.APIVersion)
			of := gv.WithKind(unknown.Kind)
			gvk = &of
			if m, ok := k.newStored().(interface{ Unmarshal([]byte) error }); ok && of.Kind == k.Kind.StoredGVK().Kind {
				err = m.Unmarshal(unknown.Raw)
			}
		}
	case utilyaml.IsJSONBuffer(stored):
		_, gvk, err = k.codec.json.Decode(stored, nil, nil)
	default:
		_, gvk, err = k.codec.yaml.Decode(stored, nil, nil)
	}
	expected := k.Kind.StoredGVK()
	switch {
	case err != nil:
		return err
	case gvk != nil && (gvk.Kind != expected.Kind || gvk.Group != expected.Group):
		return fmt.Errorf("converting (%s.%s) to (%s.%s): unknown conversion", gvk.Version, gvk.Kind,
			internalPackage(expected.Group), expected.Kind)
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

// EncodeStored encodes a served object to its stored form. The object is unchanged when it returns.
func (k *KindCodec) EncodeStored(obj registry.Object) ([]byte, error) {
	return k.EncodeFor(context.Background(), obj)
}

// EncodeFor encodes like EncodeStored, with the context of a request.
func (k *KindCodec) EncodeFor(ctx context.Context, obj registry.Object) ([]byte, error) {
	if k.Kind.Document != nil {
		return k.encodeDocument(ctx, obj)
	}
	if !k.servedAsStored {
		var err error
		if obj, err = k.Kind.Stored.ToStored(obj); err != nil {
			return nil, err
		}
	}
	return k.encodeStored(obj)
}

// encodeStored encodes an object of the stored version, without resourceVersion and selfLink.
func (k *KindCodec) encodeStored(obj registry.Object) ([]byte, error) {
	rv := obj.GetResourceVersion()
	link := obj.GetSelfLink()
	obj.SetResourceVersion("")
	obj.SetSelfLink("")
	defer func() { obj.SetResourceVersion(rv); obj.SetSelfLink(link) }()
	gvk := k.Kind.StoredGVK()
	if k.Kind.Stored.JSON {
		defer obj.GetObjectKind().SetGroupVersionKind(obj.GetObjectKind().GroupVersionKind())
		obj.GetObjectKind().SetGroupVersionKind(gvk)
		return json.Marshal(obj)
	}
	return k.encodeProtobuf(obj)
}

// encodeProtobuf encodes an object of the stored Go type as protobuf.
func (k *KindCodec) encodeProtobuf(obj runtime.Object) ([]byte, error) {
	gvk := k.Kind.StoredGVK()
	return appendObject(nil, obj, gvk.GroupVersion().String(), gvk.Kind)
}

// sizedMarshaler is a generated protobuf type that encodes into a given buffer.
type sizedMarshaler interface {
	Size() int
	MarshalToSizedBuffer([]byte) (int, error)
}

// marshaler is a protobuf type that encodes into a new buffer.
type marshaler interface{ Marshal() ([]byte, error) }

// appendObject appends the protobuf envelope of an object.
func appendObject(data []byte, obj runtime.Object, apiVersion, kind string) ([]byte, error) {
	if m, ok := obj.(sizedMarshaler); ok {
		size := m.Size()
		if data == nil {
			data = make([]byte, 0, len(apiVersion)+len(kind)+24+size)
		}
		data = wire.AppendEnvelope(data, apiVersion, kind, size)
		at := len(data)
		data = append(data, make([]byte, size)...)
		if n, err := m.MarshalToSizedBuffer(data[at:]); err != nil || n != size {
			return nil, fmt.Errorf("encode %T: %d of %d bytes: %w", obj, n, size, err)
		}
		return append(data, wire.EnvelopeTail...), nil
	}
	m, ok := obj.(marshaler)
	if !ok {
		return nil, fmt.Errorf("%T has no protobuf form", obj)
	}
	raw, err := m.Marshal()
	if err != nil {
		return nil, fmt.Errorf("encode %T: %w", obj, err)
	}
	data = wire.AppendEnvelope(data, apiVersion, kind, len(raw))
	data = append(data, raw...)
	return append(data, wire.EnvelopeTail...), nil
}

// Values returns the approximate number of values of a stored object, and whether the object is
// protobuf.
func (k *KindCodec) Values(stored []byte) (int, bool) {
	if !wire.IsEnvelope(stored) {
		return 0, false
	}
	raw, _, _, err := wire.OpenEnvelope(stored)
	if err != nil {
		return 0, true // the decoder reports it
	}
	return k.codec.Checks.MessageValues(raw, k.newStored()), true
}

// CheckStored returns an error for a value to store that cannot be served in every encoding. The
// error is a *doccheck.ValueError, or that of a malformed envelope. The value must be a result of
// EncodeStored.
func (k *KindCodec) CheckStored(value []byte) error {
	if k.Kind.Document != nil || !wire.IsEnvelope(value) {
		return doccheck.CheckStoredJSON(value)
	}
	raw, _, _, err := wire.OpenEnvelope(value)
	if err != nil {
		return err
	}
	err = k.codec.Checks.CheckStorable(raw, k.newStored())
	if err == nil || errors.As(err, new(*doccheck.ValueError)) {
		return err
	}
	return &doccheck.ValueError{Reason: err}
}

// checkStoredInto rejects a stored value with a quantity that is too expensive to parse.
func checkStoredInto(checker *doccheck.Checker, stored []byte, into runtime.Object) error {
	if !wire.IsEnvelope(stored) {
		return checker.CheckInto(stored, into)
	}
	raw, _, _, err := wire.OpenEnvelope(stored)
	if err != nil {
		return err
	}
	return checker.CheckStorable(raw, into)
}

// newStored returns an empty object of the Go type in which the kind is stored.
func (k *KindCodec) newStored() runtime.Object {
	if k.Kind.Stored.New != nil {
		return k.Kind.Stored.New()
	}
	return k.Kind.New()
}

// decodeAsStored decodes a stored value to the stored Go type. It returns an *UndecodableError if
// the value is not such an object.
func (k *KindCodec) decodeAsStored(stored []byte) (registry.Object, error) {
	obj, err := k.unmarshalStored(stored)
	if err != nil {
		return nil, &UndecodableError{k.whyUndecodable(stored, err)}
	}
	return obj, nil
}

// unmarshalStored decodes like decodeAsStored. Its error does not have the wording of Kubernetes
// yet.
func (k *KindCodec) unmarshalStored(stored []byte) (registry.Object, error) {
	obj := k.newStored()
	unmarshal := k.unmarshalJSON
	if wire.IsEnvelope(stored) {
		unmarshal = k.unmarshalEnvelope
	}
	if err := unmarshal(stored, obj); err != nil {
		return nil, err
	}
	obj.GetObjectKind().SetGroupVersionKind(schema.GroupVersionKind{})
	object, ok := obj.(registry.Object)
	if !ok {
		return nil, fmt.Errorf("%T is not an API object", obj)
	}
	return object, nil
}

// unmarshalEnvelope decodes a value that is stored in the protobuf envelope into obj.
func (k *KindCodec) unmarshalEnvelope(stored []byte, obj runtime.Object) error {
	raw, _, kind, err := wire.OpenEnvelope(stored)
	if err != nil {
		return err
	}
	if kind != k.Kind.StoredGVK().Kind {
		return errOtherKind
	}
	message, ok := obj.(interface{ Unmarshal([]byte) error })
	if !ok {
		return fmt.Errorf("%T has no protobuf form", obj)
	}
	if quantity.MayBeExpensive(raw) {
		if err := k.codec.Checks.CheckStorable(raw, obj); err != nil {
			return err
		}
	}
	if err := message.Unmarshal(raw); err != nil {
		return fmt.Errorf("stored %s: %w", k.Kind.Kind, err)
	}
	return nil
}

// unmarshalJSON decodes a value that is stored as JSON into obj.
func (k *KindCodec) unmarshalJSON(stored []byte, obj runtime.Object) error {
	if err := k.codec.Checks.CheckInto(stored, obj); err != nil {
		return err
	}
	if err := json.Unmarshal(stored, obj); err != nil {
		return fmt.Errorf("stored %s: %w", k.Kind.Kind, err)
	}
	if obj.GetObjectKind().GroupVersionKind().Kind != k.Kind.StoredGVK().Kind {
		return errOtherKind
	}
	return nil
}

// DecodeStored decodes a stored value to the served Go type. The result has defaults and the
// resourceVersion, but neither kind nor apiVersion.
func (k *KindCodec) DecodeStored(stored []byte, revision int64) (registry.Object, error) {
	return k.DecodeItem(context.Background(), Item{Stored: stored, Revision: revision})
}

// DecodeItem decodes like DecodeStored, with the context of a request.
func (k *KindCodec) DecodeItem(ctx context.Context, it Item) (registry.Object, error) {
	obj, _, err := k.DecodeWithJSON(ctx, it)
	return obj, err
}

// DecodeWithJSON decodes like DecodeItem. For kinds without a Go type it also returns the served
// JSON; for other kinds, that is nil.
func (k *KindCodec) DecodeWithJSON(ctx context.Context, item Item) (registry.Object, []byte, error) {
	if k.Kind.Document != nil {
		return k.decodeDocument(ctx, item)
	}
	obj, err := k.decodeServed(item)
	return obj, nil, err
}

// decodeServed decodes a stored value of a kind with a Go type into the served version, with
// defaults.
func (k *KindCodec) decodeServed(item Item) (registry.Object, error) {
	obj, err := k.decodeAsStored(item.Stored)
	if err != nil {
		return nil, err
	}
	if !k.servedAsStored {
		if obj, err = k.Kind.Stored.FromStored(obj); err != nil {
			return nil, fmt.Errorf("stored %s: %w", k.Kind.Kind, err)
		}
	}
	k.completeDecoded(obj, item.Revision)
	return obj, nil
}

// completeDecoded sets what a stored object does not hold: defaults and its resourceVersion.
func (k *KindCodec) completeDecoded(obj registry.Object, revision int64) {
	if k.Kind.Default != nil {
		k.Kind.Default(obj)
	}
	if k.Kind.AfterDecode != nil {
		k.Kind.AfterDecode(obj)
	}
	obj.SetResourceVersion(FormatRevision(revision))
}
