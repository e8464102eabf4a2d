package v1

import (
	"encoding/json"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"binnacle/libs/api"
	"binnacle/services/apiserver/internal/apis/apitype"
)

// GroupName is the name of the group.
const GroupName = "apiextensions." + api.Domain

// SchemeGroupVersion is the group version of these types.
var SchemeGroupVersion = schema.GroupVersion{Group: GroupName, Version: "v1"}

// AddToScheme makes the types known to a scheme.
func AddToScheme(s *runtime.Scheme) error {
	s.AddKnownTypes(SchemeGroupVersion, &CustomResourceDefinition{}, &CustomResourceDefinitionList{}, &ConversionReview{})
	metav1.AddToGroupVersion(s, SchemeGroupVersion)
	return nil
}

// text is the form of an object in messages.
func text(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		return err.Error()
	}
	return string(b)
}

// ProtoMessage and the methods below make the type a protobuf message.
func (*CustomResourceDefinition) ProtoMessage() {}

// Reset empties the object.
func (c *CustomResourceDefinition) Reset() { *c = CustomResourceDefinition{} }

// String is for messages.
func (c *CustomResourceDefinition) String() string { return text(c) }

// Size of the protobuf form.
func (c *CustomResourceDefinition) Size() int { return apitype.Size(c) }

// Marshal to protobuf.
func (c *CustomResourceDefinition) Marshal() ([]byte, error) { return apitype.Marshal(c) }

// MarshalTo the beginning of a buffer.
func (c *CustomResourceDefinition) MarshalTo(b []byte) (int, error) { return apitype.MarshalTo(c, b) }

// MarshalToSizedBuffer writes to the end of a buffer.
func (c *CustomResourceDefinition) MarshalToSizedBuffer(b []byte) (int, error) {
	return apitype.MarshalToSizedBuffer(c, b)
}

// Unmarshal from protobuf.
func (c *CustomResourceDefinition) Unmarshal(b []byte) error { return apitype.Unmarshal(b, c) }

// DeepCopy copies the object.
func (c *CustomResourceDefinition) DeepCopy() *CustomResourceDefinition { return apitype.DeepCopy(c) }

// DeepCopyInto overrides what ObjectMeta would do to its own part only.
func (c *CustomResourceDefinition) DeepCopyInto(out *CustomResourceDefinition) { *out = *c.DeepCopy() }

// DeepCopyObject makes the type an object.
func (c *CustomResourceDefinition) DeepCopyObject() runtime.Object { return c.DeepCopy() }

// ProtoMessage and the methods below make the type a protobuf message.
func (*CustomResourceDefinitionList) ProtoMessage() {}

// Reset empties the list.
func (c *CustomResourceDefinitionList) Reset() { *c = CustomResourceDefinitionList{} }

// String is for messages.
func (c *CustomResourceDefinitionList) String() string { return text(c) }

// Size of the protobuf form.
func (c *CustomResourceDefinitionList) Size() int { return apitype.Size(c) }

// Marshal to protobuf.
func (c *CustomResourceDefinitionList) Marshal() ([]byte, error) { return apitype.Marshal(c) }

// MarshalTo the beginning of a buffer.
func (c *CustomResourceDefinitionList) MarshalTo(b []byte) (int, error) {
	return apitype.MarshalTo(c, b)
}

// MarshalToSizedBuffer writes to the end of a buffer.
func (c *CustomResourceDefinitionList) MarshalToSizedBuffer(b []byte) (int, error) {
	return apitype.MarshalToSizedBuffer(c, b)
}

// Unmarshal from protobuf.
func (c *CustomResourceDefinitionList) Unmarshal(b []byte) error { return apitype.Unmarshal(b, c) }

// DeepCopy copies the list.
func (c *CustomResourceDefinitionList) DeepCopy() *CustomResourceDefinitionList {
	return apitype.DeepCopy(c)
}

// DeepCopyInto overrides what ListMeta would do to its own part only.
func (c *CustomResourceDefinitionList) DeepCopyInto(out *CustomResourceDefinitionList) {
	*out = *c.DeepCopy()
}

// DeepCopyObject makes the type an object.
func (c *CustomResourceDefinitionList) DeepCopyObject() runtime.Object { return c.DeepCopy() }

// ProtoMessage and the methods below make the type a protobuf message.
func (*ConversionReview) ProtoMessage() {}

// Reset empties the review.
func (c *ConversionReview) Reset() { *c = ConversionReview{} }

// String is for messages.
func (c *ConversionReview) String() string { return text(c) }

// Size of the protobuf form.
func (c *ConversionReview) Size() int { return apitype.Size(c) }

// Marshal to protobuf.
func (c *ConversionReview) Marshal() ([]byte, error) { return apitype.Marshal(c) }

// MarshalTo the beginning of a buffer.
func (c *ConversionReview) MarshalTo(b []byte) (int, error) { return apitype.MarshalTo(c, b) }

// MarshalToSizedBuffer writes to the end of a buffer.
func (c *ConversionReview) MarshalToSizedBuffer(b []byte) (int, error) {
	return apitype.MarshalToSizedBuffer(c, b)
}

// Unmarshal from protobuf.
func (c *ConversionReview) Unmarshal(b []byte) error { return apitype.Unmarshal(b, c) }

// XXX_Unmarshal, XXX_Marshal and XXX_Size override what the embedded TypeMeta
// would do to its own part only.
func (c *ConversionReview) XXX_Unmarshal(b []byte) error { return c.Unmarshal(b) }

// XXX_Marshal ignores its buffer.
func (c *ConversionReview) XXX_Marshal([]byte, bool) ([]byte, error) { return c.Marshal() }

// XXX_Size of the protobuf form.
func (c *ConversionReview) XXX_Size() int { return c.Size() }

// DeepCopy copies the review.
func (c *ConversionReview) DeepCopy() *ConversionReview { return apitype.DeepCopy(c) }

// DeepCopyObject makes the type an object.
func (c *ConversionReview) DeepCopyObject() runtime.Object { return c.DeepCopy() }

// Immutable implements apitype.Immutable: a schema is large, and copies of its
// definition share it. Who wants another one makes it anew.
func (s *JSONSchemaProps) Immutable() {}
