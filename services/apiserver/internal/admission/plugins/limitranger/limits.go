package limitranger

import (
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	helpers "k8s.io/component-helpers/resource"
)

// bound is one bound of one resource, with the request and the limit to check against it.
type bound struct {
	per, name      string // type of the limited item, such as Container, and name of the resource
	enforced       resource.Quantity
	request, limit resource.Quantity
	hasRequest     bool
	hasLimit       bool
}

// values returns request, limit and bound in the finest unit that all three fit into.
func (b *bound) values() (request, limit, enforced int64) {
	if b.request.Value() <= resource.MaxMilliValue && b.limit.Value() <= resource.MaxMilliValue && b.enforced.Value() <= resource.MaxMilliValue {
		return b.request.MilliValue(), b.limit.MilliValue(), b.enforced.MilliValue()
	}
	return b.request.Value(), b.limit.Value(), b.enforced.Value()
}

// usage returns the error of a request or limit outside the bound.
func (b *bound) usage(which, subject string, q *resource.Quantity) error {
	return fmt.Errorf("%s %s usage per %s is %s, but %s is %s", which, b.name, b.per, b.enforced.String(), subject, q.String())
}

// missingError returns the error of a missing request or limit.
func (b *bound) missingError(which, subject string) error {
	return fmt.Errorf("%s %s usage per %s is %s.  No %s is specified", which, b.name, b.per, b.enforced.String(), subject)
}

// minimum returns an error if a request or limit is below the minimum.
func (b *bound) minimum() error {
	request, limit, enforced := b.values()
	switch {
	case !b.hasRequest:
		return b.missingError("minimum", "request")
	case request < enforced:
		return b.usage("minimum", "request", &b.request)
	case b.hasLimit && limit < enforced:
		return b.usage("minimum", "limit", &b.limit)
	}
	return nil
}

// maximum returns an error if a request or limit is above the maximum.
func (b *bound) maximum() error {
	request, limit, enforced := b.values()
	switch {
	case !b.hasLimit:
		return b.missingError("maximum", "limit")
	case limit > enforced:
		return b.usage("maximum", "limit", &b.limit)
	case b.hasRequest && request > enforced:
		return b.usage("maximum", "request", &b.request)
	}
	return nil
}

// maximumRequest is maximum for objects without limits.
func (b *bound) maximumRequest() error {
	request, _, enforced := b.values()
	switch {
	case !b.hasRequest:
		return b.missingError("maximum", "request")
	case request > enforced:
		return b.usage("maximum", "request", &b.request)
	}
	return nil
}

// ratio returns an error if the ratio of limit to request exceeds the maximum.
func (b *bound) ratio() error {
	request, limit, _ := b.values()
	exceeded := func(reason string) error {
		return fmt.Errorf("%s max limit to request ratio per %s is %s, but %s", b.name, b.per, b.enforced.String(), reason)
	}
	switch {
	case !b.hasRequest || request == 0:
		return exceeded("no request is specified or request is 0")
	case !b.hasLimit || limit == 0:
		return exceeded("no limit is specified or limit is 0")
	}
	ratio := float64(limit) / float64(request)
	if ratio > b.enforced.AsApproximateFloat64() {
		return exceeded(fmt.Sprintf("provided ratio is %f", ratio))
	}
	return nil
}

// check checks requests and limits against one kind of bound, by resource.
func check(per corev1.LimitType, bounds, requests, limits corev1.ResourceList, rule func(*bound) error) (errs []error) {
	for _, k := range slices.Sorted(maps.Keys(bounds)) {
		b := &bound{per: string(per), name: string(k), enforced: bounds[k]}
		b.request, b.hasRequest = requests[k]
		b.limit, b.hasLimit = limits[k]
		if err := rule(b); err != nil {
			errs = append(errs, err)
		}
	}
	return errs
}

// checkItem returns the violations of all bounds of an item.
func checkItem(l *corev1.LimitRangeItem, requests, limits corev1.ResourceList) []error {
	errs := check(l.Type, l.Min, requests, limits, (*bound).minimum)
	errs = append(errs, check(l.Type, l.Max, requests, limits, (*bound).maximum)...)
	return append(errs, check(l.Type, l.MaxLimitRequestRatio, requests, limits, (*bound).ratio)...)
}

// checkPod returns the violations of a pod and of its containers.
func (p *Plugin) checkPod(pod *corev1.Pod, lr *corev1.LimitRange) (errs []error) {
	for i := range lr.Spec.Limits {
		switch l := &lr.Spec.Limits[i]; l.Type {
		case corev1.LimitTypeContainer:
			for _, group := range [][]corev1.Container{pod.Spec.Containers, pod.Spec.InitContainers} {
				for j := range group {
					errs = append(errs, checkItem(l, group[j].Resources.Requests, group[j].Resources.Limits)...)
				}
			}
		case corev1.LimitTypePod:
			o := helpers.PodResourcesOptions{ExcludeOverhead: true, SkipPodLevelResources: !p.PodLevel}
			errs = append(errs, checkItem(l, helpers.PodRequests(pod, o), helpers.PodLimits(pod, o))...)
		}
	}
	return errs
}

// checkClaim returns the violations of a claim.
func checkClaim(c *corev1.PersistentVolumeClaim, lr *corev1.LimitRange) (errs []error) {
	for i := range lr.Spec.Limits {
		if l := &lr.Spec.Limits[i]; l.Type == corev1.LimitTypePersistentVolumeClaim {
			errs = append(errs, check(l.Type, l.Min, c.Spec.Resources.Requests, nil, (*bound).minimum)...)
			errs = append(errs, check(l.Type, l.Max, c.Spec.Resources.Requests, nil, (*bound).maximumRequest)...)
		}
	}
	return errs
}
