package policy

import (
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// policyFile is a Policy of audit.k8s.io/v1.
type policyFile struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Rules             []rule   `json:"rules"`
	OmitStages        []string `json:"omitStages,omitempty"`
	OmitManagedFields bool     `json:"omitManagedFields,omitempty"`
}

// rule defines what is recorded of matching requests.
type rule struct {
	Level             string           `json:"level"`
	Users             []string         `json:"users,omitempty"`
	UserGroups        []string         `json:"userGroups,omitempty"`
	Verbs             []string         `json:"verbs,omitempty"`
	Resources         []groupResources `json:"resources,omitempty"`
	Namespaces        []string         `json:"namespaces,omitempty"`
	NonResourceURLs   []string         `json:"nonResourceURLs,omitempty"`
	OmitStages        []string         `json:"omitStages,omitempty"`
	OmitManagedFields *bool            `json:"omitManagedFields,omitempty"`
}

// groupResources selects resources of one API group.
type groupResources struct {
	Group         string   `json:"group,omitempty"`
	Resources     []string `json:"resources,omitempty"`
	ResourceNames []string `json:"resourceNames,omitempty"`
}

// DeepCopyObject implements runtime.Object.
func (f *policyFile) DeepCopyObject() runtime.Object {
	out := *f
	out.ObjectMeta = *f.ObjectMeta.DeepCopy()
	out.Rules = slices.Clone(f.Rules) // the fields of a rule do not change
	out.OmitStages = slices.Clone(f.OmitStages)
	return &out
}
