package apiextensions

import (
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"

	"binnacle/libs/features"
	"binnacle/services/apiserver/internal/crd/definition"
	"binnacle/services/apiserver/internal/crd/rules"
	"binnacle/services/apiserver/internal/registry"
	v1 "binnacle/services/apiserver/internal/registry/apis/apiextensions/v1"
	"binnacle/services/apiserver/internal/registry/apis/apiextensions/v1beta1"
	"binnacle/services/apiserver/internal/registry/declare"
)

// Kinds returns the kinds of the group.
func Kinds(s registry.Settings) []*registry.Kind {
	compiler := rules.NewCompiler()
	g := gates{ratcheting: s.Enabled(features.CRDValidationRatcheting), fields: s.Enabled(features.CustomResourceFieldSelectors)}
	compiler.NoRatcheting = !g.ratcheting
	return []*registry.Kind{customResourceDefinitions(&checker{cel: compiler}, g)}
}

// customResourceDefinitions declares the cluster-scoped kind CustomResourceDefinition.
func customResourceDefinitions(check *checker, enabled gates) *registry.Kind {
	return declare.Kind[v1.CustomResourceDefinition, v1.CustomResourceDefinitionList](&registry.Kind{
		Names: registry.Names{
			Group:                      v1.GroupName,
			Version:                    "v1",
			Resource:                   "customresourcedefinitions",
			Kind:                       "CustomResourceDefinition",
			ShortNames:                 []string{"crd", "crds"},
			Categories:                 []string{"api-extensions"},
			AllowUnqualifiedFinalizers: true,
			ValidateObjectName: func(o registry.Object, name string, prefix bool) []string {
				return validateDefinitionName(o.(*v1.CustomResourceDefinition), name, prefix)
			},
		},
		Parts: declare.SpecStatusAccessors(func(d *v1.CustomResourceDefinition) (*v1.CustomResourceDefinitionSpec, *v1.CustomResourceDefinitionStatus) {
			return &d.Spec, &d.Status
		}),
		Stored:  stored(),
		Default: declare.Adapt(defaultDefinition),
		Create: registry.Create{
			// The stored versions, which are part of the status, follow from the spec.
			KeepStatus: true,
			Prepare: declare.Adapt(func(d *v1.CustomResourceDefinition) {
				enabled.drop(&d.Spec, nil)
				d.Status = v1.CustomResourceDefinitionStatus{}
				recordStorageVersion(d)
			}),
			Validate: declare.AdaptResult(check.validateCreate),
		},
		Update: registry.Update{
			Generation:             true,
			RequireResourceVersion: true,
			Prepare: declare.AdaptUpdate(func(d, old *v1.CustomResourceDefinition) {
				enabled.drop(&d.Spec, &old.Spec)
				d.Status = old.Status
				d.Status.StoredVersions = slices.Clone(old.Status.StoredVersions)
				recordStorageVersion(d)
			}),
			Validate: declare.AdaptUpdateResult(check.validateUpdate),
		},
		Delete: registry.Delete{
			MarkDeletion: func(o registry.Object, now metav1.Time) { definition.Terminate(o.(*v1.CustomResourceDefinition), now) },
		},
		Subresources: []registry.Subresource{status()},
	})
}

// status returns the status subresource. It also accepts metadata, as in Kubernetes.
func status() registry.Subresource {
	subresource := declare.WithoutTable(
		declare.WithResetFields(declare.ValidatedStatus("CustomResourceDefinition", validateStatus), "metadata", "spec"),
	)
	subresource.Prepare = declare.AdaptUpdate(func(d, old *v1.CustomResourceDefinition) { d.Spec = old.Spec })
	return subresource
}

// stored describes the older form, which Kubernetes 1.33 also stores.
func stored() registry.StorageForm {
	return registry.StorageForm{
		Prefix:    "apiextensions.k8s.io/customresourcedefinitions",
		Version:   v1beta1.SchemeGroupVersion,
		JSON:      true,
		LazyField: &registry.LazyField{ToServed: servedText, WithPlaceholders: definition.WithPlaceholders, Decode: readLazily},
		New:       func() runtime.Object { return &v1beta1.CustomResourceDefinition{} },
		ToStored: func(served registry.Object) (registry.Object, error) {
			d, ok := served.(*v1.CustomResourceDefinition)
			if !ok {
				return nil, fmt.Errorf("%T is not a CustomResourceDefinition", served)
			}
			return v1beta1.FromV1(d), nil
		},
		FromStored: func(stored registry.Object) (registry.Object, error) {
			d, ok := stored.(*v1beta1.CustomResourceDefinition)
			if !ok {
				return nil, fmt.Errorf("%T is not a stored CustomResourceDefinition", stored)
			}
			return v1beta1.ToV1(d), nil
		},
	}
}

func defaultDefinition(definition *v1.CustomResourceDefinition) {
	names := &definition.Spec.Names
	if names.Singular == "" {
		names.Singular = strings.ToLower(names.Kind)
	}
	if names.ListKind == "" && names.Kind != "" {
		names.ListKind = names.Kind + "List"
	}
	if definition.Spec.Conversion == nil {
		definition.Spec.Conversion = &v1.CustomResourceConversion{Strategy: v1.NoneConverter}
	}
	w := definition.Spec.Conversion.Webhook
	if w != nil && w.ClientConfig != nil && w.ClientConfig.Service != nil && w.ClientConfig.Service.Port == nil {
		w.ClientConfig.Service.Port = ptr.To[int32](443)
	}
	if len(definition.Status.StoredVersions) == 0 {
		recordStorageVersion(definition)
	}
}

// recordStorageVersion adds the current storage version to the versions that stored objects may
// have.
func recordStorageVersion(definition *v1.CustomResourceDefinition) {
	for _, v := range definition.Spec.Versions {
		if v.Storage {
			if !slices.Contains(definition.Status.StoredVersions, v.Name) {
				definition.Status.StoredVersions = append(definition.Status.StoredVersions, v.Name)
			}
			return
		}
	}
}
