package resource

import (
	"strings"

	resourcev1beta2 "k8s.io/api/resource/v1beta2"
	content "k8s.io/apimachinery/pkg/util/validation"

	"binnacle/services/apiserver/internal/api/kinds/podspec"
	"binnacle/services/apiserver/internal/registry/validate"
)

// requestNames holds the names by which other parts of a claim refer to its requests: "request", or
// "request/alternative" for one of the alternatives of a request.
type requestNames validate.Set[string]

func requestNamesOf(c *resourcev1beta2.DeviceClaim) requestNames {
	names := requestNames{}
	for i := range c.Requests {
		r := &c.Requests[i]
		names[r.Name] = struct{}{}
		for j := range r.FirstAvailable {
			names[r.Name+"/"+r.FirstAvailable[j].Name] = struct{}{}
		}
	}
	return names
}

// validateClaimSpec validates the spec of a claim. stored reports whether the spec is already
// stored. The CEL expressions of a stored spec are not compiled again, and its parameters may be
// longer than new ones.
func (compile compiler) validateClaimSpec(fld validate.Field, spec *resourcev1beta2.ResourceClaimSpec, stored bool) {
	compile = compile.forObject()
	devices := fld.Child("devices")
	names := requestNamesOf(&spec.Devices)

	requests := spec.Devices.Requests
	validate.Each(devices, "requests", requests, func(fld validate.Field, r *resourcev1beta2.DeviceRequest) {
		compile.validateRequest(fld, r, stored)
	})
	validate.MaxItems(devices, "requests", requests, resourcev1beta2.DeviceRequestsMaxSize)
	requireUnique(devices, "requests", "name", requests, func(r *resourcev1beta2.DeviceRequest) string { return r.Name })

	constraints := spec.Devices.Constraints
	validate.Each(devices, "constraints", constraints, names.validateConstraint)
	validate.MaxItems(devices, "constraints", constraints, resourcev1beta2.DeviceConstraintsMaxSize)

	config := spec.Devices.Config
	validate.Each(devices, "config", config, func(fld validate.Field, c *resourcev1beta2.DeviceClaimConfiguration) {
		names.validateReferences(fld, c.Requests)
		validateConfig(fld, &c.DeviceConfiguration, stored)
	})
	validate.MaxItems(devices, "config", config, resourcev1beta2.DeviceConfigMaxSize)
}

// validateConstraint requires an attribute that the devices of the requests must share.
func (n requestNames) validateConstraint(fld validate.Field, deviceConstraint *resourcev1beta2.DeviceConstraint) {
	n.validateReferences(fld, deviceConstraint.Requests)
	if deviceConstraint.MatchAttribute == nil {
		fld.Required("matchAttribute", "")
		return
	}
	name := string(*deviceConstraint.MatchAttribute)
	validateQualifiedName(fld.Child("matchAttribute"), name)
	if name != "" && !strings.Contains(name, "/") {
		fld.Invalid("matchAttribute", name, "must include a domain")
	}
}

func (n requestNames) validateReferences(fld validate.Field, refs []string) {
	validate.Each(fld, "requests", refs, func(fld validate.Field, ref *string) { n.validateReference(fld, "", *ref) })
	validate.MaxItems(fld, "requests", refs, resourcev1beta2.DeviceRequestsMaxSize)
	requireUnique(fld, "requests", "", refs, func(ref *string) string { return *ref })
}

// validateReference requires that ref is the name of a request. name is the field of ref below fld,
// or "" if fld is the field.
func (n requestNames) validateReference(fld validate.Field, name, ref string) {
	const wrong = "must be the name of a request in the claim or the name of a request and a subrequest separated by '/'"
	parts := strings.Split(ref, "/")
	if len(parts) > 2 {
		fld.Invalid(name, ref, wrong)
		return
	}
	for _, part := range parts {
		fld.CheckText(name, part, validate.DNSLabel)
	}
	if _, ok := n[ref]; !ok {
		fld.Invalid(name, ref, wrong)
	}
}

