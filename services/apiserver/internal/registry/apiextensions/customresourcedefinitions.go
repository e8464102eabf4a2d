package apiextensions

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"

	v1 "binnacle/services/apiserver/internal/apis/apiextensions/v1"
	"binnacle/services/apiserver/internal/apis/apiextensions/v1beta1"
	"binnacle/services/apiserver/internal/registry"
)

// Kinds of the group.
func Kinds() []*registry.Kind {
	return []*registry.Kind{customResourceDefinitions()}
}

func customResourceDefinitions() *registry.Kind {
	return &registry.Kind{
		Group: v1.GroupName, Version: "v1",
		Resource: "customresourcedefinitions", Singular: "customresourcedefinition", Kind: "CustomResourceDefinition",
		ShortNames:         []string{"crd", "crds"},
		Categories:         []string{"api-extensions"},
		New:                func() runtime.Object { return &v1.CustomResourceDefinition{} },
		NewList:            func() runtime.Object { return &v1.CustomResourceDefinitionList{} },
		Stored:             stored(),
		Generation:         true,
		UpdateNeedsVersion: true,
		// The stored versions, which are status, follow from the spec.
		KeepStatus: true,
		Default:    on(defaultDefinition),
		PrepareCreate: on(func(d *v1.CustomResourceDefinition) {
			d.Status = v1.CustomResourceDefinitionStatus{}
			recordStorageVersion(d)
		}),
		PrepareUpdate: func(obj, old registry.Object) {
			d, ok1 := obj.(*v1.CustomResourceDefinition)
			o, ok2 := old.(*v1.CustomResourceDefinition)
			if ok1 && ok2 {
				d.Status = o.Status
				d.Status.StoredVersions = slices.Clone(o.Status.StoredVersions)
				recordStorageVersion(d)
			}
		},
		Subresources: []registry.Subresource{{
			Name: "status", GVK: schema.GroupVersionKind{Kind: "CustomResourceDefinition"},
			Verbs:  []string{"get", "patch", "update"},
			Resets: []string{"metadata", "spec"},
		}},
	}
}

// stored is the older form, which Kubernetes 1.33 writes too.
func stored() registry.Stored {
	return registry.Stored{
		Prefix:  "apiextensions.k8s.io/customresourcedefinitions",
		Version: v1beta1.SchemeGroupVersion,
		JSON:    true,
		New:     func() runtime.Object { return &v1beta1.CustomResourceDefinition{} },
		To: func(served registry.Object) (registry.Object, error) {
			d, ok := served.(*v1.CustomResourceDefinition)
			if !ok {
				return nil, fmt.Errorf("%T is no definition", served)
			}
			return v1beta1.FromV1(d), nil
		},
		From: func(stored registry.Object) (registry.Object, error) {
			d, ok := stored.(*v1beta1.CustomResourceDefinition)
			if !ok {
				return nil, fmt.Errorf("%T is no stored definition", stored)
			}
			return v1beta1.ToV1(d), nil
		},
	}
}

func on(f func(*v1.CustomResourceDefinition)) func(registry.Object) {
	return func(o registry.Object) {
		if d, ok := o.(*v1.CustomResourceDefinition); ok {
			f(d)
		}
	}
}

func defaultDefinition(d *v1.CustomResourceDefinition) {
	names := &d.Spec.Names
	if names.Singular == "" {
		names.Singular = strings.ToLower(names.Kind)
	}
	if names.ListKind == "" && names.Kind != "" {
		names.ListKind = names.Kind + "List"
	}
	if d.Spec.Conversion == nil {
		d.Spec.Conversion = &v1.CustomResourceConversion{Strategy: v1.NoneConverter}
	}
	if w := d.Spec.Conversion.Webhook; w != nil && w.ClientConfig != nil && w.ClientConfig.Service != nil && w.ClientConfig.Service.Port == nil {
		w.ClientConfig.Service.Port = ptr.To[int32](443)
	}
	if len(d.Status.StoredVersions) == 0 {
		recordStorageVersion(d)
	}
}

// recordStorageVersion notes that objects may be stored in the version that is
// the storage version now.
func recordStorageVersion(d *v1.CustomResourceDefinition) {
	for _, v := range d.Spec.Versions {
		if v.Storage {
			if !slices.Contains(d.Status.StoredVersions, v.Name) {
				d.Status.StoredVersions = append(d.Status.StoredVersions, v.Name)
			}
			return
		}
	}
}
