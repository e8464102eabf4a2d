package v1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
)

// CustomResourceDefinition declares a resource that is served like the built-in ones. Its name is
// plural.group.
type CustomResourceDefinition struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty" protobuf:"bytes,1,opt,name=metadata"`

	Spec   CustomResourceDefinitionSpec   `json:"spec" protobuf:"bytes,2,opt,name=spec"`
	Status CustomResourceDefinitionStatus `json:"status,omitempty" protobuf:"bytes,3,opt,name=status"`
}

// CustomResourceDefinitionList is a list of definitions.
type CustomResourceDefinitionList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty" protobuf:"bytes,1,opt,name=metadata"`

	Items []CustomResourceDefinition `json:"items" protobuf:"bytes,2,rep,name=items"`
}

// CustomResourceDefinitionSpec is the desired resource.
type CustomResourceDefinitionSpec struct {
	Group                 string                            `json:"group" protobuf:"bytes,1,opt,name=group"`
	Names                 CustomResourceDefinitionNames     `json:"names" protobuf:"bytes,3,opt,name=names"`
	Scope                 ResourceScope                     `json:"scope" protobuf:"bytes,4,opt,name=scope,casttype=ResourceScope"`
	Versions              []CustomResourceDefinitionVersion `json:"versions" protobuf:"bytes,7,rep,name=versions" listType:"atomic"`
	Conversion            *CustomResourceConversion         `json:"conversion,omitempty" protobuf:"bytes,9,opt,name=conversion"`
	PreserveUnknownFields bool                              `json:"preserveUnknownFields,omitempty" protobuf:"varint,10,opt,name=preserveUnknownFields"`
}

// ResourceScope is the scope of objects.
type ResourceScope string

// The scopes.
const (
	ClusterScoped   ResourceScope = "Cluster"
	NamespaceScoped ResourceScope = "Namespaced"
)

// CustomResourceDefinitionNames holds the names of the resource in paths, in objects and on command
// lines.
type CustomResourceDefinitionNames struct {
	Plural     string   `json:"plural" protobuf:"bytes,1,opt,name=plural"`
	Singular   string   `json:"singular,omitempty" protobuf:"bytes,2,opt,name=singular"`
	ShortNames []string `json:"shortNames,omitempty" protobuf:"bytes,3,opt,name=shortNames" listType:"atomic"`
	Kind       string   `json:"kind" protobuf:"bytes,4,opt,name=kind"`
	ListKind   string   `json:"listKind,omitempty" protobuf:"bytes,5,opt,name=listKind"`
	Categories []string `json:"categories,omitempty" protobuf:"bytes,6,rep,name=categories" listType:"atomic"`
}

// CustomResourceDefinitionVersion is one version of the resource.
type CustomResourceDefinitionVersion struct {
	Name                     string                           `json:"name" protobuf:"bytes,1,opt,name=name"`
	Served                   bool                             `json:"served" protobuf:"varint,2,opt,name=served"`
	Storage                  bool                             `json:"storage" protobuf:"varint,3,opt,name=storage"`
	Deprecated               bool                             `json:"deprecated,omitempty" protobuf:"varint,7,opt,name=deprecated"`
	DeprecationWarning       *string                          `json:"deprecationWarning,omitempty" protobuf:"bytes,8,opt,name=deprecationWarning"`
	Schema                   *CustomResourceValidation        `json:"schema,omitempty" protobuf:"bytes,4,opt,name=schema"`
	Subresources             *CustomResourceSubresources      `json:"subresources,omitempty" protobuf:"bytes,5,opt,name=subresources"`
	AdditionalPrinterColumns []CustomResourceColumnDefinition `json:"additionalPrinterColumns,omitempty" protobuf:"bytes,6,rep,name=additionalPrinterColumns" listType:"atomic"`
	SelectableFields         []SelectableField                `json:"selectableFields,omitempty" protobuf:"bytes,9,rep,name=selectableFields" listType:"atomic"`
}

