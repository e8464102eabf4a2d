package v1beta1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	v1 "binnacle/services/apiserver/internal/apis/apiextensions/v1"
	"binnacle/services/apiserver/internal/apis/apitype"
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

// CustomResourceDefinitionSpec may hold what is the same in all versions at its
// top. Version is the first version's name.
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
	// PreserveUnknownFields is true when it is absent.
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

// CustomResourceColumnDefinition is a column; its path has another JSON name
// than in v1.
type CustomResourceColumnDefinition struct {
	Name        string `json:"name" protobuf:"bytes,1,opt,name=name"`
	Type        string `json:"type" protobuf:"bytes,2,opt,name=type"`
	Format      string `json:"format,omitempty" protobuf:"bytes,3,opt,name=format"`
	Description string `json:"description,omitempty" protobuf:"bytes,4,opt,name=description"`
	Priority    int32  `json:"priority,omitempty" protobuf:"bytes,5,opt,name=priority"`
	JSONPath    string `json:"JSONPath" protobuf:"bytes,6,opt,name=JSONPath"`
}

// CustomResourceConversion says how objects are converted.
type CustomResourceConversion struct {
	Strategy                 v1.ConversionStrategyType `json:"strategy" protobuf:"bytes,1,name=strategy"`
	WebhookClientConfig      *v1.WebhookClientConfig   `json:"webhookClientConfig,omitempty" protobuf:"bytes,2,name=webhookClientConfig"`
	ConversionReviewVersions []string                  `json:"conversionReviewVersions,omitempty" protobuf:"bytes,3,rep,name=conversionReviewVersions"`
}

// AddToScheme makes the type known to a scheme.
func AddToScheme(s *runtime.Scheme) error {
	s.AddKnownTypes(SchemeGroupVersion, &CustomResourceDefinition{})
	return nil
}

// ProtoMessage and the methods below make the type a protobuf message.
func (*CustomResourceDefinition) ProtoMessage() {}

// Reset empties the object.
func (c *CustomResourceDefinition) Reset() { *c = CustomResourceDefinition{} }

// String is for messages.
func (c *CustomResourceDefinition) String() string { return c.Name }

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
