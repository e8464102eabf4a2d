package v1

import (
	"encoding/json"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"binnacle/libs/api"
	"binnacle/services/apiserver/internal/registry/apis/apitype"
)

// GroupName is the name of the group.
const GroupName = "apiextensions." + api.Domain

// SchemeGroupVersion is the group version of these types.
var SchemeGroupVersion = schema.GroupVersion{Group: GroupName, Version: "v1"}

// AddToScheme registers the types in a scheme.
func AddToScheme(s *runtime.Scheme) error {
	s.AddKnownTypes(SchemeGroupVersion, &CustomResourceDefinition{}, &CustomResourceDefinitionList{}, &ConversionReview{})
	metav1.AddToGroupVersion(s, SchemeGroupVersion)
	return nil
}

func jsonText(v any) string {
	data, err := json.Marshal(v)
	if err != nil {
		return err.Error()
	}
	return string(data)
}

// ProtoMessage and the methods below make the type a protobuf message.
func (*CustomResourceDefinition) ProtoMessage() {}

// Reset clears the object.
func (c *CustomResourceDefinition) Reset() { *c = CustomResourceDefinition{} }

// String returns the object's JSON for messages.
func (c *CustomResourceDefinition) String() string { return jsonText(c) }

// Size returns the size of the protobuf form in bytes.
func (c *CustomResourceDefinition) Size() int { return apitype.Size(c) }

// Marshal returns the protobuf form.
func (c *CustomResourceDefinition) Marshal() ([]byte, error) { return apitype.Marshal(c) }

// MarshalToSizedBuffer encodes to the end of a buffer.
func (c *CustomResourceDefinition) MarshalToSizedBuffer(b []byte) (int, error) {
	return apitype.MarshalToSizedBuffer(c, b)
}

// Unmarshal decodes the protobuf form.
func (c *CustomResourceDefinition) Unmarshal(b []byte) error { return apitype.Unmarshal(b, c) }

// DeepCopy returns a copy of the object.
func (c *CustomResourceDefinition) DeepCopy() *CustomResourceDefinition { return apitype.DeepCopy(c) }

// DeepCopyInto overrides the method of the embedded ObjectMeta, which copies only its own part.
func (c *CustomResourceDefinition) DeepCopyInto(out *CustomResourceDefinition) { *out = *c.DeepCopy() }

// DeepCopyObject implements runtime.Object.
func (c *CustomResourceDefinition) DeepCopyObject() runtime.Object { return c.DeepCopy() }

// ProtoMessage and the methods below make the type a protobuf message.
func (*CustomResourceDefinitionList) ProtoMessage() {}

// Reset clears the list.
func (c *CustomResourceDefinitionList) Reset() { *c = CustomResourceDefinitionList{} }

// String returns the list's JSON for messages.
func (c *CustomResourceDefinitionList) String() string { return jsonText(c) }

// Size returns the size of the protobuf form in bytes.
func (c *CustomResourceDefinitionList) Size() int { return apitype.Size(c) }

// Marshal returns the protobuf form.
func (c *CustomResourceDefinitionList) Marshal() ([]byte, error) { return apitype.Marshal(c) }

// MarshalToSizedBuffer encodes to the end of a buffer.
func (c *CustomResourceDefinitionList) MarshalToSizedBuffer(b []byte) (int, error) {
	return apitype.MarshalToSizedBuffer(c, b)
}

// Unmarshal decodes the protobuf form.
func (c *CustomResourceDefinitionList) Unmarshal(b []byte) error { return apitype.Unmarshal(b, c) }

// DeepCopy returns a copy of the list.
func (c *CustomResourceDefinitionList) DeepCopy() *CustomResourceDefinitionList {
	return apitype.DeepCopy(c)
}

// DeepCopyInto overrides the method of the embedded ListMeta, which copies only its own part.
func (c *CustomResourceDefinitionList) DeepCopyInto(out *CustomResourceDefinitionList) {
	*out = *c.DeepCopy()
}

// DeepCopyObject implements runtime.Object.
func (c *CustomResourceDefinitionList) DeepCopyObject() runtime.Object { return c.DeepCopy() }

// ProtoMessage and the methods below make the type a protobuf message.
func (*ConversionReview) ProtoMessage() {}

// Reset clears the review.
func (c *ConversionReview) Reset() { *c = ConversionReview{} }

// String returns the review's JSON for messages.
func (c *ConversionReview) String() string { return jsonText(c) }

// Size returns the size of the protobuf form in bytes.
func (c *ConversionReview) Size() int { return apitype.Size(c) }

// Marshal returns the protobuf form.
func (c *ConversionReview) Marshal() ([]byte, error) { return apitype.Marshal(c) }

// MarshalToSizedBuffer encodes to the end of a buffer.
func (c *ConversionReview) MarshalToSizedBuffer(b []byte) (int, error) {
	return apitype.MarshalToSizedBuffer(c, b)
}

// Unmarshal decodes the protobuf form.
func (c *ConversionReview) Unmarshal(b []byte) error { return apitype.Unmarshal(b, c) }

// XXX_Unmarshal, XXX_Marshal and XXX_Size override the methods of the embedded TypeMeta, which
// handle only its own part.
func (c *ConversionReview) XXX_Unmarshal(b []byte) error { return c.Unmarshal(b) }

// XXX_Marshal ignores its buffer.
func (c *ConversionReview) XXX_Marshal([]byte, bool) ([]byte, error) { return c.Marshal() }

// XXX_Size returns the size of the protobuf form in bytes.
func (c *ConversionReview) XXX_Size() int { return c.Size() }

// DeepCopy returns a copy of the review.
func (c *ConversionReview) DeepCopy() *ConversionReview { return apitype.DeepCopy(c) }

// DeepCopyObject implements runtime.Object.
func (c *ConversionReview) DeepCopyObject() runtime.Object { return c.DeepCopy() }

// Immutable implements apitype.Immutable: a schema is large, and copies of its definition share it.
// To change a schema, build a new one.
func (s *JSONSchemaProps) Immutable() {}
