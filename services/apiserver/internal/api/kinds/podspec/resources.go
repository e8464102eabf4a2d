package podspec

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"binnacle/libs/quantity"
	"binnacle/services/apiserver/internal/registry/validate"
)

// ValidateResourceName requires a standard resource name, or one with a domain.
func ValidateResourceName(fld validate.Field, name corev1.ResourceName) bool {
	if msgs := validate.QualifiedName(string(name)); len(msgs) > 0 {
		fld.InvalidMessages("", name, msgs)
		return false
	}
	if strings.Contains(string(name), "/") || IsStandardResource(name) {
		return true
	}
	fld.Invalid("", name, "must be a standard resource type or fully qualified")
	return false
}

// ValidateContainerResourceName requires the name of a resource that containers can have.
func ValidateContainerResourceName(fld validate.Field, name corev1.ResourceName) {
	ValidateResourceName(fld, name)
	ValidateContainerResource(fld, name)
}

// ValidateContainerResource requires a resource that containers can have. The name is valid as
// such.
func ValidateContainerResource(fld validate.Field, name corev1.ResourceName) {
	switch {
	case !strings.Contains(string(name), "/"):
		if !isContainerResource(name) {
			fld.Invalid("", name, "must be a standard resource for containers")
		}
	case !IsNative(name) && !Extended(name):
		fld.Invalid("", name, "doesn't follow extended resource name standard")
	}
}

// validatePodResourceName requires the name of a resource that pods as a whole can have.
func validatePodResourceName(fld validate.Field, name corev1.ResourceName) {
	if !ValidateResourceName(fld, name) || strings.HasPrefix(string(name), corev1.ResourceHugePagesPrefix) {
		return
	}
	validate.OneOf(fld, "", name, corev1.ResourceCPU, corev1.ResourceMemory)
}

// ValidateResourceQuantity requires a valid quantity of a resource. Countable resources have no
// fractions.
func ValidateResourceQuantity(fld validate.Field, name corev1.ResourceName, q resource.Quantity) {
	fld.CheckNonNegativeQuantity("", q)
	if isCountedResource(name) || Extended(name) {
		fld.CheckIntegerQuantity("", q)
	}
}

// IsStandardResource reports whether a name without a domain is a standard resource.
func IsStandardResource(name corev1.ResourceName) bool {
	switch name {
	case corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourceEphemeralStorage, corev1.ResourceStorage,
		corev1.ResourceRequestsCPU, corev1.ResourceRequestsMemory, corev1.ResourceRequestsEphemeralStorage,
		corev1.ResourceRequestsStorage,
		corev1.ResourceLimitsCPU, corev1.ResourceLimitsMemory, corev1.ResourceLimitsEphemeralStorage:
		return true
	}
	return isCountedResource(name) || isHugePages(name) || strings.HasPrefix(string(name), corev1.ResourceRequestsHugePagesPrefix)
}

// isCountedResource reports whether a name is that of a resource that quotas count.
func isCountedResource(name corev1.ResourceName) bool {
	switch name {
	case corev1.ResourcePods, corev1.ResourceQuotas, corev1.ResourceServices, corev1.ResourceReplicationControllers,
		corev1.ResourceSecrets, corev1.ResourceConfigMaps, corev1.ResourcePersistentVolumeClaims,
		corev1.ResourceServicesNodePorts, corev1.ResourceServicesLoadBalancers:
		return true
	}
	return false
}

// isContainerResource reports whether containers can request a resource.
func isContainerResource(name corev1.ResourceName) bool {
	return name == corev1.ResourceCPU || name == corev1.ResourceMemory || name == corev1.ResourceEphemeralStorage ||
		isHugePages(name)
}

// isHugePages reports whether a resource is huge pages of some size.
func isHugePages(name corev1.ResourceName) bool {
	return strings.HasPrefix(string(name), corev1.ResourceHugePagesPrefix)
}

