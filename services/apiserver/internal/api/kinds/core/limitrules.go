package core

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"binnacle/services/apiserver/internal/api/kinds/podspec"
	"binnacle/services/apiserver/internal/registry/validate"
)

// validateLimitRange requires distinct types of valid items.
func validateLimitRange(fld validate.Field, l *corev1.LimitRange) {
	types := validate.Set[corev1.LimitType]{}
	validate.Each(fld.Child("spec"), "limits", l.Spec.Limits, func(fld validate.Field, item *corev1.LimitRangeItem) {
		validateLimitType(fld, string(item.Type))
		validate.Unique(fld, "type", item.Type, types)
		validateLimitItem(fld, item)
	})
}

// validateLimitType requires a standard type, or one with a domain.
func validateLimitType(fld validate.Field, name string) {
	before := fld.ErrorCount()
	fld.CheckText("type", name, validate.QualifiedName)
	switch corev1.LimitType(name) {
	case corev1.LimitTypePod, corev1.LimitTypeContainer, corev1.LimitTypePersistentVolumeClaim:
		return
	}
	if fld.ErrorCount() == before && !strings.Contains(name, "/") {
		fld.Invalid("type", name, "must be a standard limit type or fully qualified")
	}
}

// validateLimitItem validates the resource names of an item, and its lists against each other. Pods
// have no defaults.
func validateLimitItem(fld validate.Field, item *corev1.LimitRangeItem) {
	const notForPods = "may not be specified when `type` is 'Pod'"
	resources := validate.Set[corev1.ResourceName]{}
	validateNames := func(list string, quantities corev1.ResourceList) {
		validate.EachQuantity(fld, list, quantities, func(fld validate.Field, name corev1.ResourceName, _ validate.Quantity) {
			resources.Add(name)
			if item.Type == corev1.LimitTypePod || item.Type == corev1.LimitTypeContainer {
				podspec.ValidateContainerResourceName(fld, name)
			} else {
				podspec.ValidateResourceName(fld, name)
			}
		})
	}
	validateNames("max", item.Max)
	validateNames("min", item.Min)
	if item.Type == corev1.LimitTypePod {
		fld.ForbidSet("default", len(item.Default) > 0, notForPods)
		fld.ForbidSet("defaultRequest", len(item.DefaultRequest) > 0, notForPods)
	} else {
		validateNames("default", item.Default)
		validateNames("defaultRequest", item.DefaultRequest)
	}
	if item.Type == corev1.LimitTypePersistentVolumeClaim {
		_, hasMin := item.Min[corev1.ResourceStorage]
		_, hasMax := item.Max[corev1.ResourceStorage]
		if !hasMin && !hasMax {
			fld.Required("limits", "either minimum or maximum storage value is required, but neither was provided")
		}
	}
	validateNames("maxLimitRequestRatio", item.MaxLimitRequestRatio)
	for _, name := range slices.Sorted(maps.Keys(resources)) {
		validateLimitOrder(fld, item, name)
	}
}

// validateLimitOrder requires minimum, default and maximum of a resource to be in ascending order.
func validateLimitOrder(fld validate.Field, item *corev1.LimitRangeItem, name corev1.ResourceName) {
	minimum, hasMin := item.Min[name]
	maximum, hasMax := item.Max[name]
	limit, hasLimit := item.Default[name]
	request, hasRequest := item.DefaultRequest[name]
	if item.Type == corev1.LimitTypePod {
		hasLimit, hasRequest = false, false
	}
	// requireOrder requires low to be at most high. reported is the value in the error.
	requireOrder := func(list string, reported, low, high resource.Quantity, format string) {
		if low.Cmp(high) > 0 {
			fld.Key(list, string(name)).Invalid("", reported, fmt.Sprintf(format, low.String(), high.String()))
		}
	}
	if hasMin && hasMax {
		requireOrder("min", minimum, minimum, maximum, "min value %s is greater than max value %s")
	}
	if hasRequest && hasMin {
		requireOrder("defaultRequest", request, minimum, request, "min value %s is greater than default request value %s")
	}
	if hasRequest && hasMax {
		requireOrder("defaultRequest", request, request, maximum, "default request value %s is greater than max value %s")
	}
	if hasRequest && hasLimit {
		requireOrder("defaultRequest", request, request, limit, "default request value %s is greater than default limit value %s")
	}
	if hasLimit && hasMin {
		requireOrder("default", minimum, minimum, limit, "min value %s is greater than default value %s")
	}
	if hasLimit && hasMax {
		requireOrder("default", maximum, limit, maximum, "default value %s is greater than max value %s")
	}
	if ratio, ok := item.MaxLimitRequestRatio[name]; ok {
		path := fld.Key("maxLimitRequestRatio", string(name))
		if ratio.Cmp(*resource.NewQuantity(1, resource.DecimalSI)) < 0 {
			path.Invalid("", ratio, fmt.Sprintf("ratio %s is less than 1", ratio.String()))
		}
		if hasMin && hasMax {
			if bound := maximum.AsApproximateFloat64() / minimum.AsApproximateFloat64(); ratio.AsApproximateFloat64() > bound {
				path.Invalid("", ratio, fmt.Sprintf("ratio %s is greater than max/min = %f", ratio.String(), bound))
			}
		}
	}
	if hasLimit && hasRequest && !podspec.CanOvercommit(name) && limit.Cmp(request) != 0 {
		fld.Key("defaultRequest", string(name)).Invalid("", request,
			fmt.Sprintf("default value %s must equal to defaultRequest value %s in %s", limit.String(), request.String(), name))
	}
}
