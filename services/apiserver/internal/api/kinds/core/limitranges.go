package core

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/uuid"

	"binnacle/services/apiserver/internal/api/kinds/podspec/poddefaults"
	"binnacle/services/apiserver/internal/registry"
	"binnacle/services/apiserver/internal/registry/declare"
	"binnacle/services/apiserver/internal/registry/validate"
)

// limitRanges declares the namespaced kind LimitRange.
func limitRanges() *registry.Kind {
	return declare.Kind[corev1.LimitRange, corev1.LimitRangeList](&registry.Kind{
		Names: registry.Names{
			Version: version, Resource: "limitranges", Kind: "LimitRange",
			ShortNames: []string{"limits"}, Namespaced: true,
		},
		Default: declare.Adapt(defaultLimitRange),
		Create: registry.Create{Prepare: declare.Adapt(func(l *corev1.LimitRange) {
			if l.Name == "" {
				l.Name = string(uuid.NewUUID())
			}
		}), Validate: declare.AdaptValidation(validateLimitRange)},
		Update: registry.Update{
			Order:               registry.Order{registry.MetaRules, registry.UpdateRules},
			AllowCreateOnUpdate: true,
			Validate: declare.AdaptUpdateValidation(
				func(fld validate.Field, l, _ *corev1.LimitRange) { validateLimitRange(fld, l) },
			),
		},
	})
}

// defaultLimitRange sets the missing limits and requests of containers: limits from the maximum,
// requests from the minimum.
func defaultLimitRange(l *corev1.LimitRange) {
	for i := range l.Spec.Limits {
		item := &l.Spec.Limits[i]
		for _, list := range []corev1.ResourceList{item.Max, item.Min, item.Default, item.DefaultRequest, item.MaxLimitRequestRatio} {
			poddefaults.Round(list)
		}
		if item.Type != corev1.LimitTypeContainer {
			continue
		}
		item.Default = withMissingResources(item.Default, item.Max)
		item.DefaultRequest = withMissingResources(item.DefaultRequest, item.Default)
		item.DefaultRequest = withMissingResources(item.DefaultRequest, item.Min)
	}
}

// withMissingResources adds to a list the resources that only the other one has.
func withMissingResources(list, other corev1.ResourceList) corev1.ResourceList {
	if list == nil {
		list = corev1.ResourceList{}
	}
	for name, q := range other {
		if _, ok := list[name]; !ok {
			list[name] = q.DeepCopy()
		}
	}
	return list
}
