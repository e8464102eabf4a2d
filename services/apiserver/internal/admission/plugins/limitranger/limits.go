package limitranger

import (
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	helpers "k8s.io/component-helpers/resource"
)

// bound is a minimum, a maximum or a maximum ratio for one resource, with the request and the limit
// to check against it.
type bound struct {
	per            string            // type of the limited item, such as Container
	name           string            // of the resource
	enforced       resource.Quantity // the minimum, maximum or ratio
	request, limit resource.Quantity
	hasRequest     bool
	hasLimit       bool
}

// values returns the request, the limit and the bound as integers of a common unit: thousandths if
// all three fit into an int64, otherwise whole units.
func (b *bound) values() (request, limit, enforced int64) {
	if b.request.Value() <= resource.MaxMilliValue && b.limit.Value() <= resource.MaxMilliValue &&
		b.enforced.Value() <= resource.MaxMilliValue {
		return b.request.MilliValue(), b.limit.MilliValue(), b.enforced.MilliValue()
	}
	return b.request.Value(), b.limit.Value(), b.enforced.Value()
}

// usageError returns the error for a request or limit outside the bound. boundType is "minimum" or
// "maximum", subject is "request" or "limit".
func (b *bound) usageError(boundType, subject string, amount *resource.Quantity) error {
	return fmt.Errorf("%s %s usage per %s is %s, but %s is %s", boundType, b.name, b.per, b.enforced.String(), subject, amount.String())
}

// missingError returns the error for a missing request or limit.
func (b *bound) missingError(boundType, subject string) error {
	return fmt.Errorf("%s %s usage per %s is %s.  No %s is specified", boundType, b.name, b.per, b.enforced.String(), subject)
}

// checkMinimum returns an error if the request or the limit is below the minimum. The request is
// required.
func (b *bound) checkMinimum() error {
	request, limit, enforced := b.values()
	switch {
	case !b.hasRequest:
		return b.missingError("minimum", "request")
	case request < enforced:
		return b.usageError("minimum", "request", &b.request)
	case b.hasLimit && limit < enforced:
		return b.usageError("minimum", "limit", &b.limit)
	}
	return nil
}

// checkMaximum returns an error if the request or the limit is above the maximum. The limit is
// required.
func (b *bound) checkMaximum() error {
	request, limit, enforced := b.values()
	switch {
	case !b.hasLimit:
		return b.missingError("maximum", "limit")
	case limit > enforced:
		return b.usageError("maximum", "limit", &b.limit)
	case b.hasRequest && request > enforced:
		return b.usageError("maximum", "request", &b.request)
	}
	return nil
}

// checkMaximumRequest returns an error if the request is above the maximum. It is for objects
// without limits, such as volume claims.
func (b *bound) checkMaximumRequest() error {
	request, _, enforced := b.values()
	switch {
	case !b.hasRequest:
		return b.missingError("maximum", "request")
	case request > enforced:
		return b.usageError("maximum", "request", &b.request)
	}
	return nil
}

// checkRatio returns an error if the ratio of the limit to the request exceeds the maximum.
func (b *bound) checkRatio() error {
	request, limit, _ := b.values()
	ratioError := func(reason string) error {
		return fmt.Errorf("%s max limit to request ratio per %s is %s, but %s", b.name, b.per, b.enforced.String(), reason)
	}
	switch {
	case !b.hasRequest || request == 0:
		return ratioError("no request is specified or request is 0")
	case !b.hasLimit || limit == 0:
		return ratioError("no limit is specified or limit is 0")
	}
	ratio := float64(limit) / float64(request)
	if ratio > b.enforced.AsApproximateFloat64() {
		return ratioError(fmt.Sprintf("provided ratio is %f", ratio))
	}
	return nil
}

// checkBounds checks the requests and limits of an item against bounds, which are all minimums,
// maximums or ratios. rule is the method of bound to check them with.
func checkBounds(per corev1.LimitType, bounds, requests, limits corev1.ResourceList, rule func(*bound) error) (errs []error) {
	for _, name := range slices.Sorted(maps.Keys(bounds)) {
		checked := &bound{per: string(per), name: string(name), enforced: bounds[name]}
		checked.request, checked.hasRequest = requests[name]
		checked.limit, checked.hasLimit = limits[name]
		if err := rule(checked); err != nil {
			errs = append(errs, err)
		}
	}
	return errs
}

// checkItem returns the violations of all bounds of an item.
func checkItem(item *corev1.LimitRangeItem, requests, limits corev1.ResourceList) []error {
	errs := checkBounds(item.Type, item.Min, requests, limits, (*bound).checkMinimum)
	errs = append(errs, checkBounds(item.Type, item.Max, requests, limits, (*bound).checkMaximum)...)
	return append(errs, checkBounds(item.Type, item.MaxLimitRequestRatio, requests, limits, (*bound).checkRatio)...)
}

// checkPod returns the violations of a pod and of its containers.
func (p *Plugin) checkPod(pod *corev1.Pod, limitRange *corev1.LimitRange) (errs []error) {
	for i := range limitRange.Spec.Limits {
		switch item := &limitRange.Spec.Limits[i]; item.Type {
		case corev1.LimitTypeContainer:
			for _, group := range [][]corev1.Container{pod.Spec.Containers, pod.Spec.InitContainers} {
				for j := range group {
					errs = append(errs, checkItem(item, group[j].Resources.Requests, group[j].Resources.Limits)...)
				}
			}
		case corev1.LimitTypePod:
			options := helpers.PodResourcesOptions{ExcludeOverhead: true, SkipPodLevelResources: !p.PodLevel}
			errs = append(errs, checkItem(item, helpers.PodRequests(pod, options), helpers.PodLimits(pod, options))...)
		}
	}
	return errs
}

// checkClaim returns the violations of a claim.
func checkClaim(claim *corev1.PersistentVolumeClaim, limitRange *corev1.LimitRange) (errs []error) {
	for i := range limitRange.Spec.Limits {
		if item := &limitRange.Spec.Limits[i]; item.Type == corev1.LimitTypePersistentVolumeClaim {
			errs = append(errs, checkBounds(item.Type, item.Min, claim.Spec.Resources.Requests, nil, (*bound).checkMinimum)...)
			errs = append(errs, checkBounds(item.Type, item.Max, claim.Spec.Resources.Requests, nil, (*bound).checkMaximumRequest)...)
		}
	}
	return errs
}
