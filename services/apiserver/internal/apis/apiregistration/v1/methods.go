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
const GroupName = "apiregistration." + api.Domain

// SchemeGroupVersion is the group version of these types.
var SchemeGroupVersion = schema.GroupVersion{Group: GroupName, Version: "v1"}

// AddToScheme makes the types known to a scheme.
func AddToScheme(s *runtime.Scheme) error {
	s.AddKnownTypes(SchemeGroupVersion, &APIService{}, &APIServiceList{})
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
func (*APIService) ProtoMessage() {}

// Reset empties the object.
func (a *APIService) Reset() { *a = APIService{} }

// String is for messages.
func (a *APIService) String() string { return text(a) }

// Size of the protobuf form.
func (a *APIService) Size() int { return apitype.Size(a) }

// Marshal to protobuf.
func (a *APIService) Marshal() ([]byte, error) { return apitype.Marshal(a) }

// MarshalTo the beginning of a buffer.
func (a *APIService) MarshalTo(b []byte) (int, error) { return apitype.MarshalTo(a, b) }

// MarshalToSizedBuffer writes to the end of a buffer.
func (a *APIService) MarshalToSizedBuffer(b []byte) (int, error) {
	return apitype.MarshalToSizedBuffer(a, b)
}

// Unmarshal from protobuf.
func (a *APIService) Unmarshal(b []byte) error { return apitype.Unmarshal(b, a) }

// DeepCopy copies the object.
func (a *APIService) DeepCopy() *APIService { return apitype.DeepCopy(a) }

// DeepCopyInto overrides what ObjectMeta would do to its own part only.
func (a *APIService) DeepCopyInto(out *APIService) { *out = *a.DeepCopy() }

// DeepCopyObject makes the type an object.
func (a *APIService) DeepCopyObject() runtime.Object { return a.DeepCopy() }

// ProtoMessage and the methods below make the type a protobuf message.
func (*APIServiceList) ProtoMessage() {}

// Reset empties the list.
func (a *APIServiceList) Reset() { *a = APIServiceList{} }

// String is for messages.
func (a *APIServiceList) String() string { return text(a) }

// Size of the protobuf form.
func (a *APIServiceList) Size() int { return apitype.Size(a) }

// Marshal to protobuf.
func (a *APIServiceList) Marshal() ([]byte, error) { return apitype.Marshal(a) }

// MarshalTo the beginning of a buffer.
func (a *APIServiceList) MarshalTo(b []byte) (int, error) {
	return apitype.MarshalTo(a, b)
}

// MarshalToSizedBuffer writes to the end of a buffer.
func (a *APIServiceList) MarshalToSizedBuffer(b []byte) (int, error) {
	return apitype.MarshalToSizedBuffer(a, b)
}

// Unmarshal from protobuf.
func (a *APIServiceList) Unmarshal(b []byte) error { return apitype.Unmarshal(b, a) }

// DeepCopy copies the list.
func (a *APIServiceList) DeepCopy() *APIServiceList {
	return apitype.DeepCopy(a)
}

// DeepCopyInto overrides what ListMeta would do to its own part only.
func (a *APIServiceList) DeepCopyInto(out *APIServiceList) {
	*out = *a.DeepCopy()
}

// DeepCopyObject makes the type an object.
func (a *APIServiceList) DeepCopyObject() runtime.Object { return a.DeepCopy() }