// validateRequest requires a request of exact devices or of alternatives, and validates it.
func (compile compiler) validateRequest(fld validate.Field, deviceRequest *resourcev1beta2.DeviceRequest, stored bool) {
	const choice = "exactly one of `exactly` or `firstAvailable` is required"
	fld.CheckText("name", deviceRequest.Name, validate.DNSLabel)
	switch some := len(deviceRequest.FirstAvailable) > 0; {
	case deviceRequest.Exactly == nil && !some:
		fld.Required("", choice)
	case deviceRequest.Exactly != nil && some:
		fld.Invalid("", nil, choice+", but multiple fields are set")
	case some:
		validate.Each(fld, "firstAvailable", deviceRequest.FirstAvailable, func(fld validate.Field, r *resourcev1beta2.DeviceSubRequest) {
			compile.validateAlternative(fld, r, stored)
		})
		validate.MaxItems(fld, "firstAvailable", deviceRequest.FirstAvailable, resourcev1beta2.FirstAvailableDeviceRequestMaxSize)
		requireUnique(
			fld,
			"firstAvailable",
			"name",
			deviceRequest.FirstAvailable,
			func(r *resourcev1beta2.DeviceSubRequest) string { return r.Name },
		)
	default:
		exactly, exactDeviceRequest := fld.Child("exactly"), deviceRequest.Exactly
		exactly.CheckRequiredText("deviceClassName", exactDeviceRequest.DeviceClassName, validate.DNSSubdomain)
		compile.validateSelectors(exactly, exactDeviceRequest.Selectors, stored)
		validateAllocationMode(exactly, exactDeviceRequest.AllocationMode, exactDeviceRequest.Count)
		validate.Each(exactly, "tolerations", exactDeviceRequest.Tolerations, validateToleration)
	}
}

func (compile compiler) validateAlternative(fld validate.Field, deviceSubRequest *resourcev1beta2.DeviceSubRequest, stored bool) {
	fld.CheckText("name", deviceSubRequest.Name, validate.DNSLabel)
	fld.CheckRequiredText("deviceClassName", deviceSubRequest.DeviceClassName, validate.DNSSubdomain)
	compile.validateSelectors(fld, deviceSubRequest.Selectors, stored)
	validateAllocationMode(fld, deviceSubRequest.AllocationMode, deviceSubRequest.Count)
	validate.Each(fld, "tolerations", deviceSubRequest.Tolerations, validateToleration)
}

// validateClaimStatus validates a change of the status of a claim: the consumers, the states of the
// devices and the allocation. An allocation may be removed, but not changed.
func validateClaimStatus(fld validate.Field, resourceClaim, old *resourcev1beta2.ResourceClaim) {
	status, s := fld.Child("status"), &resourceClaim.Status
	validateConsumers(status, s.ReservedFor)
	validateDeviceStatuses(status, s)
	forbidNewConsumers(status, resourceClaim, old)
	switch {
	case s.Allocation == nil:
	case old.Status.Allocation != nil:
		status.CheckImmutable("allocation", s.Allocation, old.Status.Allocation)
	default:
		validateAllocation(status.Child("allocation"), s.Allocation, requestNamesOf(&resourceClaim.Spec.Devices))
	}
}

func validateConsumers(status validate.Field, consumers []resourcev1beta2.ResourceClaimConsumerReference) {
	validate.Each(status, "reservedFor", consumers, func(fld validate.Field, r *resourcev1beta2.ResourceClaimConsumerReference) {
		fld.RequireSet("resource", r.Resource != "")
		fld.RequireSet("name", r.Name != "")
		fld.RequireSet("uid", r.UID != "")
	})
	validate.MaxItems(status, "reservedFor", consumers, resourcev1beta2.ResourceClaimReservedForMaxSize)
	requireUnique(status, "reservedFor", "uid", consumers, func(r *resourcev1beta2.ResourceClaimConsumerReference) string {
		return string(r.UID)
	})
}

// forbidNewConsumers rejects new consumers of a claim that is being deleted, and all consumers of a
// claim that is not allocated.
func forbidNewConsumers(status validate.Field, resourceClaim, old *resourcev1beta2.ResourceClaim) {
	now := resourceClaim.Status.ReservedFor
	if len(now) == 0 {
		return
	}
	if resourceClaim.Status.Allocation == nil {
		status.Forbidden("reservedFor", "may not be specified when `allocated` is not set")
		return
	}
	if resourceClaim.DeletionTimestamp == nil {
		return
	}
	before := validate.KeySet(
		old.Status.ReservedFor,
		func(r *resourcev1beta2.ResourceClaimConsumerReference) resourcev1beta2.ResourceClaimConsumerReference {
			return *r
		},
	)
	for i := range now {
		if !before.Has(now[i]) {
			status.Forbidden("reservedFor", "new entries may not be added while `deallocationRequested` or `deletionTimestamp` are set")
			return
		}
	}
}

// deviceID identifies a device. Messages contain its parts.
type deviceID struct{ driver, pool, device string }