// CustomResourceValidation holds the schema of a version.
type CustomResourceValidation struct {
	OpenAPIV3Schema *JSONSchemaProps `json:"openAPIV3Schema,omitempty" protobuf:"bytes,1,opt,name=openAPIV3Schema"`
}

// CustomResourceSubresources are the sub-resources of a version.
type CustomResourceSubresources struct {
	Status *CustomResourceSubresourceStatus `json:"status,omitempty" protobuf:"bytes,1,opt,name=status"`
	Scale  *CustomResourceSubresourceScale  `json:"scale,omitempty" protobuf:"bytes,2,opt,name=scale"`
}

// CustomResourceSubresourceStatus enables the status subresource.
type CustomResourceSubresourceStatus struct{}

// CustomResourceSubresourceScale enables the scale subresource.
type CustomResourceSubresourceScale struct {
	SpecReplicasPath   string  `json:"specReplicasPath" protobuf:"bytes,1,name=specReplicasPath"`
	StatusReplicasPath string  `json:"statusReplicasPath" protobuf:"bytes,2,opt,name=statusReplicasPath"`
	LabelSelectorPath  *string `json:"labelSelectorPath,omitempty" protobuf:"bytes,3,opt,name=labelSelectorPath"`
}

// CustomResourceColumnDefinition is a column of the Table representation.
type CustomResourceColumnDefinition struct {
	Name        string `json:"name" protobuf:"bytes,1,opt,name=name"`
	Type        string `json:"type" protobuf:"bytes,2,opt,name=type"`
	Format      string `json:"format,omitempty" protobuf:"bytes,3,opt,name=format"`
	Description string `json:"description,omitempty" protobuf:"bytes,4,opt,name=description"`
	Priority    int32  `json:"priority,omitempty" protobuf:"bytes,5,opt,name=priority"`
	JSONPath    string `json:"jsonPath" protobuf:"bytes,6,opt,name=jsonPath"`
}

// SelectableField is a field that field selectors may name.
type SelectableField struct {
	JSONPath string `json:"jsonPath" protobuf:"bytes,1,opt,name=jsonPath"`
}

// CustomResourceConversion defines how objects are converted between versions.
type CustomResourceConversion struct {
	Strategy ConversionStrategyType `json:"strategy" protobuf:"bytes,1,name=strategy"`
	Webhook  *WebhookConversion     `json:"webhook,omitempty" protobuf:"bytes,2,opt,name=webhook"`
}

// ConversionStrategyType names a conversion strategy.
type ConversionStrategyType string

// Conversion strategies: change only the apiVersion, or call a webhook.
const (
	NoneConverter    ConversionStrategyType = "None"
	WebhookConverter ConversionStrategyType = "Webhook"
)

// WebhookConversion defines the webhook that converts objects.
type WebhookConversion struct {
	ClientConfig             *WebhookClientConfig `json:"clientConfig,omitempty" protobuf:"bytes,2,name=clientConfig"`
	ConversionReviewVersions []string             `json:"conversionReviewVersions" protobuf:"bytes,3,rep,name=conversionReviewVersions" listType:"atomic"`
}

// WebhookClientConfig locates a webhook. Either URL or Service is set.
type WebhookClientConfig struct {
	URL      *string           `json:"url,omitempty" protobuf:"bytes,3,opt,name=url"`
	Service  *ServiceReference `json:"service,omitempty" protobuf:"bytes,1,opt,name=service"`
	CABundle []byte            `json:"caBundle,omitempty" protobuf:"bytes,2,opt,name=caBundle"`
}

// ServiceReference names a service and a path on it.
type ServiceReference struct {
	Namespace string  `json:"namespace" protobuf:"bytes,1,opt,name=namespace"`
	Name      string  `json:"name" protobuf:"bytes,2,opt,name=name"`
	Path      *string `json:"path,omitempty" protobuf:"bytes,3,opt,name=path"`
	Port      *int32  `json:"port,omitempty" protobuf:"varint,4,opt,name=port"`
}

