package v1beta1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	v1 "binnacle/services/apiserver/internal/registry/apis/apiextensions/v1"
	"binnacle/services/apiserver/internal/registry/apis/apitype"
)

// SchemeGroupVersion is the group version of these types.
var SchemeGroupVersion = schema.GroupVersion{Group: v1.GroupName, Version: "v1beta1"}

// CustomResourceDefinition is a stored definition.
type CustomResourceDefinition struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty" protobuf:"bytes,1,opt,name=metadata"`

	Spec   CustomResourceDefinitionSpec      `json:"spec" protobuf:"bytes,2,opt,name=spec"`
	Status v1.CustomResourceDefinitionStatus `json:"status,omitempty" protobuf:"bytes,3,opt,name=status"`
}

// CustomResourceDefinitionSpec may hold values that all versions share at its top level. Version is
// the name of the first version.
type CustomResourceDefinitionSpec struct {
	Group                    string                            `json:"group" protobuf:"bytes,1,opt,name=group"`
	Version                  string                            `json:"version,omitempty" protobuf:"bytes,2,opt,name=version"`
	Names                    v1.CustomResourceDefinitionNames  `json:"names" protobuf:"bytes,3,opt,name=names"`
	Scope                    v1.ResourceScope                  `json:"scope" protobuf:"bytes,4,opt,name=scope,casttype=ResourceScope"`
	Validation               *CustomResourceValidation         `json:"validation,omitempty" protobuf:"bytes,5,opt,name=validation"`
	Subresources             *v1.CustomResourceSubresources    `json:"subresources,omitempty" protobuf:"bytes,6,opt,name=subresources"`
	Versions                 []CustomResourceDefinitionVersion `json:"versions,omitempty" protobuf:"bytes,7,rep,name=versions"`
	AdditionalPrinterColumns []CustomResourceColumnDefinition  `json:"additionalPrinterColumns,omitempty" protobuf:"bytes,8,rep,name=additionalPrinterColumns"`
	SelectableFields         []v1.SelectableField              `json:"selectableFields,omitempty" protobuf:"bytes,11,rep,name=selectableFields"`
	Conversion               *CustomResourceConversion         `json:"conversion,omitempty" protobuf:"bytes,9,opt,name=conversion"`
	// PreserveUnknownFields defaults to true.
	PreserveUnknownFields *bool `json:"preserveUnknownFields,omitempty" protobuf:"varint,10,opt,name=preserveUnknownFields"`
}

// CustomResourceDefinitionVersion is one version.
type CustomResourceDefinitionVersion struct {
	Name                     string                           `json:"name" protobuf:"bytes,1,opt,name=name"`
	Served                   bool                             `json:"served" protobuf:"varint,2,opt,name=served"`
	Storage                  bool                             `json:"storage" protobuf:"varint,3,opt,name=storage"`
	Deprecated               bool                             `json:"deprecated,omitempty" protobuf:"varint,7,opt,name=deprecated"`
	DeprecationWarning       *string                          `json:"deprecationWarning,omitempty" protobuf:"bytes,8,opt,name=deprecationWarning"`
	Schema                   *CustomResourceValidation        `json:"schema,omitempty" protobuf:"bytes,4,opt,name=schema"`
	Subresources             *v1.CustomResourceSubresources   `json:"subresources,omitempty" protobuf:"bytes,5,opt,name=subresources"`
	AdditionalPrinterColumns []CustomResourceColumnDefinition `json:"additionalPrinterColumns,omitempty" protobuf:"bytes,6,rep,name=additionalPrinterColumns"`
	SelectableFields         []v1.SelectableField             `json:"selectableFields,omitempty" protobuf:"bytes,9,rep,name=selectableFields"`
}

// CustomResourceColumnDefinition is a column. The JSON name of its path differs from v1.
type CustomResourceColumnDefinition struct {
	Name        string `json:"name" protobuf:"bytes,1,opt,name=name"`
	Type        string `json:"type" protobuf:"bytes,2,opt,name=type"`
	Format      string `json:"format,omitempty" protobuf:"bytes,3,opt,name=format"`
	Description string `json:"description,omitempty" protobuf:"bytes,4,opt,name=description"`
	Priority    int32  `json:"priority,omitempty" protobuf:"bytes,5,opt,name=priority"`
	JSONPath    string `json:"JSONPath" protobuf:"bytes,6,opt,name=JSONPath"`
}

// CustomResourceConversion defines how objects are converted.
type CustomResourceConversion struct {
	Strategy                 v1.ConversionStrategyType `json:"strategy" protobuf:"bytes,1,name=strategy"`
	WebhookClientConfig      *v1.WebhookClientConfig   `json:"webhookClientConfig,omitempty" protobuf:"bytes,2,name=webhookClientConfig"`
	ConversionReviewVersions []string                  `json:"conversionReviewVersions,omitempty" protobuf:"bytes,3,rep,name=conversionReviewVersions"`
}

// AddToScheme registers the type in a scheme.
func AddToScheme(s *runtime.Scheme) error {
	s.AddKnownTypes(SchemeGroupVersion, &CustomResourceDefinition{})
	return nil
}

// ProtoMessage and the methods below make the type a protobuf message.
func (*CustomResourceDefinition) ProtoMessage() {}

// Reset clears the object.
func (c *CustomResourceDefinition) Reset() { *c = CustomResourceDefinition{} }

// String returns the name, for messages.
func (c *CustomResourceDefinition) String() string { return c.Name }

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