// IsNative reports whether a resource is native to Kubernetes.
func IsNative(name corev1.ResourceName) bool {
	return !strings.Contains(string(name), "/") || strings.Contains(string(name), corev1.ResourceDefaultNamespacePrefix)
}

// Extended reports whether a resource belongs to another domain.
func Extended(name corev1.ResourceName) bool {
	return !IsNative(name) && !strings.HasPrefix(string(name), corev1.DefaultResourceRequestsPrefix) &&
		len(validate.QualifiedName(corev1.DefaultResourceRequestsPrefix+string(name))) == 0
}

// CanOvercommit reports whether the limit of a resource may exceed its request.
func CanOvercommit(name corev1.ResourceName) bool { return IsNative(name) && !isHugePages(name) }

// validateResources validates requests and limits. nameRule validates their names.
func (c *check) validateResources(
	fld validate.Field,
	r *corev1.ResourceRequirements,
	nameRule func(validate.Field, corev1.ResourceName),
) {
	compute, huge := false, false
	each := func(fld validate.Field, name corev1.ResourceName, q resource.Quantity) {
		nameRule(fld, name)
		ValidateResourceQuantity(fld, name, q)
	}
	pages := func(fld validate.Field, name corev1.ResourceName, q resource.Quantity) {
		compute = compute || name == corev1.ResourceCPU || name == corev1.ResourceMemory
		if !isHugePages(name) {
			return
		}
		huge = true
		if !c.kept.hugePages && !wholePages(name, q) {
			fld.Invalid("", q.String(), fmt.Sprintf("%s is not positive integer multiple of %s", q.String(), name))
		}
	}
	validate.EachKey(fld, "limits", r.Limits, func(path validate.Field, name corev1.ResourceName, q resource.Quantity) {
		each(path, name, q)
		pages(path, name, q)
	})
	validate.EachKey(fld, "requests", r.Requests, func(path validate.Field, name corev1.ResourceName, q resource.Quantity) {
		each(path, name, q)
		switch limit, limited := r.Limits[name]; {
		case !limited && !CanOvercommit(name):
			fld.Required("limits", "Limit must be set for non overcommitable resources")
		case !limited:
		case q.Cmp(limit) != 0 && !CanOvercommit(name):
			fld.Invalid("requests", q.String(), fmt.Sprintf("must be equal to %s limit of %s", name, limit.String()))
		case q.Cmp(limit) > 0:
			fld.Invalid("requests", q.String(), fmt.Sprintf("must be less than or equal to %s limit of %s", name, limit.String()))
		}
		pages(path, name, q)
	})
	fld.ForbidSet("", huge && !compute, "HugePages require cpu or memory")
	c.validateClaimNames(fld, r.Claims)
}

// ValidateLimits validates the limits of an object without requests.
func ValidateLimits(fld validate.Field, limits corev1.ResourceList) {
	c := &check{Rules: &Rules{}}
	c.validateResources(fld, &corev1.ResourceRequirements{Limits: limits}, ValidateContainerResourceName)
}

// wholePages reports whether a quantity is a multiple of the page size in the resource's name.
func wholePages(name corev1.ResourceName, q resource.Quantity) bool {
	size, err := quantity.Parse(strings.TrimPrefix(string(name), corev1.ResourceHugePagesPrefix))
	return err == nil && size.Sign() > 0 && size.MilliValue()%1000 == 0 && q.Value()%size.Value() == 0
}

// hasOddHugePages reports whether a container requests part of a huge page.
func hasOddHugePages(r *corev1.ResourceRequirements) bool {
	for _, list := range []corev1.ResourceList{r.Limits, r.Requests} {
		for name, q := range list {
			if isHugePages(name) && !wholePages(name, q) {
				return true
			}
		}
	}
	return false
}