// CustomResourceDefinitionStatus is the observed state of a definition.
type CustomResourceDefinitionStatus struct {
	// +optional
	Conditions []CustomResourceDefinitionCondition `json:"conditions" protobuf:"bytes,1,opt,name=conditions" listType:"map" listMapKey:"type"`
	// +optional
	AcceptedNames CustomResourceDefinitionNames `json:"acceptedNames" protobuf:"bytes,2,opt,name=acceptedNames"`
	// +optional
	StoredVersions []string `json:"storedVersions" protobuf:"bytes,3,rep,name=storedVersions" listType:"atomic"`
}

// CustomResourceDefinitionCondition is one condition of a definition.
type CustomResourceDefinitionCondition struct {
	Type               CustomResourceDefinitionConditionType `json:"type" protobuf:"bytes,1,opt,name=type,casttype=CustomResourceDefinitionConditionType"`
	Status             ConditionStatus                       `json:"status" protobuf:"bytes,2,opt,name=status,casttype=ConditionStatus"`
	LastTransitionTime metav1.Time                           `json:"lastTransitionTime,omitempty" protobuf:"bytes,3,opt,name=lastTransitionTime"`
	Reason             string                                `json:"reason,omitempty" protobuf:"bytes,4,opt,name=reason"`
	Message            string                                `json:"message,omitempty" protobuf:"bytes,5,opt,name=message"`
}

// CustomResourceDefinitionConditionType names a condition.
type CustomResourceDefinitionConditionType string

// The conditions.
const (
	// Established: the resource is served.
	Established CustomResourceDefinitionConditionType = "Established"
	// NamesAccepted: the names conflict with no other resource.
	NamesAccepted CustomResourceDefinitionConditionType = "NamesAccepted"
	// NonStructuralSchema: a schema violates the rules of structural schemas.
	NonStructuralSchema CustomResourceDefinitionConditionType = "NonStructuralSchema"
	// Terminating: the definition and its objects are being deleted.
	Terminating CustomResourceDefinitionConditionType = "Terminating"
	// KubernetesAPIApprovalPolicyConformant: a definition in a protected group
	// has a valid approval.
	KubernetesAPIApprovalPolicyConformant CustomResourceDefinitionConditionType = "KubernetesAPIApprovalPolicyConformant"
)

// ConditionStatus is True, False or Unknown.
type ConditionStatus string

// The values of a condition.
const (
	ConditionTrue    ConditionStatus = "True"
	ConditionFalse   ConditionStatus = "False"
	ConditionUnknown ConditionStatus = "Unknown"
)

const (
	// CustomResourceCleanupFinalizer keeps a definition until its objects are gone.
	CustomResourceCleanupFinalizer = "customresourcecleanup.apiextensions.k8s.io"
	// KubeAPIApprovedAnnotation approves a definition in a protected group. Its value is the URL of
	// the approval, or starts with "unapproved".
	KubeAPIApprovedAnnotation = "api-approved.kubernetes.io"
)

// ConversionReview is the request to a conversion webhook and its response.
type ConversionReview struct {
	metav1.TypeMeta `json:",inline"`

	Request  *ConversionRequest  `json:"request,omitempty" protobuf:"bytes,1,opt,name=request"`
	Response *ConversionResponse `json:"response,omitempty" protobuf:"bytes,2,opt,name=response"`
}

// ConversionRequest requests the conversion of objects.
type ConversionRequest struct {
	UID               types.UID              `json:"uid" protobuf:"bytes,1,name=uid"`
	DesiredAPIVersion string                 `json:"desiredAPIVersion" protobuf:"bytes,2,name=desiredAPIVersion"`
	Objects           []runtime.RawExtension `json:"objects" protobuf:"bytes,3,rep,name=objects" listType:"atomic"`
}

// ConversionResponse holds the converted objects in the order of the request.
type ConversionResponse struct {
	UID              types.UID              `json:"uid" protobuf:"bytes,1,name=uid"`
	ConvertedObjects []runtime.RawExtension `json:"convertedObjects" protobuf:"bytes,2,rep,name=convertedObjects" listType:"atomic"`
	Result           metav1.Status          `json:"result" protobuf:"bytes,3,name=result"`
}
