package codec

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	kjson "k8s.io/apimachinery/pkg/runtime/serializer/json"
	sigsjson "sigs.k8s.io/json"

	"binnacle/libs/quantity"
	"binnacle/services/apiserver/internal/registry"
)

// StoredHeads returns the first bytes of values that are stored with a type: as protobuf, and as
// JSON in the order of fields in which Kubernetes writes it.
func StoredHeads(gvk schema.GroupVersionKind) (protobuf, text []byte) {
	protobuf = appendEnvelope(nil, gvk.GroupVersion().String(), gvk.Kind, 0)
	protobuf = protobuf[:len(protobuf)-2] // without the length of the message
	kind, _ := json.Marshal(gvk.Kind)
	version, _ := json.Marshal(gvk.GroupVersion().String())
	return protobuf, bytes.Join([][]byte{[]byte(`{"kind":`), kind, []byte(`,"apiVersion":`), version, []byte(`,`)}, nil)
}

// StoredType returns the apiVersion and kind that a stored value states.
func StoredType(stored []byte) (apiVersion, kind string, err error) {
	if isEnvelope(stored) {
		_, apiVersion, kind, err = openEnvelope(stored)
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
	if quantity.Suspect(stored) { // few values reach this point, so nothing is cached
		c := &Codec{messages: messages{known: map[reflect.Type]*message{}, shapes: map[reflect.Type]*shape{}}}
		if err := c.checkStoredInto(stored, into); err != nil {
			return err
		}
	}
	if !isEnvelope(stored) {
		return sigsjson.UnmarshalCaseSensitivePreserveInts(stored, into)
	}
	raw, _, _, err := openEnvelope(stored)
	if err != nil {
		return err
	}
	m, ok := into.(interface{ Unmarshal([]byte) error })
	if !ok {
		return fmt.Errorf("%T has no protobuf form", into)
	}
	return m.Unmarshal(raw)
}

// checkStoredInto rejects a stored value with a quantity that is too expensive to parse.
func (c *Codec) checkStoredInto(stored []byte, into runtime.Object) error {
	if !isEnvelope(stored) {
		return c.checkInto(stored, into)
	}
	raw, _, _, err := openEnvelope(stored)
	if err != nil {
		return err
	}
	return c.checkMessage(raw, into)
}

// EncodeStorageVersion encodes an object of the storage version's Go type, which EncodeStored
// makes from an object of the served version.
func (k *Coder) EncodeStorageVersion(obj registry.Object) ([]byte, error) { return k.encodeStored(obj) }

// InternalType returns the name of the internal Go type that Kubernetes has for the stored kind.
func (k *Coder) InternalType() string {
	if k.Decl.Document != nil {
		return "*unstructured.Unstructured"
	}
	group, _, _ := strings.Cut(k.Decl.StoredGVK().Group, ".")
	switch group {
	case "":
		group = "core"
	case "internal":
		group = "apiserverinternal"
	}
	return "*" + group + "." + k.Decl.StoredGVK().Kind
}
