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
const GroupName = "apiregistration." + api.Domain

// SchemeGroupVersion is the group version of these types.
var SchemeGroupVersion = schema.GroupVersion{Group: GroupName, Version: "v1"}

// AddToScheme registers the types in a scheme.
func AddToScheme(s *runtime.Scheme) error {
	s.AddKnownTypes(SchemeGroupVersion, &APIService{}, &APIServiceList{})
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
func (*APIService) ProtoMessage() {}

// Reset clears the object.
func (a *APIService) Reset() { *a = APIService{} }

// String returns the object's JSON for messages.
func (a *APIService) String() string { return jsonText(a) }

// Size returns the size of the protobuf form in bytes.
func (a *APIService) Size() int { return apitype.Size(a) }

// Marshal returns the protobuf form.
func (a *APIService) Marshal() ([]byte, error) { return apitype.Marshal(a) }

// MarshalToSizedBuffer encodes to the end of a buffer.
func (a *APIService) MarshalToSizedBuffer(b []byte) (int, error) {
	return apitype.MarshalToSizedBuffer(a, b)
}

// Unmarshal decodes the protobuf form.
func (a *APIService) Unmarshal(b []byte) error { return apitype.Unmarshal(b, a) }

// DeepCopy returns a copy of the object.
func (a *APIService) DeepCopy() *APIService { return apitype.DeepCopy(a) }

// DeepCopyInto overrides the method of the embedded ObjectMeta, which copies only its own part.
func (a *APIService) DeepCopyInto(out *APIService) { *out = *a.DeepCopy() }

// DeepCopyObject implements runtime.Object.
func (a *APIService) DeepCopyObject() runtime.Object { return a.DeepCopy() }

// ProtoMessage and the methods below make the type a protobuf message.
func (*APIServiceList) ProtoMessage() {}

// Reset clears the list.
func (a *APIServiceList) Reset() { *a = APIServiceList{} }

// String returns the list's JSON for messages.
func (a *APIServiceList) String() string { return jsonText(a) }

// Size returns the size of the protobuf form in bytes.
func (a *APIServiceList) Size() int { return apitype.Size(a) }

// Marshal returns the protobuf form.
func (a *APIServiceList) Marshal() ([]byte, error) { return apitype.Marshal(a) }

// MarshalToSizedBuffer encodes to the end of a buffer.
func (a *APIServiceList) MarshalToSizedBuffer(b []byte) (int, error) {
	return apitype.MarshalToSizedBuffer(a, b)
}

// Unmarshal decodes the protobuf form.
func (a *APIServiceList) Unmarshal(b []byte) error { return apitype.Unmarshal(b, a) }

// DeepCopy returns a copy of the list.
func (a *APIServiceList) DeepCopy() *APIServiceList {
	return apitype.DeepCopy(a)
}

// DeepCopyInto overrides the method of the embedded ListMeta, which copies only its own part.
func (a *APIServiceList) DeepCopyInto(out *APIServiceList) {
	*out = *a.DeepCopy()
}

// DeepCopyObject implements runtime.Object.
func (a *APIServiceList) DeepCopyObject() runtime.Object { return a.DeepCopy() }
