package v1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// APIService defines the server of a group version. Its name is version.group.
type APIService struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty" protobuf:"bytes,1,opt,name=metadata"`

	Spec   APIServiceSpec   `json:"spec,omitempty" protobuf:"bytes,2,opt,name=spec"`
	Status APIServiceStatus `json:"status,omitempty" protobuf:"bytes,3,opt,name=status"`
}

// APIServiceList is a list of APIServices.
type APIServiceList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty" protobuf:"bytes,1,opt,name=metadata"`

	Items []APIService `json:"items" protobuf:"bytes,2,rep,name=items"`
}

// APIServiceSpec locates the server and ranks its group and version in discovery. Without a
// service, this server serves the group version itself.
type APIServiceSpec struct {
	Service               *ServiceReference `json:"service,omitempty" protobuf:"bytes,1,opt,name=service"`
	Group                 string            `json:"group,omitempty" protobuf:"bytes,2,opt,name=group"`
	Version               string            `json:"version,omitempty" protobuf:"bytes,3,opt,name=version"`
	InsecureSkipTLSVerify bool              `json:"insecureSkipTLSVerify,omitempty" protobuf:"varint,4,opt,name=insecureSkipTLSVerify"`
	CABundle              []byte            `json:"caBundle,omitempty" protobuf:"bytes,5,opt,name=caBundle" listType:"atomic"`
	GroupPriorityMinimum  int32             `json:"groupPriorityMinimum" protobuf:"varint,7,opt,name=groupPriorityMinimum"`
	VersionPriority       int32             `json:"versionPriority" protobuf:"varint,8,opt,name=versionPriority"`
}

// ServiceReference names a service.
type ServiceReference struct {
	Namespace string `json:"namespace,omitempty" protobuf:"bytes,1,opt,name=namespace"`
	Name      string `json:"name,omitempty" protobuf:"bytes,2,opt,name=name"`
	Port      *int32 `json:"port,omitempty" protobuf:"varint,3,opt,name=port"`
}

// APIServiceStatus is the observed state of the server.
type APIServiceStatus struct {
	Conditions []APIServiceCondition `json:"conditions,omitempty" patchStrategy:"merge" patchMergeKey:"type" protobuf:"bytes,1,rep,name=conditions" listType:"map" listMapKey:"type"`
}

// APIServiceCondition is one condition of the server.
type APIServiceCondition struct {
	Type               APIServiceConditionType `json:"type" protobuf:"bytes,1,opt,name=type,casttype=APIServiceConditionType"`
	Status             ConditionStatus         `json:"status" protobuf:"bytes,2,opt,name=status,casttype=ConditionStatus"`
	LastTransitionTime metav1.Time             `json:"lastTransitionTime,omitempty" protobuf:"bytes,3,opt,name=lastTransitionTime"`
	Reason             string                  `json:"reason,omitempty" protobuf:"bytes,4,opt,name=reason"`
	Message            string                  `json:"message,omitempty" protobuf:"bytes,5,opt,name=message"`
}

// APIServiceConditionType names a condition.
type APIServiceConditionType string

// Available: the server is reachable and responds.
const Available APIServiceConditionType = "Available"

// ConditionStatus is True, False or Unknown.
type ConditionStatus string

// The values of a condition.
const (
	ConditionTrue    ConditionStatus = "True"
	ConditionFalse   ConditionStatus = "False"
	ConditionUnknown ConditionStatus = "Unknown"
)
