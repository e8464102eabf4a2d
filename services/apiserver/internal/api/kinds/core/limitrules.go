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

func validateLimitRange(fld validate.Field, l *corev1.LimitRange) {
	types := validate.Set[corev1.LimitType]{}
	validate.Each(fld.Child("spec"), "limits", l.Spec.Limits, func(fld validate.Field, item *corev1.LimitRangeItem) {
		validateLimitType(fld, string(item.Type))
		validate.Unique(fld, "type", item.Type, types)
		validateLimitItem(fld, item)
	})
}

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
	names := func(list string, quantities corev1.ResourceList) {
		validate.EachQuantity(fld, list, quantities, func(fld validate.Field, name corev1.ResourceName, _ validate.Quantity) {
			resources.Add(name)
			if item.Type == corev1.LimitTypePod || item.Type == corev1.LimitTypeContainer {
				podspec.ValidateContainerResourceName(fld, name)
			} else {
				podspec.ValidateResourceName(fld, name)
			}
		})
	}
	names("max", item.Max)
	names("min", item.Min)
	if item.Type == corev1.LimitTypePod {
		fld.ForbidSet("default", len(item.Default) > 0, notForPods)
		fld.ForbidSet("defaultRequest", len(item.DefaultRequest) > 0, notForPods)
	} else {
		names("default", item.Default)
		names("defaultRequest", item.DefaultRequest)
	}
	if item.Type == corev1.LimitTypePersistentVolumeClaim {
		_, least := item.Min[corev1.ResourceStorage]
		_, maximum := item.Max[corev1.ResourceStorage]
		if !least && !maximum {
			fld.Required("limits", "either minimum or maximum storage value is required, but neither was provided")
		}
	}
	names("maxLimitRequestRatio", item.MaxLimitRequestRatio)
	for _, name := range slices.Sorted(maps.Keys(resources)) {
		validateLimitOrder(fld, item, name)
	}
}

// validateLimitOrder requires minimum, default and maximum of a resource to be in ascending order.
func validateLimitOrder(fld validate.Field, item *corev1.LimitRangeItem, name corev1.ResourceName) {
	least, hasLeast := item.Min[name]
	maximum, hasMost := item.Max[name]
	limit, hasLimit := item.Default[name]
	request, hasRequest := item.DefaultRequest[name]
	if item.Type == corev1.LimitTypePod {
		hasLimit, hasRequest = false, false
	}
	above := func(list string, shown, a, b resource.Quantity, words string) {
		if a.Cmp(b) > 0 {
			fld.Key(list, string(name)).Invalid("", shown, fmt.Sprintf(words, a.String(), b.String()))
		}
	}
	if hasLeast && hasMost {
		above("min", least, least, maximum, "min value %s is greater than max value %s")
	}
	if hasRequest && hasLeast {
		above("defaultRequest", request, least, request, "min value %s is greater than default request value %s")
	}
	if hasRequest && hasMost {
		above("defaultRequest", request, request, maximum, "default request value %s is greater than max value %s")
	}
	if hasRequest && hasLimit {
		above("defaultRequest", request, request, limit, "default request value %s is greater than default limit value %s")
	}
	if hasLimit && hasLeast {
		above("default", least, least, limit, "min value %s is greater than default value %s")
	}
	if hasLimit && hasMost {
		above("default", maximum, limit, maximum, "default value %s is greater than max value %s")
	}
	if ratio, ok := item.MaxLimitRequestRatio[name]; ok {
		path := fld.Key("maxLimitRequestRatio", string(name))
		if ratio.Cmp(*resource.NewQuantity(1, resource.DecimalSI)) < 0 {
			path.Invalid("", ratio, fmt.Sprintf("ratio %s is less than 1", ratio.String()))
		}
		if hasLeast && hasMost {
			if bound := quotient(maximum, least); ratio.AsApproximateFloat64() > bound {
				path.Invalid("", ratio, fmt.Sprintf("ratio %s is greater than max/min = %f", ratio.String(), bound))
			}
		}
	}
	if hasLimit && hasRequest && !podspec.CanOvercommit(name) && limit.Cmp(request) != 0 {
		fld.Key("defaultRequest", string(name)).Invalid("", request,
			fmt.Sprintf("default value %s must equal to defaultRequest value %s in %s", limit.String(), request.String(), name))
	}
}

// quotient returns the quotient of two quantities, which is infinite if the second is zero.
func quotient(a, b resource.Quantity) float64 {
	return a.AsApproximateFloat64() / b.AsApproximateFloat64()
}
