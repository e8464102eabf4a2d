package codec

import (
	"fmt"
	"reflect"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	kjson "k8s.io/apimachinery/pkg/runtime/serializer/json"
	sigsjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"

	"binnacle/libs/api"
)

// DecodeInto decodes a body into a value, whatever type the body states. It returns the stated type
// as far as it is known.
func (c *Codec) DecodeInto(media string, body []byte, into runtime.Object) (schema.GroupVersionKind, error) {
	var err error
	switch media {
	case api.MediaProtobuf:
		raw, version, kind, err := openEnvelope(body)
		gvk := schema.FromAPIVersionAndKind(version, kind)
		if err != nil {
			return gvk, err
		}
		m, ok := into.(interface{ Unmarshal([]byte) error })
		if !ok {
			return gvk, fmt.Errorf("%T has no protobuf form", into)
		}
		if err := c.checkMessage(raw, into); err != nil {
			return gvk, err
		}
		return gvk, m.Unmarshal(raw)
	case api.MediaCBOR:
		body, err = CBORToJSON(body)
	case api.MediaYAML:
		if err = CheckYAML(body); err == nil {
			body, err = yaml.YAMLToJSON(body)
		}
	default:
		err = CheckJSON(body)
	}
	if err != nil {
		return schema.GroupVersionKind{}, err
	}
	gvk, err := kjson.DefaultMetaFactory.Interpret(body)
	if err != nil {
		return schema.GroupVersionKind{}, err
	}
	if err := c.checkInto(body, into); err != nil {
		return schema.GroupVersionKind{}, err
	}
	return *gvk, sigsjson.UnmarshalCaseSensitivePreserveInts(body, into)
}

// checkInto rejects JSON with a value that the type of into cannot have.
func (c *Codec) checkInto(body []byte, into runtime.Object) error {
	if !mayBreakLeafRule(body) {
		return nil
	}
	c.messages.mu.Lock()
	s := c.messages.shapeOf(reflect.TypeOf(into))
	c.messages.mu.Unlock()
	return measureJSON(body, s)
}
