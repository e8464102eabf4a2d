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

// ValidateContainerResource requires a resource that containers can have. The caller has validated
// the name with ValidateResourceName.
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

// ValidateResourceQuantity requires a non-negative quantity, and an integer for resources that are
// counted.
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
	requirements *corev1.ResourceRequirements,
	nameRule func(validate.Field, corev1.ResourceName),
) {
	hasCompute, hasHugePages := false, false
	validateItem := func(fld validate.Field, name corev1.ResourceName, quantity resource.Quantity) {
		nameRule(fld, name)
		ValidateResourceQuantity(fld, name, quantity)
	}
	validateHugePages := func(fld validate.Field, name corev1.ResourceName, quantity resource.Quantity) {
		hasCompute = hasCompute || name == corev1.ResourceCPU || name == corev1.ResourceMemory
		if !isHugePages(name) {
			return
		}
		hasHugePages = true
		if !c.prior.hugePages && !isWholeNumberOfPages(name, quantity) {
			fld.Invalid("", quantity.String(), fmt.Sprintf("%s is not positive integer multiple of %s", quantity.String(), name))
		}
	}
	validate.EachKey(fld, "limits", requirements.Limits, func(path validate.Field, name corev1.ResourceName, quantity resource.Quantity) {
		validateItem(path, name, quantity)
		validateHugePages(path, name, quantity)
	})
	validate.EachKey(fld, "requests", requirements.Requests, func(path validate.Field, name corev1.ResourceName, quantity resource.Quantity) {
		validateItem(path, name, quantity)
		switch limit, hasLimit := requirements.Limits[name]; {
		case !hasLimit && !CanOvercommit(name):
			fld.Required("limits", "Limit must be set for non overcommitable resources")
		case !hasLimit:
		case quantity.Cmp(limit) != 0 && !CanOvercommit(name):
			fld.Invalid("requests", quantity.String(), fmt.Sprintf("must be equal to %s limit of %s", name, limit.String()))
		case quantity.Cmp(limit) > 0:
			fld.Invalid("requests", quantity.String(), fmt.Sprintf("must be less than or equal to %s limit of %s", name, limit.String()))
		}
		validateHugePages(path, name, quantity)
	})
	fld.ForbidSet("", hasHugePages && !hasCompute, "HugePages require cpu or memory")
	c.validateClaimNames(fld, requirements.Claims)
}

// ValidateLimits validates the limits of an object without requests.
func ValidateLimits(fld validate.Field, limits corev1.ResourceList) {
	c := &check{Rules: &Rules{}}
	c.validateResources(fld, &corev1.ResourceRequirements{Limits: limits}, ValidateContainerResourceName)
}

// isWholeNumberOfPages reports whether a quantity is a multiple of the page size in the resource's
// name, such as hugepages-2Mi.
func isWholeNumberOfPages(name corev1.ResourceName, q resource.Quantity) bool {
	size, err := quantity.Parse(strings.TrimPrefix(string(name), corev1.ResourceHugePagesPrefix))
	return err == nil && size.Sign() > 0 && size.MilliValue()%1000 == 0 && q.Value()%size.Value() == 0
}

// hasPartialHugePages reports whether a request or limit is not a whole number of huge pages.
func hasPartialHugePages(r *corev1.ResourceRequirements) bool {
	for _, list := range []corev1.ResourceList{r.Limits, r.Requests} {
		for name, q := range list {
			if isHugePages(name) && !isWholeNumberOfPages(name, q) {
				return true
			}
		}
	}
	return false
}

// validateClaimNames requires each claim of a container to be a claim of the pod, and rejects
// duplicate requests of a claim. A claim without a request includes all its requests.
func (c *check) validateClaimNames(fld validate.Field, claims []corev1.ResourceClaim) {
	seen := validate.Set[string]{}        // "claim" or "claim/request"
	withRequest := validate.Set[string]{} // claims whose requests are named one by one
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
			withRequest.Add(claim.Name)
		case withRequest.Has(claim.Name):
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

// validatePodResources validates the requests and limits of a pod as a whole.
func (c *check) validatePodResources(fld validate.Field) {
	requirements := c.spec.Resources
	if requirements == nil {
		return
	}
	path := fld.Child("resources")
	path.ForbidSet("claims", requirements.Claims != nil, "claims cannot be set for Resources at pod-level")
	c.validateResources(path, requirements, validatePodResourceName)
	sum := aggregateRequests(c.spec)
	validate.EachKey(path, "requests", sum, func(fld validate.Field, name corev1.ResourceName, q resource.Quantity) {
		if ofPod := requirements.Requests[name]; q.Cmp(ofPod) > 0 {
			fld.Invalid("", ofPod.String(), "must be greater than or equal to aggregate container requests of "+q.String())
		}
	})
	validate.Each(path, "containers", c.spec.Containers, func(fld validate.Field, ctr *corev1.Container) {
		for _, name := range slices.Sorted(maps.Keys(ctr.Resources.Limits)) {
			limit := ctr.Resources.Limits[name]
			if ofPod, hasLimit := requirements.Limits[name]; hasLimit && limit.Cmp(ofPod) > 0 {
				fld.Key("", string(name)).Invalid("limits", limit.String(), "must be less than or equal to pod limits of "+ofPod.String())
			}
		}
	})
}

// aggregateRequests returns the total requests of a pod's containers: init containers run one at a
// time, each beside the sidecars before it.
func aggregateRequests(podSpec *corev1.PodSpec) corev1.ResourceList {
	sum := corev1.ResourceList{}      // of containers that run all the time
	sidecars := corev1.ResourceList{} // sum of the sidecars so far
	startMax := corev1.ResourceList{} // maximum while init containers run
	for i := range podSpec.Containers {
		addTo(sum, podSpec.Containers[i].Resources.Requests)
	}
	for i := range podSpec.InitContainers {
		ctr := &podSpec.InitContainers[i]
		running := sidecars.DeepCopy()
		addTo(running, ctr.Resources.Requests)
		if isSidecar(ctr) {
			addTo(sum, ctr.Resources.Requests)
			sidecars = running
		}
		raiseTo(startMax, running)
	}
	raiseTo(sum, startMax)
	return sum
}

func addTo(sum, list corev1.ResourceList) {
	for name, q := range list {
		total := sum[name]
		total.Add(q)
		sum[name] = total
	}
}

// raiseTo raises amounts to those of a list.
func raiseTo(amounts, list corev1.ResourceList) {
	for name, q := range list {
		if amount, ok := amounts[name]; !ok || q.Cmp(amount) > 0 {
			amounts[name] = q.DeepCopy()
		}
	}
}

// unknownClaim returns an error that lists the existing claims.
func unknownClaim(fld validate.Field, name string, claims validate.Set[string]) *field.Error {
	err := field.NotFound(fld.FieldPath(), name)
	err.Detail = "must be one of the names in pod.spec.resourceClaims which is empty"
	if len(claims) > 0 {
		err.Detail = "must be one of the names in pod.spec.resourceClaims: " + strings.Join(slices.Sorted(maps.Keys(claims)), ", ")
	}
	return err
}
