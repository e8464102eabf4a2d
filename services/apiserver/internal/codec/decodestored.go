package codec

import (
	"context"
	"encoding/json"
	"fmt"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"binnacle/libs/quantity"
	"binnacle/services/apiserver/internal/codec/wire"
	"binnacle/services/apiserver/internal/registry"
)

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
	o, ok := obj.(registry.Object)
	if !ok {
		return nil, fmt.Errorf("%T is not an API object", obj)
	}
	return o, nil
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
	m, ok := obj.(interface{ Unmarshal([]byte) error })
	if !ok {
		return fmt.Errorf("%T has no protobuf form", obj)
	}
	if quantity.MayBeExpensive(raw) {
		if err := k.codec.Checks.CheckMessage(raw, obj); err != nil {
			return err
		}
	}
	if err := m.Unmarshal(raw); err != nil {
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
func (k *KindCodec) DecodeWithJSON(ctx context.Context, it Item) (registry.Object, []byte, error) {
	if k.Kind.Document != nil {
		return k.decodeDocument(ctx, it)
	}
	obj, err := k.decodeServed(it)
	return obj, nil, err
}

// decodeServed decodes a stored value of a kind with a Go type into the served version, with
// defaults.
func (k *KindCodec) decodeServed(it Item) (registry.Object, error) {
	obj, err := k.decodeAsStored(it.Stored)
	if err != nil {
		return nil, err
	}
	if !k.servedAsStored {
		if obj, err = k.Kind.Stored.FromStored(obj); err != nil {
			return nil, fmt.Errorf("stored %s: %w", k.Kind.Kind, err)
		}
	}
	if k.Kind.Default != nil {
		k.Kind.Default(obj)
	}
	if k.Kind.AfterDecode != nil {
		k.Kind.AfterDecode(obj)
	}
	obj.SetResourceVersion(FormatRevision(it.Revision))
	return obj, nil
}