// validateClaimNames requires each claim of a container to be a claim of the pod, and rejects
// duplicate requests of a claim. A claim without a request includes all its requests.
func (c *check) validateClaimNames(fld validate.Field, claims []corev1.ResourceClaim) {
	seen, requested := validate.Set[string]{}, validate.Set[string]{}
	validate.Each(fld, "claims", claims, func(fld validate.Field, claim *corev1.ResourceClaim) {
		if claim.Name == "" {
			fld.Required("", "")
			return
		}
		key := claim.Name
		switch {
		case seen.Has(claim.Name):
			fld.Duplicate("", claim.Name)
		case claim.Request != "":
			fld.CheckText("request", claim.Request, validate.DNSLabel)
			key += "/" + claim.Request
			validate.Unique(fld, "", key, seen)
			requested.Add(claim.Name)
		case requested.Has(claim.Name):
			fld.Duplicate("", claim.Name)
			seen.Add(key)
		default:
			seen.Add(key)
		}
		if !c.claims.Has(claim.Name) {
			fld.Add(unknownClaim(fld, claim.Name, c.claims))
		}
	})
}

func sortedNames(s validate.Set[string]) []string { return slices.Sorted(maps.Keys(s)) }

// validatePodResources validates the requests and limits of a pod as a whole.
func (c *check) validatePodResources(fld validate.Field) {
	r := c.whole.Resources
	if r == nil {
		return
	}
	path := fld.Child("resources")
	path.ForbidSet("claims", r.Claims != nil, "claims cannot be set for Resources at pod-level")
	c.validateResources(path, r, validatePodResourceName)
	sum := aggregateRequests(c.whole)
	validate.EachKey(path, "requests", sum, func(fld validate.Field, name corev1.ResourceName, q resource.Quantity) {
		if whole := r.Requests[name]; q.Cmp(whole) > 0 {
			fld.Invalid("", whole.String(), "must be greater than or equal to aggregate container requests of "+q.String())
		}
	})
	validate.Each(path, "containers", c.whole.Containers, func(fld validate.Field, ctr *corev1.Container) {
		for _, name := range slices.Sorted(maps.Keys(ctr.Resources.Limits)) {
			limit := ctr.Resources.Limits[name]
			if whole, limited := r.Limits[name]; limited && limit.Cmp(whole) > 0 {
				fld.Key("", string(name)).Invalid("limits", limit.String(), "must be less than or equal to pod limits of "+whole.String())
			}
		}
	})
}

// aggregateRequests returns the total requests of a pod's containers: init containers run one at a
// time, each beside the sidecars before it.
func aggregateRequests(s *corev1.PodSpec) corev1.ResourceList {
	sum := corev1.ResourceList{}
	sidecars := corev1.ResourceList{}
	maximum := corev1.ResourceList{}
	for i := range s.Containers {
		addTo(sum, s.Containers[i].Resources.Requests)
	}
	for i := range s.InitContainers {
		ctr := &s.InitContainers[i]
		now := sidecars.DeepCopy()
		addTo(now, ctr.Resources.Requests)
		if isSidecar(ctr) {
			addTo(sum, ctr.Resources.Requests)
			sidecars = now
		}
		setMax(maximum, now)
	}
	setMax(sum, maximum)
	return sum
}

// addTo adds the amounts of a list to a sum.
func addTo(sum, list corev1.ResourceList) {
	for name, q := range list {
		total := sum[name]
		total.Add(q)
		sum[name] = total
	}
}

// setMax raises amounts to those of a list.
func setMax(to, list corev1.ResourceList) {
	for name, q := range list {
		if now, ok := to[name]; !ok || q.Cmp(now) > 0 {
			to[name] = q.DeepCopy()
		}
	}
}

// unknownClaim returns an error that lists the existing claims.
func unknownClaim(fld validate.Field, name string, claims validate.Set[string]) *field.Error {
	err := field.NotFound(fld.FieldPath(), name)
	err.Detail = "must be one of the names in pod.spec.resourceClaims which is empty"
	if len(claims) > 0 {
		err.Detail = "must be one of the names in pod.spec.resourceClaims: " + strings.Join(sortedNames(claims), ", ")
	}
	return err
}
