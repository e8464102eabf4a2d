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

func limitRangeRules(at validate.At, l *corev1.LimitRange) {
	types := validate.Set[corev1.LimitType]{}
	validate.Each(at.Child("spec"), "limits", l.Spec.Limits, func(at validate.At, item *corev1.LimitRangeItem) {
		limitTypeRules(at, string(item.Type))
		validate.Unique(at, "type", item.Type, types)
		limitItemRules(at, item)
	})
}

func limitTypeRules(at validate.At, name string) {
	before := at.Found()
	at.Text("type", name, validate.QualifiedName)
	switch corev1.LimitType(name) {
	case corev1.LimitTypePod, corev1.LimitTypeContainer, corev1.LimitTypePersistentVolumeClaim:
		return
	}
	if at.Found() == before && !strings.Contains(name, "/") {
		at.Invalid("type", name, "must be a standard limit type or fully qualified")
	}
}

// limitItemRules validates the resource names of an item, and its lists against each other. Pods
// have no defaults.
func limitItemRules(at validate.At, item *corev1.LimitRangeItem) {
	const notForPods = "may not be specified when `type` is 'Pod'"
	resources := validate.Set[corev1.ResourceName]{}
	names := func(list string, quantities corev1.ResourceList) {
		validate.EachQuantity(at, list, quantities, func(at validate.At, name corev1.ResourceName, _ validate.Quantity) {
			resources.Add(name)
			if item.Type == corev1.LimitTypePod || item.Type == corev1.LimitTypeContainer {
				podspec.ContainerResourceName(at, name)
			} else {
				podspec.ResourceName(at, name)
			}
		})
	}
	names("max", item.Max)
	names("min", item.Min)
	if item.Type == corev1.LimitTypePod {
		at.Absent("default", len(item.Default) > 0, notForPods)
		at.Absent("defaultRequest", len(item.DefaultRequest) > 0, notForPods)
	} else {
		names("default", item.Default)
		names("defaultRequest", item.DefaultRequest)
	}
	if item.Type == corev1.LimitTypePersistentVolumeClaim {
		_, least := item.Min[corev1.ResourceStorage]
		_, most := item.Max[corev1.ResourceStorage]
		if !least && !most {
			at.Required("limits", "either minimum or maximum storage value is required, but neither was provided")
		}
	}
	names("maxLimitRequestRatio", item.MaxLimitRequestRatio)
	for _, name := range slices.Sorted(maps.Keys(resources)) {
		limitOrderRules(at, item, name)
	}
}

// limitOrderRules requires minimum, default and maximum of a resource to be in ascending order.
func limitOrderRules(at validate.At, item *corev1.LimitRangeItem, name corev1.ResourceName) {
	least, hasLeast := item.Min[name]
	most, hasMost := item.Max[name]
	limit, hasLimit := item.Default[name]
	request, hasRequest := item.DefaultRequest[name]
	if item.Type == corev1.LimitTypePod {
		hasLimit, hasRequest = false, false
	}
	above := func(list string, shown, a, b resource.Quantity, words string) {
		if a.Cmp(b) > 0 {
			at.Key(list, string(name)).Invalid("", shown, fmt.Sprintf(words, a.String(), b.String()))
		}
	}
	if hasLeast && hasMost {
		above("min", least, least, most, "min value %s is greater than max value %s")
	}
	if hasRequest && hasLeast {
		above("defaultRequest", request, least, request, "min value %s is greater than default request value %s")
	}
	if hasRequest && hasMost {
		above("defaultRequest", request, request, most, "default request value %s is greater than max value %s")
	}
	if hasRequest && hasLimit {
		above("defaultRequest", request, request, limit, "default request value %s is greater than default limit value %s")
	}
	if hasLimit && hasLeast {
		above("default", least, least, limit, "min value %s is greater than default value %s")
	}
	if hasLimit && hasMost {
		above("default", most, limit, most, "default value %s is greater than max value %s")
	}
	if ratio, ok := item.MaxLimitRequestRatio[name]; ok {
		place := at.Key("maxLimitRequestRatio", string(name))
		if ratio.Cmp(*resource.NewQuantity(1, resource.DecimalSI)) < 0 {
			place.Invalid("", ratio, fmt.Sprintf("ratio %s is less than 1", ratio.String()))
		}
		if hasLeast && hasMost {
			if bound := quotient(most, least); ratio.AsApproximateFloat64() > bound {
				place.Invalid("", ratio, fmt.Sprintf("ratio %s is greater than max/min = %f", ratio.String(), bound))
			}
		}
	}
	if hasLimit && hasRequest && !podspec.Overcommits(name) && limit.Cmp(request) != 0 {
		at.Key("defaultRequest", string(name)).Invalid("", request,
			fmt.Sprintf("default value %s must equal to defaultRequest value %s in %s", limit.String(), request.String(), name))
	}
}

// quotient returns the quotient of two quantities, which is infinite if the second is zero.
func quotient(a, b resource.Quantity) float64 {
	return a.AsApproximateFloat64() / b.AsApproximateFloat64()
}