// String returns the parts of the ID, separated by slashes.
func (d deviceID) String() string { return d.driver + "/" + d.pool + "/" + d.device }

// validateDeviceStatuses validates the statuses of devices, and requires that the devices are
// allocated.
func validateDeviceStatuses(status validate.Field, claimStatus *resourcev1beta2.ResourceClaimStatus) {
	allocated := validate.Set[deviceID]{}
	if claimStatus.Allocation != nil {
		allocated = validate.KeySet(claimStatus.Allocation.Devices.Results, func(r *resourcev1beta2.DeviceRequestAllocationResult) deviceID {
			return deviceID{r.Driver, r.Pool, r.Device}
		})
	}
	validate.Each(status, "devices", claimStatus.Devices, func(fld validate.Field, d *resourcev1beta2.AllocatedDeviceStatus) {
		validateDeviceID(fld, d.Driver, d.Pool, d.Device)
		if id := (deviceID{d.Driver, d.Pool, d.Device}); !allocated.Has(id) {
			fld.Invalid("", id.String(), "must be an allocated device in the claim")
		}
		validate.MaxItems(fld, "conditions", d.Conditions, resourcev1beta2.AllocatedDeviceStatusMaxConditions)
		fld.CheckConditions("conditions", d.Conditions)
		if d.Data != nil && len(d.Data.Raw) > 0 {
			validateJSON(fld, "data", *d.Data, resourcev1beta2.AllocatedDeviceStatusDataMaxLength)
		}
		validate.Optional(fld, "networkData", d.NetworkData, validateNetworkData)
	})
	requireUnique(status, "devices", "deviceID", claimStatus.Devices, func(d *resourcev1beta2.AllocatedDeviceStatus) string {
		return deviceID{d.Driver, d.Pool, d.Device}.String()
	})
}

func validateNetworkData(fld validate.Field, networkDeviceData *resourcev1beta2.NetworkDeviceData) {
	fld.CheckMaxBytes("interfaceName", networkDeviceData.InterfaceName, resourcev1beta2.NetworkDeviceDataInterfaceNameMaxLength)
	fld.CheckMaxBytes("hardwareAddress", networkDeviceData.HardwareAddress, resourcev1beta2.NetworkDeviceDataHardwareAddressMaxLength)
	validate.Each(fld, "ips", networkDeviceData.IPs, func(fld validate.Field, ip *string) {
		fld.Add(content.IsValidInterfaceAddress(fld.FieldPath(), *ip)...)
	})
	validate.MaxItems(fld, "ips", networkDeviceData.IPs, resourcev1beta2.NetworkDeviceDataMaxIPs)
	requireUnique(fld, "ips", "", networkDeviceData.IPs, func(ip *string) string { return *ip })
}

func validateDeviceID(fld validate.Field, driver, pool, device string) {
	podspec.ValidateCSIDriverName(fld, "driver", driver)
	validatePoolName(fld, "pool", pool)
	fld.CheckText("device", device, validate.DNSLabel)
}

// validateAllocation validates a new allocation of a claim. names holds the names of the claim's
// requests.
func validateAllocation(fld validate.Field, allocationResult *resourcev1beta2.AllocationResult, names requestNames) {
	devices := fld.Child("devices")
	validate.Each(
		devices,
		"results",
		allocationResult.Devices.Results,
		func(fld validate.Field, r *resourcev1beta2.DeviceRequestAllocationResult) {
			names.validateReference(fld, "request", r.Request)
			validateDeviceID(fld, r.Driver, r.Pool, r.Device)
		},
	)
	validate.MaxItems(devices, "results", allocationResult.Devices.Results, resourcev1beta2.AllocationResultsMaxSize)
	validate.Each(devices, "config", allocationResult.Devices.Config, func(fld validate.Field, c *resourcev1beta2.DeviceAllocationConfiguration) {
		validate.RequiredOneOf(fld, "source", c.Source, resourcev1beta2.AllocationConfigSourceClaim,
			resourcev1beta2.AllocationConfigSourceClass)
		names.validateReferences(fld, c.Requests)
		validateConfig(fld, &c.DeviceConfiguration, false)
	})
	validate.MaxItems(devices, "config", allocationResult.Devices.Config, 2*resourcev1beta2.DeviceConfigMaxSize)
	if allocationResult.NodeSelector != nil {
		podspec.ValidateNodeSelector(fld.Child("nodeSelector"), allocationResult.NodeSelector, false)
	}
}
