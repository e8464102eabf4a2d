package apiregistration

import (
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"

	v1 "binnacle/services/apiserver/internal/apis/apiregistration/v1"
	"binnacle/services/apiserver/internal/registry"
	"binnacle/services/apiserver/internal/registry/columns"
	"binnacle/services/apiserver/internal/registry/meta"
)

// Kinds of the group.
func Kinds() []*registry.Kind {
	return []*registry.Kind{apiServices()}
}

func apiServices() *registry.Kind {
	return &registry.Kind{
		Group: v1.GroupName, Version: "v1",
		Resource: "apiservices", Singular: "apiservice", Kind: "APIService",
		Categories: []string{"api-extensions"},
		New:        func() runtime.Object { return &v1.APIService{} },
		NewList:    func() runtime.Object { return &v1.APIServiceList{} },
		Stored:     registry.Stored{Prefix: "apiregistration.k8s.io/apiservices", JSON: true},
		// The core group's is "v1.".
		ValidateName:       meta.PathSegment,
		UpdateNeedsVersion: true,
		// A local APIService is available from the start, which is its status.
		KeepStatus: true,
		Default: func(o registry.Object) {
			if a, ok := o.(*v1.APIService); ok && a.Spec.Service != nil && a.Spec.Service.Port == nil {
				a.Spec.Service.Port = ptr.To[int32](443)
			}
		},
		PrepareCreate: func(o registry.Object) {
			if a, ok := o.(*v1.APIService); ok {
				a.Status = v1.APIServiceStatus{}
				if a.Spec.Service == nil {
					a.Status.Conditions = []v1.APIServiceCondition{LocalAvailable()}
				}
			}
		},
		Columns: []registry.Column{
			columns.Name(),
			columns.Text("Service", "The reference to the service that hosts this API endpoint.", service),
			columns.Text("Available", "Whether this service is available.", available),
			columns.Age(),
		},
		Subresources: []registry.Subresource{{
			Name: "status", GVK: schema.GroupVersionKind{Kind: "APIService"},
			Verbs:  []string{"get", "patch", "update"},
			Resets: []string{"metadata", "spec"},
		}},
	}
}

// LocalAvailable is the condition of an APIService that this server answers.
func LocalAvailable() v1.APIServiceCondition {
	return v1.APIServiceCondition{
		Type: v1.Available, Status: v1.ConditionTrue, LastTransitionTime: metav1.Now(),
		Reason: "Local", Message: "Local APIServices are always available",
	}
}

func service(a *v1.APIService) string {
	if s := a.Spec.Service; s != nil {
		return s.Namespace + "/" + s.Name
	}
	return "Local"
}

func available(a *v1.APIService) string {
	for _, c := range a.Status.Conditions {
		if c.Type != v1.Available {
			continue
		}
		if c.Status == v1.ConditionTrue {
			return string(c.Status)
		}
		return fmt.Sprintf("%s (%s)", c.Status, c.Reason)
	}
	return string(v1.ConditionUnknown)
}
